"""`looptaps demo`: the bundled Sudoku model on held-out puzzles, every rule beside the unit step, honestly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(add_completion=False)

BATCH = 32
TRACED = 16


@app.command()
def demo(
    puzzles: Annotated[int, typer.Option(help="How many of the bundled puzzles to run.", min=8)] = 192,
    loops: Annotated[int, typer.Option(help="Outer loops for every puzzle.", min=1)] = 32,
    model: Annotated[str, typer.Option(help="A bundled model, or a kind and a path: trm:my/model.")] = "trm:sudoku",
    task: Annotated[str, typer.Option(help="The puzzles; `sudoku` are the bundled ones.")] = "sudoku",
    preset: Annotated[str, typer.Option(help="Hyper-parameters of the rules: blocks or trm.")] = "blocks",
    compile: Annotated[bool, typer.Option("--compile", help="Compile the model first: needs a C++ compiler.")] = False,
    threads: Annotated[int, typer.Option(help="CPU threads; 0 leaves them to torch.", min=0)] = 0,
    out: Annotated[Path, typer.Option(help="Folder for runs, figure and page.")] = Path("demo-out"),
) -> None:
    """Solve puzzles with the unit step, the six rules and the constants at their mean etas; print what was found."""
    import torch
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from looptaps.cli.compare import show
    from looptaps.controllers import Standard
    from looptaps.evaluation.compare import compare
    from looptaps.evaluation.measure import Policy
    from looptaps.evaluation.options import RULES
    from looptaps.evaluation.runner import run_many
    from looptaps.models import load_model
    from looptaps.report.figures import save_figure
    from looptaps.report.page import drawings, write_page
    from looptaps.report.policy import policies_of
    from looptaps.report.summary import needed
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
    with Progress(*columns, console=console, transient=True) as bars:
        running = {}

        def advance(name: str, n: int) -> None:
            if name not in running:
                running[name] = bars.add_task(name, total=count)
            bars.advance(running[name], n)

        rules = {name: Policy(spec(f"{name}@{preset}")) for name in RULES}
        runs = run_many(network, found, {"unit": Policy(Standard()), **rules}, out=out / "runs", constants=True,
                        loops=loops, limit=count, batch_size=BATCH, trace=min(TRACED, count), compile=compile,
                        model_spec=model, task_spec=task, progress=advance)  # fmt: skip

    here = compare(runs, title="Live run")
    show(here, console)
    note = needed(here)
    console.print("\n" + note, highlight=False)
    if model == "trm:sudoku":
        _show_recorded(console)
    policies = policies_of(runs, here)
    figures = drawings(here, policies)
    figure = save_figure(figures[0].figure, out / "accuracy.png")
    page = write_page(out / "demo.html", here, policies, figures, notes=[note],
                      title=f"{model}: step control on {count} puzzles")
    console.print(f"\nFigure: {figure}   Page: {page}")


def _show_recorded(console: Console) -> None:
    """The record of the long run of the same model that comes with the package."""
    from looptaps.cli.compare import show
    from looptaps.evaluation.shipped import shipped, shipped_names

    if "sudoku-trm" in shipped_names():
        console.print("\nRecorded with this model on many more puzzles:\n", style="bold", highlight=False)
        show(shipped("sudoku-trm"), console)
