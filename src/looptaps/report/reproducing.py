"""The page of all claims: what the paper says, what our runs show, by what command. Every number is from a record.

A record is `<folder>/small/<recipe>.json` (`looptaps reproduce --record`); larger runs beside it are comparisons or
records of `benchmarks/` in `<folder>/<name>.json`, or comparisons in the package (`looptaps.evaluation.shipped`), by
the names that a cell gives as `recorded`. The last section shows the records of `benchmarks/` that are beside nothing.
"""

from __future__ import annotations

from pathlib import Path

from looptaps.errors import unknown
from looptaps.evaluation.comparison import Comparison, read_comparison
from looptaps.evaluation.recipe_record import RecipeRecord, TextTable, read_record
from looptaps.evaluation.recipes import Cell, Found, Outside, load_recipe, recipe_names
from looptaps.evaluation.shipped import shipped, shipped_names
from looptaps.report.claims import outcome
from looptaps.report.recorded import LAYOUTS, made_by, record_tables
from looptaps.report.summary import verdict
from looptaps.report.tables import caption, cells, columns, md_table

INTRO = """\
<!-- Written by `looptaps reproduce --record benchmarks/results --page docs/reproducing.md`. Do not edit it by hand. -->

# Reproducing the paper

Every claim of the paper, and what runs of this package show. Our models are small ones of our own and the puzzles few,
so these rows test directions, not the paper's figures; the full-size recipes are the paper's protocol, for those who
have its checkpoints and a GPU. All numbers on this page are copied from records in `benchmarks/results` and in the
package. Intervals are 95 %, differences are paired by puzzle, and "significantly" is McNemar's exact test after Holm's
correction. An adaptive rule stands beside the constant at its own mean eta: where that does as well, the gain is the
scale, not the adapting. What a measurement is, and how to make one: [Evidence](evidence.md).

**reproduced**: every rule does what is claimed, significantly (where the claim is to be no worse: the interval ends at
most a point below). **in part**: some do. **not reproduced**: none does, and for some the interval excludes the paper's
own gain (a point, where the paper has no number). **undecided**: the puzzles are too few to say. **shown**: nothing is
claimed of it that could be judged. **not run**: not runnable without what is named.

<!-- not run: it takes up to ninety minutes -->
```sh
looptaps reproduce --small --all
```

Runs, records and the figures of figure recipes (SVG, PDF) go below `runs/reproduce`; what is there is not run again.

"""
FULL = """\
## Full size

`looptaps reproduce table-main`, without `--small`, is the paper's protocol. Paths are below the folder you are in; a
file elsewhere needs another `model` or `task` in the recipe.

- **Sudoku TRM** (MLP variant, step 65,100), in `checkpoints/sudoku/step_65100` with its `all_config.yaml`: trained by
  TRM's README. The paper's own file is not public; Sanjin2024/TinyRecursiveModels-Sudoku-Extreme-mlp has another step.
- **Maze TRM**, in `checkpoints/maze/step_9765` with its `all_config.yaml`: Sanjin2024/TinyRecursiveModel-Maze-Hard.
  Every public Maze checkpoint has L_cycles 4; the paper says 6.
- **FPRM**, in `checkpoints/fprm-sudoku`: it publishes no checkpoints, so train one. We stop at 1,000 iterations, its
  released cap; the paper's maximum of 25,838 updates must have run without.
- **Sudoku-Extreme**, in `sudoku-extreme/test.csv`: the dataset sapientinc/sudoku-extreme.
- **Maze-Hard**, in `data/maze-30x30-hard-1k/test`: sapientinc/maze-30x30-hard-1k, as TRM's dataset script writes it.
- **Language benchmarks**, in `my-benchmark-files`: [these files](language-models.md#evaluate); `jq` reads
  the mean etas.

"""


def page_text(recipes: Path, records: Path) -> str:
    """The whole page.

    Args:
        recipes: the folder of the recipes.
        records: the folder that holds `small/*.json` and larger runs.
    """
    found = [load_recipe(name, recipes) for name in recipe_names(recipes)]
    for one in found:
        check_recorded(one, records)
    made = {one.name: read_record(path) for one in found
            if (path := records / "small" / f"{one.name}.json").exists()}
    heads = ("recipe", "the paper says", "our small run", "status", "command", "commit", "larger runs")
    summary = md_table(heads, [(*_row(one, made.get(one.name), records), _larger(one, records)) for one in found])
    shown: dict[str, str] = {}
    sections = [_section(one, made.get(one.name), records, shown) for one in found]
    return (INTRO + _took(list(made.values())) + summary + "\n" + FULL + "\n".join(sections)
            + _benchmarks(records, set(shown)))


def check_recorded(found: Found, records: Path) -> None:
    """Refuse a recipe that names a record which nothing makes."""
    outside = found.recipe.outside
    names = [name for cell in found.recipe.cell for name in cell.recorded] + list(outside.recorded if outside else ())
    known = sorted({*LAYOUTS, *shipped_names(), *(path.stem for path in records.glob("*.json"))})
    for name in names:
        if name not in known:
            raise unknown(f"record in the recipe {found.name}", name, known)


