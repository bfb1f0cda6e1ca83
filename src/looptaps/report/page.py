"""One self-contained page for a comparison of policies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jinja2
from markupsafe import Markup

from looptaps.evaluation.policies import PolicyRow
from looptaps.report.figures import accuracy_figure, svg_text
from looptaps.report.tables import COLUMNS, cells

TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
:root { color-scheme: light dark; --line: #8884; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1rem 0; }
caption { text-align: left; padding-bottom: .5rem; }
th, td { padding: .3rem .5rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1rem 0; background: white; padding: .5rem; border-radius: .5rem; }
figure svg { width: 100%; height: auto; }
.verdict { font-size: 1.15rem; }
</style>
</head>
<body>
<main>
<h1>{{ title }}</h1>
<p class="verdict">{{ verdict }}</p>
{% for note in notes %}<p>{{ note }}</p>
{% endfor %}
<div class="scroll" tabindex="0" role="region" aria-label="Table of policies">
<table>
<caption>{{ caption }}</caption>
<thead><tr>{% for column in columns %}<th scope="col">{{ column }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in rows %}<tr><th scope="row">{{ row[0] }}</th>{% for cell in row[1:] %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</tbody>
</table>
</div>
<figure role="img" aria-label="Accuracy by outer loop, and mean eta by outer loop, for every policy in the table">
{{ figure }}
</figure>
</main>
</body>
</html>
"""


def comparison_page(
    path: str | Path, rows: list[PolicyRow], *, title: str, verdict: str, caption: str, notes: Sequence[str] = ()
) -> Path:
    """Write the page; it loads nothing from anywhere."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    figure = Markup(svg_text(accuracy_figure(rows, "")))  # our own drawing, not anybody's text
    text = environment.from_string(TEMPLATE).render(
        title=title, verdict=verdict, caption=caption, notes=notes, columns=COLUMNS,
        rows=[cells(row) for row in rows], figure=figure,
    )
    path = Path(path)
    path.write_text(text, encoding="utf-8")
    return path
