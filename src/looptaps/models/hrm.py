"""HRM, the hierarchical reasoning model: two networks at two rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from looptaps.models.config import ModelConfig, PuzzleConfig
from looptaps.models.layers import Block, PostNormCore
from looptaps.models.levels import TwoLevelModel


@dataclass(frozen=True, kw_only=True)
class HRMConfig(PuzzleConfig):
    """HRM's make; the defaults are the released ones.

    Args:
        H_cycles: z_H updates per outer loop.
        L_cycles: z_L updates before each of them.
        H_layers: layers of the network that updates z_H.
        L_layers: layers of the network that updates z_L.

    >>> HRMConfig(vocab_size=11, seq_len=81).prefix
    1
    """

    puzzle_emb_len: int = 0
    H_cycles: int = 2
    L_cycles: int = 2
    H_layers: int = 4
    L_layers: int = 4


class HRM(TwoLevelModel):
    """z_L <- L(z_L, z_H + x) several times, then z_H <- H(z_H, z_L): a network for each.

    Args:
        config: what it is made of.
        generator: draws the initial weights; None uses torch's own.

    >>> import looptaps as lt, torch
    >>> model = HRM(HRMConfig(vocab_size=7, seq_len=16, hidden_size=32, num_heads=2, puzzle_emb_ndim=0))
    >>> carry = model.begin({"inputs": torch.randint(7, (2, 16))})
    >>> carry, memory, stats = model.advance(carry, lt.Control(lt.TapsGD()))
    >>> stats.updates, stats.updates_high
    (16, 8)
    """

    kind: ClassVar[str] = "hrm"
    config_type: ClassVar[type[ModelConfig]] = HRMConfig
    _LAST_STEP_ONLY = True
    config: HRMConfig

    def __init__(self, config: HRMConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config, generator)
        self.H_level = self._core(config.H_layers, generator)
        self.L_level = self._core(config.L_layers, generator)

    @property
    def _high(self) -> PostNormCore:
        return self.H_level

    def _core(self, layers: int, generator: torch.Generator | None) -> PostNormCore:
        config = self.config
        blocks = [Block(config.hidden_size, config.num_heads, config.channel_width, generator=generator)
                  for _ in range(layers)]
        return PostNormCore(blocks, config.rms_norm_eps)


__all__ = ["HRM", "HRMConfig"]