def _took(made: list[RecipeRecord]) -> str:
    facts = [comparison.facts for record in made for comparison in record.comparisons.values()]
    if not facts:
        return ""
    minutes = sum(record.seconds for record in made) / 60
    threads = max(one.threads for one in facts)
    return (f"All small recipes together computed for {minutes:.0f} minutes ({facts[0].device}, {threads} "
            f"thread{'s' * (threads != 1)}; compiling and making puzzles not counted).\n\n")


def _row(found: Found, record: RecipeRecord | None, records: Path) -> tuple[str, ...]:
    recipe = found.recipe
    name = f"[{found.name}](#{found.name})"
    if recipe.outside is not None:
        smaller = "see the smaller model below" if outside_tables(recipe.outside, records) else ""
        return name, recipe.says, smaller, f"not run: {recipe.outside.reason}", "see below", ""
    if record is None:
        return name, recipe.says, "", "no record yet", f"`looptaps reproduce {found.name} --small`", ""
    compared = [cell for cell in recipe.cell if cell.name in record.comparisons]
    judged = [cell for cell in compared if cell.claim != "shown-only"] or compared
    told = [(cell.title, *outcome(cell, record.comparisons[cell.name], record.estimates.get(cell.name, ())))
            for cell in judged]
    shows = " ".join(f"{title}: {text}" for title, text, _ in told)
    words = list(dict.fromkeys(status for _, _, status in told))
    status = words[0] if len(words) == 1 else "; ".join(f"{title}: {word}" for title, _, word in told)
    return name, recipe.says, shows, status, f"`{record.command}`", _commit(record)


def _commit(record: RecipeRecord) -> str:
    commits = " and ".join(commit[:10] for commit in (record.commit or "unknown").split())
    return commits + " with changes" * bool(record.changed)


def _larger(found: Found, records: Path) -> str:
    told = []
    for cell, name in ((one, name) for one in found.recipe.cell for name in one.recorded):
        larger = recorded(name, records)
        if larger is not None:
            text, status = outcome(cell, larger)
            told.append(f"{larger.title or name}: {text[:-1]} ({status}).")
        elif (records / f"{name}.json").exists():
            told.append(f"{name}: see below.")
    return " ".join(dict.fromkeys(told))


def _section(found: Found, record: RecipeRecord | None, records: Path, shown: dict[str, str]) -> str:
    recipe = found.recipe
    lines = [f"## {found.name}", "", f"**{recipe.title}** (`{recipe.paper}`). The paper: {recipe.says}", ""]
    lines += [f"- {note}" for note in recipe.notes] + [""] * bool(recipe.notes)
    if recipe.outside is not None:
        lines += [f"Not run: {recipe.outside.reason}.", ""]
        if commands := recipe.outside.commands():
            lines += ["With those at hand:", "", "<!-- not run: see above -->", "```sh", *commands, "```", ""]
        for name in recipe.outside.recorded:
            lines += [f"On a smaller model: `{made_by(records / f'{name}.json')}`", ""]
            lines += _own(found, name, "### On a smaller model:", records, shown)
        return "\n".join(lines)
    if record is None:
        lines += [f"No record yet. `looptaps reproduce {found.name} --small` makes one.", ""]
    else:
        older = "" if record.recipe_sha256 == found.sha256 else " The recipe has been changed since."
        lines += [f"`{record.command}`, {record.finished[:10]}, {record.seconds / 60:.1f} minutes of computing, commit "
                  f"{_commit(record)}.{older}", ""]
        lines += _tables("###", list(record.tables))
        for cell in recipe.cell:
            if cell.run and cell.name in record.comparisons:
                lines += [f"{cell.title}: {verdict(record.comparisons[cell.name])}", ""]
    for cell in recipe.cell:
        for name in cell.recorded:
            lines += _beside(found, cell, name, records, shown)
    return "\n".join(lines)


def _beside(found: Found, cell: Cell, name: str, records: Path, shown: dict[str, str]) -> list[str]:
    """A larger run beside a cell: a comparison in full, a record of `benchmarks/` as `_own` shows it."""
    larger = recorded(name, records)
    if larger is not None:
        return [f"### Larger run beside it: {larger.title or cell.title}", "",
                md_table(columns(larger), [cells(larger, row) for row in larger.rows]), caption(larger), "",
                verdict(larger), ""]
    return _own(found, name, "### Larger run beside it:", records, shown)


def _own(found: Found, name: str, level: str, records: Path, shown: dict[str, str]) -> list[str]:
    """A record of `benchmarks/`: in full the first time, then as a link."""
    path = records / f"{name}.json"
    if not path.exists():
        return []
    there = shown.setdefault(name, found.name)
    if there != found.name:
        return [f"Its record `{name}` is under [{there}](#{there}).", ""]
    return _tables(level, record_tables(path))


def _benchmarks(records: Path, shown: set[str]) -> str:
    """What the scripts of `benchmarks/` measured, apart from what stands beside a recipe."""
    there = [name for name in LAYOUTS if name not in shown and (records / f"{name}.json").exists()]
    if not there:
        return ""
    lines = ["", "## Measurements of our own", "", "No table of the paper: records of scripts in `benchmarks/`.", ""]
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
    """The comparison of that name: in the records' folder, or in the package; None for a record of `benchmarks/`."""
    path = records / f"{name}.json"
    if name not in LAYOUTS and path.exists():
        return read_comparison(path)
    return shipped(name) if name in shipped_names() else None
