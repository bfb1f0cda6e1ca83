"""One self-contained page for a comparison of policies: it loads nothing and needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import jinja2
from markupsafe import Markup

import looptaps
from looptaps.evaluation.comparison import Comparison
from looptaps.report.by_difficulty import difficulty_drawing
from looptaps.report.figures import (
    Drawing,
    accuracy_drawing,
    difference_drawing,
    eta_drawing,
    refresh_drawing,
    save_figure,
    site_drawing,
    svg_text,
)
from looptaps.report.player import player_data, script_text
from looptaps.report.policy import Policy
from looptaps.report.style import css_variables
from looptaps.report.summary import verdict
from looptaps.report.tables import (
    FACTS,
    accuracy_cells,
    accuracy_columns,
    caption,
    compute_cells,
    compute_columns,
    facts,
)

TRACED = 200  # puzzles in the player at most: what keeps a page of a dozen policies under 3 MB


def drawings(comparison: Comparison, policies: list[Policy]) -> list[Drawing]:
    """All figures that these policies have something for; the policies in the comparison's order."""
    base = comparison.rows[0]
    band = (base.accuracy.low, base.accuracy.high) if len(policies) > 1 else None
    known = {policy.label: policy for policy in policies}
    pairs = [(known[pair.b], known[pair.a]) for pair in comparison.pairs if pair.against == "site"]
    found = [
        accuracy_drawing(policies, band),
        difference_drawing(policies),
        eta_drawing(policies),
        difficulty_drawing(policies),
        refresh_drawing(policies, {row.name: row.matched for row in comparison.rows}),
        site_drawing(pairs, policies),
    ]
    return [drawing for drawing in found if drawing is not None]


def write_page(
    path: str | Path, comparison: Comparison, policies: list[Policy], figures: Sequence[Drawing], *, title: str,
    notes: Sequence[str] = (), traced: int = TRACED
) -> Path:
    """Write the page.

    Args:
        path: of the HTML file.
        comparison: of the policies' runs.
        policies: in the comparison's order (`policies_of`).
        figures: of `drawings`.
        title: of the page.
        notes: paragraphs below the verdict.
        traced: for how many puzzles the player has boards.
    """
    here = files(__package__)
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    data = player_data(policies, traced)
    # Marked as safe: our own drawings and files, and JSON without any "<".
    text = environment.from_string((here / "page.html.j2").read_text(encoding="utf-8")).render(
        version=looptaps.__version__, title=title, verdict=verdict(comparison), notes=notes, base=comparison.base,
        caption=caption(comparison), drawings=figures,
        accuracy_columns=accuracy_columns(comparison),
        accuracy_rows=[accuracy_cells(comparison, row) for row in comparison.rows],
        compute_columns=compute_columns(comparison), compute_rows=[compute_cells(row) for row in comparison.rows],
        fact_columns=FACTS, fact_rows=[facts(policy) for policy in policies],
        svg=lambda drawing: Markup(svg_text(drawing)), css=Markup((here / "page.css").read_text(encoding="utf-8")),
        light=Markup(css_variables(dark=False)), dark=Markup(css_variables(dark=True)),
        thinned=1 if data is None else max(run["thinned"] for run in data["runs"]),
        player=None if data is None else Markup(script_text(data)),
        script=Markup((here / "player.js").read_text(encoding="utf-8")),
    )
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def write_figures(folder: str | Path, figures: Sequence[Drawing], kinds: Sequence[str]) -> list[Path]:
    """Each figure as a file of each kind ("svg", "pdf", "png"), for papers."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return [save_figure(drawing.figure, folder / f"{drawing.name}.{kind}") for drawing in figures for kind in kinds]
