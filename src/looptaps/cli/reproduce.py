"""`looptaps reproduce`: a table of the paper, run, with our numbers beside its own."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from looptaps.evaluation.recipe_record import RecipeRecord, TextTable
    from looptaps.evaluation.recipes import Found, Outside
    from looptaps.evaluation.reproduce import Bench
    from looptaps.report.beside import Results

app = typer.Typer(add_completion=False)


@app.command()
def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="Recipes, such as table-main; none: list them.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All recipes.")] = False,
    small: Annotated[bool, typer.Option("--small", help="Bundled models and few puzzles: for two CPU cores.")] = False,
    limit: Annotated[int | None, typer.Option(help="At most so many puzzles per cell or subset.", min=1)] = None,
    device: Annotated[str | None, typer.Option(help="cuda, cpu, ... (default: a GPU if there is one).")] = None,
    compile: Annotated[bool | None, typer.Option("--compile/--no-compile", help="Instead of what it says.")] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads (default: torch's choice).", min=1)] = None,
    out: Annotated[Path, typer.Option(help="The folder of the runs; what is there is not run again.")] = Path(
        "runs/reproduce"
    ),
    recipes: Annotated[Path | None, typer.Option(help="The folder of the recipes.")] = None,
    record: Annotated[Path | None, typer.Option(help="Also write records (JSON) to small/ or full/ here.")] = None,
    page: Annotated[Path | None, typer.Option(help="Write the page of all records in --record; run nothing.")] = None,
) -> None:
    """Run recipes and print our numbers beside the paper's. A run that was stopped goes on with the same command."""
    from rich.console import Console

    from looptaps.errors import InvalidUse
    from looptaps.evaluation.recipes import load_recipe, recipe_folder, recipe_names
    from looptaps.evaluation.reproduce import Bench
    from looptaps.report.reproducing import check_recorded

    folder = recipe_folder(recipes)
    results = folder.parent / "benchmarks" / "results"
    console = Console(soft_wrap=True)
    if page is not None:
        from looptaps.report.reproducing import page_text

        if record is None or names or every:
            raise InvalidUse("reproduce --page needs --record, the folder of the records, and runs nothing: leave "
                             "names and --all out.")
        page.write_text(page_text(folder, record), encoding="utf-8")
        console.print(f"Written: {page}")
        return
    found = [load_recipe(name, folder) for name in (recipe_names(folder) if every else names or [])]
    for one in found:
        check_recorded(one, results)
    if not found:
        _list(console, folder)
        return
    overrides = {"limit": limit, "device": device, "compile": compile, "threads": threads}
    bench = Bench(recipes=folder, out=out / ("small" if small else "full"), small=small,
                  overrides={name: value for name, value in overrides.items() if value is not None})
    for one in found:
        if one.recipe.outside is not None:
            _outside(console, one, one.recipe.outside, results, small)
            continue
        made = _run(console, one, bench)
        made.write(bench.out / f"{one.name}.json")
        if record is not None:
            made.write(record / bench.out.name / f"{one.name}.json")


def _list(console: Console, folder: Path) -> None:
    from rich.table import Table

    from looptaps.evaluation.recipes import load_recipe, recipe_names

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("recipe", no_wrap=True)
    for column in ("what it is", "in the paper", ""):
        table.add_column(column)
    for name in recipe_names(folder):
        recipe = load_recipe(name, folder).recipe
        table.add_row(name, recipe.title, recipe.paper, "" if recipe.outside is None else "not run here")
    console.print(table)
    console.print("\nRun one: looptaps reproduce table-main --small", highlight=False)


