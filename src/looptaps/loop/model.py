"""What a model must offer so that every strategy can drive it.

A `LoopModel` has an outer loop of updates on a carry (a NamedTuple of batch-leading tensors). One `advance` is one
outer loop: for TRM, `H_cycles` cycles of `L_cycles` controlled z_L updates and one z_H update each.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from torch import Tensor

from looptaps.loop.control import Control
from looptaps.loop.step import Memory
from looptaps.loop.trace import Trace

C = TypeVar("C")


class Readout(NamedTuple):
    """The answer at a carry: `logits` (B, n, V), and a score (B,) that ranks rollouts (None if the model has none)."""

    logits: Tensor
    score: Tensor | None


class StepStats(NamedTuple):
    """What one outer loop did, per sample.

    `residuals` (2, B): mean squares of the last two z_L updates' Delta, in order (what the exit rule needs; row 0 is
    NaN where the loop has had only one). `eta` (B,): the last scale applied. `mean_eta` (B,): over this loop's updates.
    `finite` (B,): False where a state or an energy went bad. `updates` and `updates_high`: layer applications per
    sample on z_L and on z_H, the same for every sample of the batch. `trace`: one row per decision (under inner control
    per z_L update, under outer control per cycle or loop), when asked. `moves` (K, B): how far each z_L update moved,
    relative to the state it led to, when asked ("rms" or "max"): what a fixed-point test needs.
    """

    residuals: Tensor
    eta: Tensor
    mean_eta: Tensor
    finite: Tensor
    updates: int
    updates_high: int
    trace: Trace | None
    moves: Tensor | None = None


class LoopModel(Protocol[C]):
    """A model that we drive. `memory=None` starts a fresh controller memory.

    The carry's field `z_L` is the state that control scales, `z_H` the second state of models that have one: refilled
    samples get their controller memory, rollouts their noise and Anderson its vectors by these names.
    """

    def begin(self, batch: dict[str, Tensor]) -> C:
        """The carry before the first loop.

        A model that draws initial states also takes `generators`, one `torch.Generator` per sample.
        """
        ...

    def advance(
        self,
        carry: C,
        control: Control,
        memory: Memory | None = None,
        *,
        trace: bool = False,
        moves: Literal["rms", "max"] | None = None,
    ) -> tuple[C, Memory, StepStats]:
        """One outer loop."""
        ...

    def readout(self, carry: C) -> Readout:
        """The answer now."""
        ...


AnyLoopModel = LoopModel[Any]
