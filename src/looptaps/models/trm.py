"""TRM, the tiny recursive model: one small network refines both states."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from looptaps.models.config import PuzzleConfig
from looptaps.models.layers import Block, PostNormCore, swiglu_width
from looptaps.models.levels import Carry, Heads, TwoLevelModel


@dataclass(frozen=True, kw_only=True)
class TRMConfig(PuzzleConfig):
    """TRM's make; the defaults are the released ones.

    Args:
        H_cycles: z_H updates per outer loop.
        L_cycles: z_L updates before each of them.
        L_layers: layers of the network.
        mlp_t: mix positions by a SwiGLU over them instead of by attention.
        token_inner: inner width of that SwiGLU; None: by `expansion`, as released.

    >>> TRMConfig(vocab_size=11, seq_len=81, mlp_t=True).mixer
    (97, 512)
    """

    H_cycles: int = 3
    L_cycles: int = 6
    L_layers: int = 2
    mlp_t: bool = False
    token_inner: int | None = None

    @property
    def attends(self) -> bool:
        return not self.mlp_t

    @property
    def mixer(self) -> tuple[int, int] | None:
        """Positions and inner width of the token mixer, where there is one."""
        if not self.mlp_t or self.seq_len is None:
            return None
        positions = self.seq_len + self.prefix
        return positions, self.token_inner or swiglu_width(positions, self.expansion)


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


__all__ = ["TRM", "Carry", "Heads", "TRMConfig"]
