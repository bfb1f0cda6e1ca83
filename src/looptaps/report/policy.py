"""One policy of a report: a run and the name it has on the page.

N puzzles, H loops, n traced puzzles, U decisions of the controller, cells of a board.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from looptaps.evaluation.compare import kind_of
from looptaps.evaluation.comparison import Comparison, Kind
from looptaps.evaluation.records import Run

STOPPED = 255  # a board after its sample stopped, and a label that is not scored


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
        run: what was measured.
    """

    label: str
    run: Run

    @property
    def kind(self) -> Kind:
        """`unit` and `constant` have a fixed step; everything else is a rule."""
        return kind_of(self.run)

    @property
    def every(self) -> int:
        """The refresh interval q."""
        return int(self.run.meta["control"]["every"])

    @property
    def all_but_every(self) -> str:
        """All of a policy but q: equal texts may be joined by a line over q."""
        meta = self.run.meta
        control = {name: value for name, value in meta["control"].items() if name != "every"}
        return json.dumps([meta["controller"], control, meta["strategy"], meta["model"]["sha256"], meta["refill"]],
                          sort_keys=True)

    @property
    def task(self) -> str:
        """The task's registered name, such as "sudoku"."""
        return str(self.run.meta["task"]["name"])

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """(H,) the share of puzzles that are right after each loop."""
        return np.asarray(self.run.accuracy)

    @property
    def traces(self) -> Traces | None:
        """Some puzzles in full, if they were recorded."""
        found = self.run.traces
        return None if found is None else Traces(*(found[name] for name in Traces._fields))


def policies_of(runs: Mapping[str, Run], comparison: Comparison) -> list[Policy]:
    """The runs under their names, in the comparison's order."""
    return [Policy(row.name, runs[row.name]) for row in comparison.rows]
