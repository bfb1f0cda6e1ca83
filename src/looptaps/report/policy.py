"""One policy of a report: what the page needs to know of a run, however it was made.

N puzzles, H loops, n traced puzzles, U decisions of the controller, cells of a board.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Kind = Literal["unit", "constant", "rule"]
STOPPED = 255  # a board after its sample stopped


class Traces(NamedTuple):
    """The first puzzles in full: `boards` (n, H, cells) after each loop; `eta`, `balance` (n, U), NaN once stopped."""

    ids: NDArray[Any]
    inputs: NDArray[np.uint8]
    labels: NDArray[np.uint8]
    boards: NDArray[np.uint8]
    eta: NDArray[np.float32]
    balance: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Policy:
    """A run as the report shows it.

    Args:
        label: its name on the page, unlike all others.
        controller: the rule's spec, such as "taps-gd@blocks".
        control: site, every, memory and scope, as a `Control` is recorded.
        task: the task's text, such as "sudoku".
        ids: (N,) which puzzles.
        correct: (N, H) whether the answer was right after each loop.
        updates: (N,) effective updates of each puzzle.
        eta: (N,) mean step size of each puzzle.
        eta_by_loop: (N, H) the same by loop; NaN after a puzzle stopped.
        difficulty: numbers by field, (N,) each.
        traces: some puzzles in full, if they were recorded.
        facts: how it was run, in words, for the table at the end of the page.
    """

    label: str
    controller: str
    control: Mapping[str, Any]
    task: str
    ids: NDArray[Any]
    correct: NDArray[np.bool_]
    updates: NDArray[Any]
    eta: NDArray[Any]
    eta_by_loop: NDArray[Any]
    difficulty: Mapping[str, NDArray[Any]]
    traces: Traces | None = None
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        """`unit` and `constant` have a fixed step; everything else is a rule."""
        name = self.controller.partition(":")[0].partition("@")[0]  # a rule of another package is not needed to show it
        return {"standard": "unit", "constant": "constant"}.get(name, "rule")  # type: ignore[return-value]

    @property
    def every(self) -> int:
        """The refresh interval q."""
        return int(self.control.get("every", 1))

    @property
    def site(self) -> str:
        """`inner` or `outer`."""
        return str(self.control.get("site", "inner"))

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """(H,) the share of puzzles that are right after each loop."""
        share: NDArray[np.float64] = self.correct.mean(0)
        return share

    @property
    def final(self) -> NDArray[np.bool_]:
        """(N,) whether the last answer is right."""
        last: NDArray[np.bool_] = self.correct[:, -1]
        return last

    @property
    def mean_eta(self) -> float:
        """Over puzzles: the constant that belongs beside this policy."""
        return float(np.nanmean(self.eta, dtype=np.float64))
