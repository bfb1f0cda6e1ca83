"""Figures by matplotlib, on a canvas of their own: no display, no global state. Each comes with what it says in words.

They are drawn small, with large type, so that they can be read on a phone and in a paper's column.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from looptaps.evaluation.comparison import Matched
from looptaps.evaluation.statistics import paired
from looptaps.report.policy import Policy
from looptaps.report.style import PALETTE, follow_the_page, looks
from looptaps.report.words import percent, points, times

WIDTH, HEIGHT = 5.0, 3.5  # inches: as many points as a phone is wide
STYLE: Any = {  # matplotlib's own type of this is a literal of every name it knows
    "font.size": 11, "axes.labelsize": 11, "legend.fontsize": 11, "xtick.labelsize": 10, "ytick.labelsize": 10,
    "text.color": PALETTE["ink"].light, "axes.labelcolor": PALETTE["ink"].light,
    "axes.edgecolor": PALETTE["muted"].light, "xtick.color": PALETTE["muted"].light,
    "ytick.color": PALETTE["muted"].light, "xtick.labelcolor": PALETTE["ink"].light,
    "ytick.labelcolor": PALETTE["ink"].light, "grid.color": PALETTE["grid"].light,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
    "axes.facecolor": "none", "legend.frameon": False, "svg.hashsalt": "looptaps", "pdf.fonttype": 42,
}


class Drawing(NamedTuple):
    """A figure and its words: `caption` says what is shown, `alt` what it shows, `columns` and `rows` the numbers."""

    name: str
    figure: Figure
    title: str
    caption: str
    alt: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def accuracy_drawing(policies: list[Policy], band: tuple[float, float] | None = None) -> Drawing:
    """Accuracy by outer loop; `band` is the interval of the baseline's final accuracy."""
    with rc_context(STYLE):
        figure, (axes,) = canvas(1, 1, legend=entries(policies) + (band is not None))
        constants = 0
        for policy in policies:
            look, label = looks(policies)[policy.label], policy.label
            if policy.kind == "constant" and len(policies) > 8:
                label = "_" if constants else "constants"  # one entry for all of them; "_" has none
                constants += 1
            axes.plot(_loops(policy), 100 * policy.accuracy, label=label, color=look.colour, linestyle=look.dash,
                      linewidth=look.width, zorder=3 if policy.kind == "unit" else 2)
        if band is not None:
            axes.axhspan(100 * band[0], 100 * band[1], color=PALETTE["band"].light, zorder=0,
                         label=f"95 % interval of {policies[0].label}")
        axes.set(xlabel="outer loop", ylabel="solved, %")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        legend(figure)
    marks = _marks(max(policy.run.correct.shape[1] for policy in policies))
    rows = [[policy.label, *(percent(policy.accuracy[m - 1]) if m <= len(policy.accuracy) else "" for m in marks)]
            for policy in policies]
    alt = "Share of puzzles solved by outer loop. " + " ".join(
        f"{policy.label}: {percent(policy.accuracy[0])} % after loop 1, {percent(policy.accuracy[-1])} % after loop "
        f"{len(policy.accuracy)}." for policy in policies)
    return Drawing("accuracy", figure, "Accuracy by loop", "Share of puzzles whose answer is right after each outer "
                   "loop.", alt, ["policy", *(f"loop {m}, %" for m in marks)], rows)


def difference_drawing(policies: list[Policy]) -> Drawing | None:
    """Accuracy by outer loop minus the baseline's: what a curve from 0 to 100 % is too coarse for."""
    base, rest = policies[0], policies[1:]
    if not rest:
        return None
    with rc_context(STYLE):
        figure, (axes,) = canvas(1, 1, legend=entries(policies))
        constants = 0
        for policy in rest:
            look, label = looks(policies)[policy.label], policy.label
            if policy.kind == "constant" and len(policies) > 8:
                label = "_" if constants else "constants"
                constants += 1
            axes.plot(_loops(policy), 100 * (policy.accuracy - base.accuracy), label=label, color=look.colour,
                      linestyle=look.dash, linewidth=look.width)
        axes.axhline(0, color=PALETTE["ink"].light, linewidth=1.2, label=base.label)
        axes.set(xlabel="outer loop", ylabel=f"solved minus {_short(base.label)}'s, points")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        legend(figure)
    marks = _marks(base.run.correct.shape[1])
    rows = [[policy.label, *(f"{100 * (policy.accuracy[m - 1] - base.accuracy[m - 1]):+.2f}" for m in marks)]
            for policy in rest]
    alt = f"Share solved minus that of {base.label}, in points, by outer loop. " + " ".join(
        f"{row[0]}: {row[1]} after loop 1, {row[-1]} after loop {marks[-1]}." for row in rows)
    return Drawing("difference", figure, "Difference by loop", f"Share of puzzles solved after each outer loop minus "
                   f"{base.label}'s, in points. Intervals for the last loop are in the table above.", alt,
                   ["policy", *(f"loop {m}" for m in marks)], rows)


