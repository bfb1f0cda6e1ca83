"""One self-contained page for a comparison of policies: it loads nothing and needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import jinja2
from markupsafe import Markup

import looptaps
from looptaps.report.by_difficulty import difficulty_drawing
from looptaps.report.figures import (
    Drawing,
    accuracy_drawing,
    eta_drawing,
    refresh_drawing,
    save_figure,
    site_drawing,
    svg_text,
)
from looptaps.report.player import player_data, script_text
from looptaps.report.style import css_variables
from looptaps.report.summary import Row, site_pairs
from looptaps.report.tables import COLUMNS, FACTS, cells, facts

TRACED = 200  # puzzles in the player at most: what keeps a page of a dozen policies under 3 MB


def drawings(rows: Sequence[Row]) -> list[Drawing]:
    """All figures that these policies have something for."""
    policies = [row.policy for row in rows]
    base = rows[0]
    band = (base.accuracy.low, base.accuracy.high) if len(rows) > 1 else None
    points = [(row.policy.label, row.policy.every, row.accuracy.value, row.speedup) for row in rows
              if row.policy.kind == "rule"]
    several = len({point[1] for point in points}) > 1
    pairs = site_pairs(policies)
    found = [
        accuracy_drawing(policies, band),
        eta_drawing(policies),
        difficulty_drawing(policies),
        refresh_drawing(points, policies, base.policy.label) if several else None,
        site_drawing(pairs, policies),
    ]
    return [drawing for drawing in found if drawing is not None]


def write_page(
    path: str | Path, rows: Sequence[Row], figures: Sequence[Drawing], *, title: str, verdict: str, caption: str,
    notes: Sequence[str] = (), traced: int = TRACED
) -> Path:
    """Write the page.

    Args:
        path: of the HTML file.
        rows: the comparison, the baseline first.
        figures: of `drawings`.
        title: of the page.
        verdict: what was found, in a sentence.
        caption: of the comparison's table.
        notes: paragraphs below the verdict.
        traced: for how many puzzles the player has boards.
    """
    policies = [row.policy for row in rows]
    here = files(__package__)
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    data = player_data(policies, traced)
    # Marked as safe: our own drawings and files, and JSON without any "<".
    text = environment.from_string((here / "page.html.j2").read_text(encoding="utf-8")).render(
        version=looptaps.__version__, title=title, verdict=verdict, notes=notes, base=policies[0].label,
        caption=caption, columns=COLUMNS, rows=[cells(row) for row in rows], drawings=figures,
        fact_columns=FACTS, fact_rows=[facts(policy) for policy in policies],
        svg=lambda drawing: Markup(svg_text(drawing)), css=Markup((here / "page.css").read_text(encoding="utf-8")),
        light=Markup(css_variables(dark=False)), dark=Markup(css_variables(dark=True)),
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
