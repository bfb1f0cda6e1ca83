"""`looptaps report`: runs as one self-contained page, and as figures for papers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs, or one folder that holds such folders.")],
    out: Annotated[Path, typer.Option(help="The HTML file.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Of the page (default: models and task).")] = "",
    baseline: Annotated[str | None, typer.Option(help="What to compare with (default: the first unit step).")] = None,
    figures: Annotated[Path | None, typer.Option(help="Also write every figure into this folder.")] = None,
    kinds: Annotated[str, typer.Option(help="As what, separated by commas: svg, pdf, png.")] = "svg,pdf",
    traced: Annotated[int, typer.Option(help="Puzzles in the player at most.", min=0)] = 200,
) -> None:
    """Make the page: verdict, tables, curves, step sizes, difficulty, and a player of boards. It loads nothing."""
    from looptaps.errors import unknown
    from looptaps.evaluation.compare import compare, named
    from looptaps.evaluation.records import load_run, run_folders
    from looptaps.report.page import drawings, write_figures, write_page
    from looptaps.report.policy import policies_of
    from looptaps.report.summary import needed, verdict

    forms = [kind.strip() for kind in kinds.split(",")]
    for kind in forms:
        if kind not in FORMS:
            raise unknown("kind of figure", kind, FORMS)
    runs = named([load_run(folder) for folder in run_folders(folders)])
    found = compare(runs, baseline=baseline)
    policies = policies_of(runs, found)
    drawn = drawings(found, policies)
    heading = title or f"{', '.join(dict.fromkeys(row.model for row in found.rows))} on {found.facts.task}"
    notes = [needed(found)] if len(runs) > 1 else []
    page = write_page(out, found, policies, drawn, title=heading, notes=notes, traced=traced)
    typer.echo(verdict(found))
    typer.echo(f"Page: {page} ({page.stat().st_size / 1e6:.2f} MB)")
    if figures is not None:
        for path in write_figures(figures, drawn, forms):
            typer.echo(f"Figure: {path}")


FORMS = ("svg", "pdf", "png")
