"""Figures by matplotlib, on a canvas of their own: no display, no global state."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from looptaps.evaluation.policies import UNIT, PolicyRow

# Colour-blind safe (Okabe and Ito); the unit step is black, constants are grey.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")


def accuracy_figure(rows: list[PolicyRow], title: str) -> Figure:
    """Accuracy by loop, and the mean eta by loop under it."""
    figure = Figure(figsize=(8, 6.5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    colours, constants = iter(COLOURS), 0
    for row in rows:
        label = row.name
        loops = range(1, len(row.curve.accuracy) + 1)
        if row.name == UNIT:
            style = {"color": "black", "linewidth": 2.2}
        elif row.constant is None:
            style = {"color": "0.6", "linestyle": "--", "linewidth": 1.2}
            label = "_" if constants else "constants at the rules' mean etas"  # one entry for all; "_" has none
            constants += 1
        else:
            style = {"color": next(colours, "0.3"), "linewidth": 1.4}
        above.plot(loops, [100 * share for share in row.curve.accuracy], label=label, **style)
        below.plot(loops, row.curve.eta.mean(0), **style)
    low, high = 100 * rows[0].accuracy.low, 100 * rows[0].accuracy.high
    above.axhspan(low, high, color="0.92", label="95 % interval of the unit step", zorder=0)
    above.set(ylabel="solved, %", title=title)
    above.legend(fontsize=8, ncols=2)
    below.set(xlabel="outer loop", ylabel="mean eta")
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in (above, below):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write a figure; the ending says as what (png, svg, pdf)."""
    path = Path(path)
    figure.savefig(path, dpi=150)
    return path


def svg_text(figure: Figure) -> str:
    """A figure as one `<svg>` element, for a page that needs nothing else."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    text = buffer.getvalue()
    return text[text.index("<svg"):]
