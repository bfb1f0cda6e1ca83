"""A comparison of policies as rows of text, the same in the terminal and on the page."""

from __future__ import annotations

from looptaps.evaluation.policies import UNIT, PolicyRow
from looptaps.evaluation.statistics import Interval, Paired

COLUMNS = (
    "policy",
    "solved % [95 %]",
    "minus unit, points",
    "Holm p",
    "minus constant at mean eta",
    "loops to unit's",
    "mean eta",
)


def cells(row: PolicyRow) -> tuple[str, ...]:
    """One policy as the columns show it; N/R: unit's final accuracy was not reached."""
    return (
        row.name,
        _share(row.accuracy),
        "" if row.to_unit is None else _points(row.to_unit),
        "" if row.p_unit is None else f"{row.p_unit:.2g}",
        "" if row.to_constant is None or row.constant is None
        else f"{_points(row.to_constant)} to {row.constant.removeprefix('constant ')}",
        ("" if row.name == UNIT else "N/R") if row.loops is None else str(row.loops),
        f"{row.curve.mean_eta:.3f}",
    )


def _share(found: Interval) -> str:
    return f"{100 * found.value:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def _points(found: Paired) -> str:
    return f"{100 * found.difference:+.2f} [{100 * found.low:.2f}, {100 * found.high:.2f}]"
