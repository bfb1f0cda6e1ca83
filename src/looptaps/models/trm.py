"""TRM, the tiny recursive model: one small network refines both states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from looptaps.models.config import MixerConfig, ModelConfig
from looptaps.models.layers import Block, PostNormCore
from looptaps.models.levels import TwoLevelModel


@dataclass(frozen=True, kw_only=True)
class TRMConfig(MixerConfig):
    """TRM's make; the defaults are the released ones.

    Args:
        H_cycles: z_H updates per outer loop.
        L_cycles: z_L updates before each of them.
        L_layers: layers of the network.

    >>> TRMConfig(vocab_size=11, seq_len=81, mlp_t=True).mixer
    (97, 512)
    """

    H_cycles: int = 3
    L_cycles: int = 6
    L_layers: int = 2


class TRM(TwoLevelModel):
    """z_L <- L(z_L, z_H + x) several times, then z_H <- L(z_H, z_L): the same L for both.

    Args:
        config: what it is made of.
        generator: draws the initial weights; None uses torch's own.

    >>> import looptaps as lt, torch
    >>> model = TRM(TRMConfig(vocab_size=7, seq_len=16, hidden_size=32, num_heads=2, puzzle_emb_ndim=0))
    >>> carry = model.begin({"inputs": torch.randint(7, (2, 16))})
    >>> carry, memory, stats = model.advance(carry, lt.Control(lt.TapsGD()))
    >>> model.readout(carry).logits.shape, stats.updates, stats.updates_high
    (torch.Size([2, 16, 7]), 36, 6)
    """

    kind: ClassVar[str] = "trm"
    config_type: ClassVar[type[ModelConfig]] = TRMConfig
    _LAST_STEP_ONLY = False
    config: TRMConfig

    def __init__(self, config: TRMConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config, generator)
        self.L_level = PostNormCore(
            [
                Block(config.hidden_size, config.num_heads, config.channel_width, config.mixer, generator)
                for _ in range(config.L_layers)
            ],
            config.rms_norm_eps,
        )


__all__ = ["TRM", "TRMConfig"]