def eta_drawing(policies: list[Policy]) -> Drawing | None:
    """Step size by loop: the median over puzzles, and where the middle half and 90 % of them lie."""
    rules = [policy for policy in policies if policy.kind == "rule"]
    if not rules:
        return None
    columns = min(2, len(rules))
    with rc_context(STYLE):
        figure, panels = canvas(-(-len(rules) // columns), columns, legend=0, share="xy")
        for axes, policy in zip(panels, rules):
            look = looks(policies)[policy.label]
            q05, q25, q50, q75, q95 = _quantiles(policy)
            axes.fill_between(_loops(policy), q05, q95, color=look.colour, alpha=0.18, linewidth=0)
            axes.fill_between(_loops(policy), q25, q75, color=look.colour, alpha=0.32, linewidth=0)
            axes.plot(_loops(policy), q50, color=look.colour, linewidth=1.6)
            axes.axhline(1, color=PALETTE["muted"].light, linewidth=0.9, linestyle=(0, (3, 2)))
            axes.set_title(_short(policy.label), fontsize=10, color=PALETTE["ink"].light)
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        for axes in panels[len(rules):]:
            axes.set_visible(False)
        figure.supxlabel("outer loop", fontsize=10)
        figure.supylabel("eta", fontsize=10)
    rows, words = [], []
    for policy in rules:
        quantiles = _quantiles(policy)
        for m in _marks(policy.run.correct.shape[1]):
            if np.isfinite(quantiles[2][m - 1]):
                rows.append([policy.label, str(m), *(f"{q[m - 1]:.3f}" for q in quantiles)])
        last = np.flatnonzero(np.isfinite(quantiles[2]))[-1]
        words.append(f"{policy.label}: median {quantiles[2][0]:.2f} in loop 1, {quantiles[2][last]:.2f} in loop "
                     f"{last + 1}, where 90 % of puzzles lie between {quantiles[0][last]:.2f} and "
                     f"{quantiles[4][last]:.2f}.")
    return Drawing("eta", figure, "Step sizes", "Mean eta of each outer loop, across all puzzles that were still "
                   "running: median, middle half (dark) and 90 % (light). The dashed line is the unit step.",
                   "Step size by outer loop. " + " ".join(words),
                   ["policy", "loop", "5 %", "25 %", "median", "75 %", "95 %"], rows)


def refresh_drawing(policies: list[Policy], matched: Mapping[str, Matched]) -> Drawing | None:
    """Accuracy against speedup for the refresh interval q: a line for all that differ in q alone."""
    families: dict[str, list[Policy]] = {}
    for policy in policies:
        if policy.kind == "rule":
            families.setdefault(policy.all_but_every, []).append(policy)
    shown = [sorted(family, key=lambda policy: policy.every) for family in families.values()
             if len({policy.every for policy in family}) > 1]
    at = {policy.label: speed for family in shown for policy in family
          if (speed := matched[policy.label].speedup) is not None}
    if not at:
        return None
    with rc_context(STYLE):
        figure, (axes,) = canvas(1, 1, legend=len(at))
        for family in shown:
            reached = [policy for policy in family if policy.label in at]
            places = [(at[policy.label], 100 * policy.accuracy[-1]) for policy in reached]
            axes.plot([x for x, _ in places], [y for _, y in places], color=PALETTE["muted"].light, linewidth=0.9)
            for index, (policy, place) in enumerate(zip(reached, places)):
                colour = looks(policies)[policy.label].colour
                inside = PALETTE["paper"].light if matched[policy.label].timing == "separate" else colour
                axes.plot(*place, "o", color=colour, markerfacecolor=inside, markersize=7, label=policy.label)
                axes.annotate(f"q={policy.every}", place, textcoords="offset points",
                              xytext=(6, (6, -14)[index % 2]))
        axes.margins(x=0.15, y=0.18)
        axes.set(xlabel=f"speedup at the final accuracy of {_short(policies[0].label)}", ylabel="solved, %")
        legend(figure)
    rows = [[policy.label, str(policy.every), percent(policy.accuracy[-1]), times(matched[policy.label])]
            for family in shown for policy in family]
    hollow = any(matched[label].timing == "separate" for label in at)
    return Drawing("refresh", figure, "How often the rule looks",
                   "Accuracy after the last loop against speedup, for each refresh interval q (between refreshes eta "
                   "is held). A line joins policies that differ in q alone."
                   + " Hollow (~ in the table): timed in a separate call, so what else the machine did may show."
                   * hollow,
                   "Accuracy against speedup by refresh interval. " + " ".join(
                       f"{label}, q = {q}: {solved} %, speedup {speed}." for label, q, solved, speed in rows),
                   ["policy", "q", "solved, %", "speedup [95 %]"], rows)


def site_drawing(pairs: Sequence[tuple[Policy, Policy]], policies: list[Policy]) -> Drawing | None:
    """Inner control (solid) against outer (dashed), for every rule that was run both ways."""
    if not pairs:
        return None
    with rc_context(STYLE):
        figure, (axes,) = canvas(1, 1, legend=2 * len(pairs))
        for inner, outer in pairs:
            look = looks(policies)[inner.label]
            axes.plot(_loops(inner), 100 * inner.accuracy, color=look.colour, linewidth=1.6, label=inner.label)
            axes.plot(_loops(outer), 100 * outer.accuracy, color=look.colour, linewidth=1.6, linestyle=(0, (4, 1.5)),
                      label=outer.label)
        axes.set(xlabel="outer loop", ylabel="solved, %")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        legend(figure)
    rows = [[f"{inner.label} against {outer.label}", percent(inner.accuracy[-1]), percent(outer.accuracy[-1]),
             points(paired(outer.run.final, inner.run.final))] for inner, outer in pairs]
    alt = "Inner against outer control. " + " ".join(f"{r[0]}: inner {r[1]} %, outer {r[2]} %, inner minus outer "
                                                     f"{r[3]} points." for r in rows)
    return Drawing("site", figure, "Inner against outer control", "The same rule, scaling every z_L update (inner, "
                   "solid) or a whole cycle by what z_H did (outer, dashed).", alt,
                   ["policies", "inner, %", "outer, %", "inner minus outer, points [95 %]"], rows)


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write a figure; the ending says as what (png, svg, pdf). Two runs write the same bytes."""
    path = Path(path)
    with rc_context(STYLE):
        metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix)
        figure.savefig(path, dpi=150, metadata=metadata)
    return path


def svg_text(drawing: Drawing) -> str:
    """A figure as one `<svg>` element with real text, in the page's colours; for a page that needs nothing else."""
    buffer = io.StringIO()
    with rc_context({**STYLE, "svg.fonttype": "none"}):
        drawing.figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = follow_the_page(text[text.index("<svg"):])
    text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)  # it would hold for the whole page
    # Names are unique on a page, and matplotlib begins with "figure_1" in every figure.
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{drawing.name}-", text)


def canvas(rows: int, columns: int, *, legend: int, share: str = "") -> tuple[Figure, list[Axes]]:
    height = HEIGHT if rows == 1 else 1.9 * rows + 0.4
    figure = Figure(figsize=(WIDTH, height + 0.22 * -(-legend // 2)), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex="x" in share, sharey="y" in share)
    return figure, list(grid.flat)


def entries(policies: list[Policy]) -> int:
    constants = sum(policy.kind == "constant" for policy in policies)
    return len(policies) - (constants - 1 if constants and len(policies) > 8 else 0)


def legend(figure: Figure) -> None:
    """Below the figure: two columns (for which `canvas` leaves room), or one where a name is too long for that."""
    labels = figure.axes[0].get_legend_handles_labels()[1]
    if labels:
        columns = 2 if max(map(len, labels)) <= 22 else 1
        figure.set_figheight(figure.get_figheight() + 0.22 * (len(labels) - -(-len(labels) // 2)) * (columns == 1))
        figure.legend(loc="outside lower center", ncols=columns)


def _quantiles(policy: Policy) -> Any:
    values = np.asarray(policy.run.eta_by_loop, np.float64)
    running = np.isfinite(values).any(0)
    found = np.full((5, values.shape[1]), np.nan)
    found[:, running] = np.nanquantile(values[:, running], [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)
    return found


def _loops(policy: Policy) -> range:
    return range(1, policy.run.correct.shape[1] + 1)


def _marks(loops: int) -> list[int]:
    """A few loops for a table: 1, 2, 4, 8, ... and the last."""
    return sorted({*(2**i for i in range(loops.bit_length()) if 2**i <= loops), loops})


def _short(label: str) -> str:
    return label if len(label) <= 28 else label[:27] + "…"
