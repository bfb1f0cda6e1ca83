"""A plain looped transformer: the smallest model that can be driven, and the Universal Transformer's shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from looptaps.loop import Control, Memory, StepStats, as_control
from looptaps.models.base import LoopRun, Moves, check_inner
from looptaps.models.config import MixerConfig, ModelConfig
from looptaps.models.layers import Block, PreNormCore, rms_norm
from looptaps.models.puzzle import PuzzleModel


@dataclass(frozen=True, kw_only=True)
class LoopedConfig(MixerConfig):
    """A looped transformer's make.

    Args:
        L_layers: layers of the network.
        L_cycles: updates per outer loop, all with gradients in training.
        q_head: have a head that scores the answer (needed to halt and to select among rollouts).
    """

    puzzle_emb_ndim: int = 0
    L_layers: int = 2
    L_cycles: int = 1
    q_head: bool = True

    @property
    def scores(self) -> bool:
        return self.q_head


class LoopedCarry(NamedTuple):
    """What goes from one outer loop to the next: the state h and the embedded input, each (B, prefix + n, d)."""

    z_L: Tensor  # noqa: N815
    x: Tensor


class LoopedTransformer(PuzzleModel):
    """h <- T(x + h), from h = 0: the same pre-norm layers at every update. The heads read norm(h).

    Args:
        config: what it is made of.
        generator: draws the initial weights; None uses torch's own.

    >>> import looptaps as lt, torch
    >>> model = LoopedTransformer(LoopedConfig(vocab_size=7, seq_len=16, hidden_size=32, num_heads=2))
    >>> carry = model.begin({"inputs": torch.randint(7, (2, 16))})
    >>> for _ in range(4):
    ...     carry, memory, stats = model.advance(carry, lt.Control(lt.Constant(0.9)))
    >>> stats.eta, stats.updates
    (tensor([0.9000, 0.9000]), 2)
    """

    kind: ClassVar[str] = "looped"
    config_type: ClassVar[type[ModelConfig]] = LoopedConfig
    config: LoopedConfig

    def __init__(self, config: LoopedConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config, generator)
        self.core = PreNormCore(
            [
                Block(config.hidden_size, config.num_heads, config.channel_width, config.mixer, generator)
                for _ in range(config.L_layers)
            ],
            config.rms_norm_eps,
        )

    def cores(self) -> list[nn.Module]:
        return [self.core]

    def begin(self, batch: dict[str, Tensor]) -> LoopedCarry:
        """The carry before the first loop: h = 0."""
        x = self.embed(batch)
        return LoopedCarry(torch.zeros_like(x), x)

    def advance(
        self,
        carry: LoopedCarry,
        control: Control,
        memory: Memory | None = None,
        *,
        trace: bool = False,
        moves: Moves | None = None,
    ) -> tuple[LoopedCarry, Memory, StepStats]:
        """One outer loop: L_cycles controlled updates."""
        config, control = self.config, as_control(control)
        self.check_control(control)
        h, x = carry
        run = LoopRun(control, memory, h, config.L_cycles, trace, moves)
        weights, rotary = self.core.weights(self._dtype), self._rotary(x)
        for _ in range(config.L_cycles):
            h = run.step(h, self.core(h, x, weights, rotary))
        memory, stats = run.finish((h,), config.L_cycles * len(weights), 0)
        return LoopedCarry(h, x), memory, stats

    def check_control(self, control: Control) -> None:
        check_inner(type(self).__name__, control)

    def answer_state(self, carry: LoopedCarry) -> Tensor:
        return rms_norm(carry.z_L, self.config.rms_norm_eps)


__all__ = ["LoopedCarry", "LoopedConfig", "LoopedTransformer"]
