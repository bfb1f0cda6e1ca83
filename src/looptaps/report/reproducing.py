"""The page of all claims: what the paper says, what our runs show, by what command. Every number is from a record.

A record is `<folder>/small/<recipe>.json` (`looptaps reproduce --record`); larger runs beside it are comparisons in
`<folder>/<name>.json` or in the package (`looptaps.evaluation.shipped`), by the name that a cell gives as `recorded`.
The last section shows the records of `benchmarks/`.
"""

from __future__ import annotations

from pathlib import Path

from looptaps.evaluation.comparison import Comparison, read_comparison
from looptaps.evaluation.recipe_record import RecipeRecord, TextTable, read_record
from looptaps.evaluation.recipes import Found, Outside, load_recipe, recipe_names
from looptaps.evaluation.shipped import shipped, shipped_names
from looptaps.report.recorded import LAYOUTS, record_tables
from looptaps.report.summary import verdict
from looptaps.report.tables import caption, cells, columns, md_table
from looptaps.report.words import share

INTRO = """\
<!-- Written by `looptaps reproduce --record benchmarks/results --page docs/reproducing.md`. Do not edit it by hand. -->

# Reproducing the paper

Every claim of the paper, and what runs of this package show. Our models are small ones of our own and the puzzles few,
so these rows test directions, not the paper's figures; the full-size recipes are the paper's protocol, for those who
have its checkpoints and a GPU. All numbers on this page are copied from records in `benchmarks/results` and in the
package. Intervals are 95 %, differences are paired by puzzle, and "significantly" is McNemar's exact test after Holm's
correction. An adaptive rule stands beside the constant at its own mean eta: where that does as well, the gain is the
scale, not the adapting. What a measurement is, and how to make one: [Evidence](evidence.md).

<!-- not run: it takes up to ninety minutes -->
```sh
looptaps reproduce --small --all
```

"""


def page_text(recipes: Path, records: Path) -> str:
    """The whole page.

    Args:
        recipes: the folder of the recipes.
        records: the folder that holds `small/*.json` and larger runs.
    """
    found = [load_recipe(name, recipes) for name in recipe_names(recipes)]
    made = {one.name: read_record(path) for one in found
            if (path := records / "small" / f"{one.name}.json").exists()}
    heads = ("recipe", "the paper says", "our small run", "status", "commit", "larger runs")
    summary = md_table(heads, [(*_row(one, made.get(one.name)), _larger(one, records)) for one in found])
    sections = [_section(one, made.get(one.name), records) for one in found]
    shown = {name for one in found if one.recipe.outside is not None for name in one.recipe.outside.recorded}
    return INTRO + summary + "\n" + "\n".join(sections) + _benchmarks(records, shown)


def _row(found: Found, record: RecipeRecord | None) -> tuple[str, ...]:
    recipe = found.recipe
    name = f"[{found.name}](#{found.name})"
    if recipe.outside is not None:
        smaller = "see the smaller model below" if recipe.outside.recorded else ""
        return name, recipe.says, smaller, f"not run: {recipe.outside.reason}", ""
    if record is None:
        return name, recipe.says, "", "no record yet", ""
    told = [(cell.title, *outcome(record.comparisons[cell.name])) for cell in recipe.cell
            if cell.name in record.comparisons and cell.run]
    shows = " ".join(f"{title}: {text}" for title, text, _ in told) or "see the table"
    words = list(dict.fromkeys(status for _, _, status in told))
    status = words[0] if len(words) == 1 else "; ".join(f"{title}: {word}" for title, _, word in told) or "shown"
    commit = (record.commit or "unknown")[:10] + (" with changes" if record.changed else "")
    return name, recipe.says, shows, status, commit


def _larger(found: Found, records: Path) -> str:
    told = []
    for name in [name for cell in found.recipe.cell for name in cell.recorded]:
        larger = recorded(name, records)
        if larger is not None:
            text, status = outcome(larger)
            told.append(f"{larger.title or name}: {text[:-1]} ({status}).")
    return " ".join(told)


