"""`looptaps compare`: runs side by side, with intervals, and a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from looptaps.evaluation.comparison import Comparison

app = typer.Typer(add_completion=False)


@app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs, or one folder that holds such folders.")],
    form: Annotated[str, typer.Option("--format", help="table, md, csv, json or latex.")] = "table",
    baseline: Annotated[str | None, typer.Option(help="What to compare with (default: the first unit step).")] = None,
    title: Annotated[str, typer.Option(help="What to call it.")] = "",
    out: Annotated[Path | None, typer.Option(help="Write to this file instead.")] = None,
) -> None:
    """Compare runs of the same puzzles: accuracy, paired differences, loops and time to the baseline's accuracy."""
    from looptaps.errors import InvalidUse
    from looptaps.evaluation.compare import compare as compare_runs
    from looptaps.evaluation.records import load_run, run_folders
    from looptaps.report.tables import as_text

    if form == "table" and out is not None:
        raise InvalidUse("compare writes md, csv, json or latex to a file. Name one with --format.")
    found = compare_runs([load_run(folder) for folder in run_folders(folders)], baseline=baseline, title=title)
    if form == "table":
        from rich.console import Console

        show(found, Console(soft_wrap=True))
        return
    text = as_text(found, form)
    if out is None:
        typer.echo(text, nl=False)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    typer.echo(f"Written: {out}")


def show(found: Comparison, console: Console) -> None:
    """Both tables and the verdict on a terminal."""
    from rich.table import Table

    from looptaps.report import tables
    from looptaps.report.summary import verdict

    parts = ((tables.accuracy_columns(found), [tables.accuracy_cells(found, row) for row in found.rows]),
             (tables.compute_columns(found), [tables.compute_cells(row) for row in found.rows]))
    console.width = max(console.width, 250)  # a row that is cut tells nothing; rather let the terminal wrap it
    for columns, rows in parts:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for place, column in enumerate(columns):
            table.add_column(column, justify="right" if place else "left", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        console.print(table)
        console.print()
    console.print(verdict(found), highlight=False)
    console.print(f"\n{tables.caption(found)}", style="dim", highlight=False)