def _run(console: Console, found: Found, bench: Bench) -> RecipeRecord:
    """Run a recipe, print its tables and the verdict of each comparison, and write its figures."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    import looptaps
    from looptaps.evaluation.recipe_record import RecipeRecord
    from looptaps.evaluation.reproduce import run_recipe
    from looptaps.report.beside import measured, tables
    from looptaps.report.summary import verdict

    console.print(f"\n{found.name}: {found.recipe.title}", style="bold", highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        running: dict[tuple[str, str], Any] = {}

        def advance(cell: str, policy: str, count: int, total: int) -> None:
            if (cell, policy) not in running:
                running[cell, policy] = bars.add_task(f"{cell} {policy}", total=total)
            bars.advance(running[cell, policy], count)

        bench.progress = advance
        results = run_recipe(found, bench)
    shown = tables(found.recipe, results)
    for table in shown:
        show_table(console, table)
    for cell, comparison, _ in results.values():
        if cell.run:
            console.print(f"{cell.title}: {verdict(comparison)}", highlight=False)
    for note in found.recipe.notes:
        console.print(note, style="dim", highlight=False)
    for path in _figures(found, results, bench.out / found.name):
        console.print(f"Figure: {path}", highlight=False)
    words = ["looptaps", "reproduce", found.name, *["--small"] * bench.small]
    words += [f"--limit={bench.overrides['limit']}"] if "limit" in bench.overrides else []
    metas = [run.meta for _, _, runs in results.values() for run in runs.values()]
    parts = [part for meta in metas for part in meta["parts"]]
    commits = sorted({part["commit"] for part in parts if part["commit"] is not None})
    own = [run for cell in found.recipe.cell for run in bench.done.get(f"{found.name}.{cell.name}", {}).values()]
    return RecipeRecord(
        recipe=found.name, recipe_sha256=found.sha256, small=bench.small, command=shlex.join(words),
        looptaps=looptaps.__version__, commit=" ".join(commits) or None, changed=any(part["dirty"] for part in parts),
        seconds=round(sum(run.meta["timing"]["seconds"] for run in own), 1),
        finished=max(str(meta["finished"]) for meta in metas),
        comparisons={name: comparison for name, (_, comparison, _) in results.items()}, estimates=measured(results),
        tables=tuple(shown),
    )


def _figures(found: Found, results: Results, folder: Path) -> list[Path]:
    """The figures that the recipe names, as SVG and PDF beside its runs."""
    from dataclasses import replace

    from looptaps.report.page import drawings, write_figures
    from looptaps.report.policy import policies_of

    written = []
    for name, (_, comparison, runs) in results.items() if found.recipe.figures else ():
        # The paper's difficulty is the number of empty cells, also where there is a better one.
        by_empty = {label: replace(run, difficulty={"empty": run.difficulty["empty"]})
                    if "empty" in run.difficulty else run for label, run in runs.items()}
        drawn = drawings(comparison, policies_of(by_empty, comparison))
        wanted = [one._replace(name=f"{name}-{one.name}") for one in drawn if one.name in found.recipe.figures]
        written += write_figures(folder, wanted, ("svg", "pdf"))
    return written


def show_table(console: Console, table: TextTable) -> None:
    """A table with its caption."""
    from rich.table import Table

    console.width = 1000  # a row that is cut tells nothing; rather let the terminal wrap it
    drawn = Table(box=None, pad_edge=False, header_style="bold", title=table.title, title_justify="left")
    for place, column in enumerate(table.columns):
        drawn.add_column(column, justify="right" if place else "left", no_wrap=bool(place))
    for row in table.rows:
        drawn.add_row(*row)
    console.print(drawn)
    console.print(table.caption + "\n", style="dim", highlight=False)


def _outside(console: Console, found: Found, outside: Outside, records: Path, small: bool) -> None:
    """The paper's numbers, why there are none of ours, records on smaller models and, unless small, the commands."""
    from looptaps.evaluation.recipe_record import TextTable
    from looptaps.report.recorded import made_by
    from looptaps.report.reproducing import outside_tables

    console.print(f"\n{found.name}: {found.recipe.title}", style="bold", highlight=False)
    console.print(f"Not run: {outside.reason}.", highlight=False)
    if outside.rows:
        rows = tuple(tuple(str(cell) for cell in row) for row in outside.rows)
        show_table(console, TextTable(title=f"The paper, {found.recipe.paper}", caption=found.recipe.says,
                                      columns=outside.columns, rows=rows))
    for table in outside_tables(outside, records):
        show_table(console, table)
    for name in outside.recorded:
        console.print(f"On a smaller model: {made_by(records / f'{name}.json')}", highlight=False)
    if not small:
        for command in outside.commands():
            console.print(command, highlight=False, markup=False)