def outcome(found: Comparison) -> tuple[str, str]:
    """What a comparison shows of the claim, in a sentence and in a word.

    Where a rule was run inside and outside, the claim is that inside is better; where runs stop early, that they are
    not worse for less; else that rules are better than the baseline.
    """
    rules = {row.name: row for row in found.rows if row.kind == "rule"}
    if not rules:
        return f"{share(found.rows[0].accuracy)} %.", "shown"
    site = [pair for pair in found.pairs if pair.against == "site" and pair.b in rules]
    pairs = site or [pair for pair in found.pairs if pair.against == "baseline" and pair.b in rules]
    better, worse = (sum(pair.verdict == word for pair in pairs) for word in ("better", "worse"))
    low, high = min(pair.difference for pair in pairs), max(pair.difference for pair in pairs)
    than = "inner against outer control" if site else f"against {found.base}"
    text = (f"{than}, {better} of {len(pairs)} rules significantly better and {worse} worse ({100 * low:+.1f} to "
            f"{100 * high:+.1f} points, n = {found.facts.puzzles:,}).")
    cost = max(row.updates for row in rules.values()) / found.rows[0].updates
    if cost < 0.9 and not site:
        return f"{text[:-1]}, at {100 * cost:.0f} % of its updates.", "not reproduced" if worse else "reproduced"
    if better == len(pairs):
        return text, "reproduced"
    return text, "in part" if better and not worse else "not reproduced"


def _section(found: Found, record: RecipeRecord | None, records: Path) -> str:
    recipe = found.recipe
    lines = [f"## {found.name}", "", f"**{recipe.title}** (`{recipe.paper}`). The paper: {recipe.says}", ""]
    lines += [f"- {note}" for note in recipe.notes] + [""] * bool(recipe.notes)
    if recipe.outside is not None:
        lines += [f"Not run: {recipe.outside.reason}.", ""]
        if recipe.outside.command:
            lines += [f"With those at hand: `{recipe.outside.command}`", ""]
        lines += _tables("### On a smaller model:", outside_tables(recipe.outside, records))
        return "\n".join(lines)
    if record is None:
        lines += [f"No record yet. `looptaps reproduce {found.name} --small` makes one.", ""]
    else:
        older = "" if record.recipe_sha256 == found.sha256 else " The recipe has been changed since."
        lines += [f"`{record.command}`, {record.finished[:10]}, {record.seconds / 60:.1f} minutes.{older}", ""]
        lines += _tables("###", list(record.tables))
        for cell in recipe.cell:
            if cell.run and cell.name in record.comparisons:
                lines += [f"{cell.title}: {verdict(record.comparisons[cell.name])}", ""]
    for cell in recipe.cell:
        for name in cell.recorded:
            larger = recorded(name, records)
            if larger is not None:
                lines += [f"### Larger run beside it: {larger.title or cell.title}", "",
                          md_table(columns(larger), [cells(larger, row) for row in larger.rows]), caption(larger), "",
                          verdict(larger), ""]
    return "\n".join(lines)


def _benchmarks(records: Path, shown: set[str]) -> str:
    """What the scripts of `benchmarks/` measured, apart from what stands beside a recipe."""
    there = [name for name in LAYOUTS if name not in shown and (records / f"{name}.json").exists()]
    if not there:
        return ""
    lines = ["", "## Measurements of our own", "", "No table of the paper: each is the record of `benchmarks/<name>.py "
             "--full`.", ""]
    for name in there:
        lines += _tables("###", record_tables(records / f"{name}.json"))
    return "\n".join(lines)


def _tables(level: str, tables: list[TextTable]) -> list[str]:
    lines = []
    for table in tables:
        lines += [f"{level} {table.title}", "", md_table(table.columns, table.rows)]
        lines += [table.caption, ""] if table.caption else []
    return lines


def outside_tables(outside: Outside, records: Path) -> list[TextTable]:
    """The records on smaller models that are there."""
    paths = [records / f"{name}.json" for name in outside.recorded]
    return [table for path in paths if path.exists() for table in record_tables(path)]


def recorded(name: str, records: Path) -> Comparison | None:
    """The larger run of that name: in the records' folder, or in the package; None if there is none."""
    path = records / f"{name}.json"
    if path.exists():
        return read_comparison(path)
    return shipped(name) if name in shipped_names() else None
