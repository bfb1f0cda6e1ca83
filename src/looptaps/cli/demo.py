"""`looptaps demo`: the bundled Sudoku model on held-out puzzles, every rule beside the unit step, honestly."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def demo(
    puzzles: Annotated[int, typer.Option(help="How many of the bundled puzzles to run.", min=8)] = 256,
    loops: Annotated[int, typer.Option(help="Outer loops for every puzzle.", min=1)] = 32,
    model: Annotated[str, typer.Option(help="A bundled model, or a kind and a path: trm:my/model.")] = "trm:sudoku",
    task: Annotated[str, typer.Option(help="The puzzles; `sudoku` are the bundled ones.")] = "sudoku",
    preset: Annotated[str, typer.Option(help="Hyper-parameters of the rules: blocks or trm.")] = "blocks",
    threads: Annotated[int, typer.Option(help="CPU threads; 0 leaves them to torch.", min=0)] = 0,
    out: Annotated[Path, typer.Option(help="Folder for runs, figure and page.")] = Path("demo-out"),
) -> None:
    """Solve puzzles with the unit step, the six rules and the constants at their mean etas; print what was found."""
    import torch
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Table

    from looptaps.controllers import Constant, Standard
    from looptaps.evaluation.measure import Policy as Measured
    from looptaps.evaluation.policies import RULES
    from looptaps.evaluation.runner import run_many
    from looptaps.models import load_model
    from looptaps.report.figures import save_figure
    from looptaps.report.page import drawings, write_page
    from looptaps.report.policy import policies_of
    from looptaps.report.summary import puzzles_needed, summarise, verdict
    from looptaps.report.tables import COLUMNS, cells
    from looptaps.specs import spec
    from looptaps.tasks import open_task

    console = Console(soft_wrap=True)
    if threads:
        torch.set_num_threads(threads)
    network, found = load_model(model), open_task(task)
    count = min(puzzles, len(found))
    console.print(f"{model}: {sum(p.numel() for p in network.parameters()):,} parameters. {count} puzzles ({task}), "
                  f"{loops} loops, @{preset}.\n")
    columns = (TextColumn("{task.description:<14}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    options = {"out": out / "runs", "loops": loops, "limit": count, "batch_size": BATCH, "trace": TRACED,
               "model_spec": model, "task_spec": task}
    with Progress(*columns, console=console, transient=True) as bars:
        running: dict[str, int] = {}

        def advance(name: str, n: int) -> None:
            if name not in running:
                running[name] = bars.add_task(name, total=count)
            bars.advance(running[name], n)  # type: ignore[arg-type]

        rules = {name: Measured(spec(f"{name}@{preset}")) for name in RULES}
        runs = run_many(network, found, {"unit": Measured(Standard()), **rules}, progress=advance, **options)
        etas = sorted({f"{runs[name].mean_eta:.2f}" for name in rules})
        constants = {f"constant-{eta}": Measured(Constant(float(eta))) for eta in etas}
        runs |= run_many(network, found, constants, progress=advance, **options)

    rows = summarise(policies_of(list(runs.values())))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(COLUMNS[0], no_wrap=True)
    for column in COLUMNS[1:]:
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*cells(row))
    console.width = max(console.width, 126)  # a row that is cut tells nothing; rather let the terminal wrap it
    console.print(table)
    notes = [
        f"{count} puzzles cannot tell such policies apart unless they differ a lot: by these answers, a difference of "
        f"one point needs about {puzzles_needed(rows):,} puzzles.",
    ]
    said = verdict(rows)
    console.print("\n" + said + "\n" + "\n".join(notes), highlight=False)
    title = f"{model}: step control on {count} puzzles"
    caption = f"{model}, {task}, {loops} loops, hyper-parameters @{preset}, {torch.get_num_threads()} CPU threads"
    figures = drawings(rows)
    figure = save_figure(figures[0].figure, out / "accuracy.png")
    page = write_page(out / "demo.html", rows, figures, title=title, verdict=said, caption=caption, notes=notes)
    console.print(f"\nFigure: {figure}   Page: {page}")


BATCH = 32
TRACED = 32
