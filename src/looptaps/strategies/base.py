"""What comes out of a run, and what a stopping rule is asked.

Shape suffixes in this package: B samples, b samples still running, T outer loops, K decisions, n positions of an
answer, R rollouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from looptaps.errors import InvalidUse
from looptaps.loop import Readout, StepStats

if TYPE_CHECKING:
    from looptaps.strategies.trace import RunTrace


class Status(IntEnum):
    """Why a sample stopped. 0 is kept for samples that go on.

    >>> Status.EXITED.message
    'its exit rule was satisfied'
    """

    RAN_ALL = 1
    EXITED = 2
    CONVERGED = 3
    NONFINITE = 4

    @property
    def message(self) -> str:
        """The status in words."""
        return _MESSAGES[self]


_MESSAGES = {
    Status.RAN_ALL: "it ran as far as the budget goes",
    Status.EXITED: "its exit rule was satisfied",
    Status.CONVERGED: "its state stood still",
    Status.NONFINITE: "its state was no longer finite; the answer is that of the loop before",
}


@dataclass(frozen=True, eq=False)
class RolloutTable:
    """All rollouts of all samples, so that smaller budgets are prefixes of a larger one.

    `chosen` (B,) is the rollout that was selected; the other fields are those of `Result`, as (R, B).
    """

    chosen: Tensor
    output: Tensor
    status: Tensor
    loops: Tensor
    updates: Tensor
    updates_high: Tensor
    mean_eta: Tensor
    score: Tensor | None


@dataclass(frozen=True, eq=False)
class Result:
    """What happened to each sample, in the order of the batch.

    Args:
        output: (B, n) int64, the answer in the task's tokens.
        status: (B,) int8, a `Status` each; `messages()` says them in words.
        loops: (B,) int64, outer loops it went through, the last one included.
        updates: (B,) int64, layer applications on z_L ("effective updates"), summed over rollouts.
        updates_high: (B,) int64, layer applications on z_H, summed over rollouts.
        score: (B,) the model's score of the answer; None if the model has none.
        mean_eta: (B,) the mean scale over all updates.
        trace: what happened on the way, if it was asked for.
        rollouts: every rollout, where there are several.
    """

    output: Tensor
    status: Tensor
    loops: Tensor
    updates: Tensor
    updates_high: Tensor
    score: Tensor | None
    mean_eta: Tensor
    trace: RunTrace | None = None
    rollouts: RolloutTable | None = None

    def __len__(self) -> int:
        return len(self.status)

    def messages(self) -> list[str]:
        """Per sample, why it stopped."""
        return [Status(code).message for code in self.status.tolist()]

    def counts(self) -> dict[str, int]:
        """How many samples stopped for which reason."""
        codes = self.status.tolist()
        return {status.name: codes.count(status) for status in Status if status in codes}

    def select(self, rows: Tensor) -> Result:
        """Some of the samples, or all in another order. Traces and rollouts stay behind."""
        picked: dict[str, Any] = {
            name: None if value is None else value[rows] for name, value in self._columns().items()
        }
        return Result(**picked)

    @classmethod
    def join(cls, parts: Sequence[Result]) -> Result:
        """Several results as one, in order. Traces and rollouts stay behind."""
        if not parts:
            raise InvalidUse("Result.join needs at least one result; nothing was run.")
        columns = [part._columns() for part in parts]
        joined: dict[str, Any] = {
            name: None if first is None else torch.cat([column[name] for column in columns])
            for name, first in columns[0].items()
        }
        return cls(**joined)

    def _columns(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("trace", "rollouts")}


class View(NamedTuple):
    """What a stopping rule sees at the end of an outer loop: b samples that were running.

    `before` is the carry this loop began with, `carry` the one it ended with. `loops` and `updates` (b,) count from
    each sample's own start, this loop included. `readout` and `answer` (b, n) are there if the rule `reads`.
    """

    model: Any
    before: Any
    carry: Any
    stats: StepStats
    loops: Tensor
    updates: Tensor
    readout: Readout | None
    answer: Tensor | None


class Verdict(NamedTuple):
    """What a stopping rule says: a `Status` or 0 for each sample, and its own memory for the next loop.

    `signal` (b,) is what the rule compares, for traces. `carry` replaces the loop's own, for rules that also move.
    """

    codes: Tensor
    state: Any
    signal: Tensor | None = None
    carry: Any = None


def going_on(view: View) -> Tensor:
    """Codes that stop nobody."""
    return torch.zeros_like(view.loops, dtype=torch.int8)
