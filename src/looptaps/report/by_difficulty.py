"""Accuracy and compute by difficulty, as numbers and as a figure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib import rc_context
from numpy.typing import NDArray

from looptaps.evaluation.statistics import proportion
from looptaps.report.figures import STYLE, Drawing, canvas, entries, legend
from looptaps.report.policy import Policy
from looptaps.report.style import looks

PREFERRED = ("rating", "path_length", "empty")
BINS = 4


class Bin(NamedTuple):
    """A range of difficulties, and which puzzles lie in it."""

    name: str
    rows: NDArray[np.bool_]


def bins(policy: Policy) -> tuple[str, list[Bin]] | None:
    """The field that tells the puzzles apart best, and up to four ranges of it that hold about as many puzzles each."""
    fields = [name for name in (*PREFERRED, *policy.run.difficulty) if name in policy.run.difficulty]
    for name in fields:
        values = np.asarray(policy.run.difficulty[name], np.float64)
        if not np.isfinite(values).all() or len(np.unique(values)) < 2:
            continue
        edges = np.unique(np.quantile(values, np.linspace(0, 1, BINS + 1)[1:-1], method="higher"))
        place = np.searchsorted(edges, values, side="left")
        found = []
        for index in np.unique(place):
            rows = place == index
            low, high = values[rows].min(), values[rows].max()
            found.append(Bin(f"{low:g}" if low == high else f"{low:g} to {high:g}", rows))
        return name, found
    return None


def difficulty_drawing(policies: list[Policy]) -> Drawing | None:
    """Share solved (with 95 % intervals) and mean effective updates in each range; None if difficulty is unknown."""
    found = bins(policies[0])
    if found is None:
        return None
    field, ranges = found
    shown = [policy for policy in policies if policy.kind != "constant" or len(policies) <= 6]
    spread = 0.5 / max(len(shown) - 1, 1)
    rows = []
    with rc_context(STYLE):
        figure, (above, below) = canvas(2, 1, legend=entries(shown), share="x")
        for index, policy in enumerate(shown):
            look = looks(policies)[policy.label]
            shares = [proportion(policy.run.final[part.rows]) for part in ranges]
            updates = [float(policy.run.updates[part.rows].mean()) for part in ranges]
            xs = np.arange(len(ranges)) + (index * spread - 0.25 if len(shown) > 1 else 0.0)
            values = np.array([share.value for share in shares])
            errors = [[share.value - share.low for share in shares], [share.high - share.value for share in shares]]
            above.errorbar(xs, 100 * values, yerr=100 * np.array(errors), fmt="o", markersize=4, capsize=2,
                           linewidth=1.2, color=look.colour, label=policy.label)
            below.plot(xs, updates, "o", markersize=4, color=look.colour)
            rows += [[policy.label, part.name, str(int(part.rows.sum())),
                      f"{100 * share.value:.1f} [{100 * share.low:.1f}, {100 * share.high:.1f}]", f"{mean:,.0f}"]
                     for part, share, mean in zip(ranges, shares, updates, strict=True)]
        above.set_ylabel("solved, %")
        below.set_ylabel("updates")
        below.set_ylim(bottom=0)
        below.set_xlabel(f"difficulty: {field}")
        below.set_xticks(range(len(ranges)), [part.name for part in ranges])
        legend(figure)
    alt = f"Share solved by difficulty ({field}). " + " ".join(
        f"{policy.label}: {share[0][3].split()[0]} % of the easiest ({share[0][1]}), {share[-1][3].split()[0]} % of "
        f"the hardest ({share[-1][1]}), where it spent {share[-1][4]} updates." for policy in shown
        for share in [[row for row in rows if row[0] == policy.label]])
    return Drawing("difficulty", figure, "By difficulty", f"Share of puzzles solved, with 95 % intervals, and mean "
                   f"effective updates, in ranges of {field} that hold about as many puzzles each.", alt,
                   ["policy", field, "puzzles", "solved, % [95 %]", "mean updates"], rows)
