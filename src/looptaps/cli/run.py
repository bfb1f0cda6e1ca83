"""`looptaps run`: measure policies on puzzles, into folders that `compare` and `report` read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(add_completion=False)

Number = int | None
Text = str | None


@app.command()
def run(
    model: Annotated[Text, typer.Option(help="A bundled model, or a kind and a path: trm:my/model.")] = None,
    task: Annotated[Text, typer.Option(help="The puzzles: sudoku, sudoku:file.csv, maze:folder, ...")] = None,
    controller: Annotated[
        list[str] | None,
        typer.Option(help="Specs, separated by commas; `all` is the unit step and the six rules. They run in turns."),
    ] = None,
    strategy: Annotated[Text, typer.Option(help="fixed-depth, adaptive-exit:tau=0.1, rollouts:n=25, ...")] = None,
    loops: Annotated[Number, typer.Option(help="The horizon in outer loops.")] = None,
    where: Annotated[Text, typer.Option(help="Only puzzles of such difficulty: 'rating>=5'.")] = None,
    rows: Annotated[Text, typer.Option(help="Only these puzzles of the task: 10000:20000.")] = None,
    limit: Annotated[Number, typer.Option(help="The first so many puzzles only.")] = None,
    seed: Annotated[Number, typer.Option(help="Of noise and random initial states.")] = None,
    batch_size: Annotated[Number, typer.Option(help="Puzzles at a time.")] = None,
    site: Annotated[Text, typer.Option(help="inner or outer.")] = None,
    outer_at: Annotated[Text, typer.Option(help="Where outer control looks: cycle or loop.")] = None,
    every: Annotated[Number, typer.Option(help="q, the refresh interval.")] = None,
    scope: Annotated[Text, typer.Option(help="What one eta covers: sample or token.")] = None,
    memory: Annotated[Text, typer.Option(help="When memory starts afresh: rollout, loop or cycle.")] = None,
    device: Annotated[Text, typer.Option(help="cuda, cpu, ... (default: a GPU if there is one).")] = None,
    dtype: Annotated[Text, typer.Option(help="What the cores compute in, such as float32.")] = None,
    compile: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="Compile the cores first: faster, rounds differently.")
    ] = None,
    threads: Annotated[Number, typer.Option(help="CPU threads (default: torch's choice).")] = None,
    refill: Annotated[
        bool | None, typer.Option("--refill/--no-refill", help="Fill free places of a batch, as a server does.")
    ] = None,
    trace: Annotated[Number, typer.Option(help="Keep boards and scales of the first so many puzzles.")] = None,
    constants: Annotated[
        bool | None, typer.Option("--constants/--no-constants", help="Then run the constants at the rules' mean etas.")
    ] = None,
    recipe: Annotated[Path | None, typer.Option(help="A TOML file with these options; the command line wins.")] = None,
    parquet: Annotated[bool, typer.Option("--parquet", help="Also write samples.parquet.")] = False,
    out: Annotated[Path | None, typer.Option(help="The folder; several controllers get a folder each in it.")] = None,
) -> None:
    """Run puzzles under one policy or several; a run that was stopped goes on with the same command."""
    from looptaps.evaluation.options import options_of

    given: dict[str, Any] = {
        "model": model, "task": task, "controller": controller, "strategy": strategy, "loops": loops,
        "where": where, "rows": rows,
        "limit": limit, "seed": seed, "batch_size": batch_size, "site": site, "outer_at": outer_at, "every": every,
        "scope": scope, "memory": memory, "device": device, "dtype": dtype, "compile": compile, "threads": threads,
        "refill": refill, "trace": trace, "constants": constants,
    }  # fmt: skip
    options, facts = options_of({name: value for name, value in given.items() if value is not None}, recipe)

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from looptaps.evaluation.options import execute
    from looptaps.evaluation.records import export_parquet
    from looptaps.evaluation.statistics import proportion

    console = Console(soft_wrap=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        running: dict[str, Any] = {}

        def advance(name: str, puzzles: int, total: int) -> None:
            if name not in running:
                running[name] = bars.add_task(name, total=total)
            bars.advance(running[name], puzzles)

        runs = execute(options, out or Path("runs") / options.folder_name(), recipe=facts, progress=advance)
    for name, found in runs.items():
        share = proportion(found.final)
        solved = f"{100 * share.value:.1f} % [{100 * share.low:.1f}, {100 * share.high:.1f}]"
        one = "" if found.any is None else f", any of its rollouts {100 * found.any.mean():.1f} %"
        console.print(f"{found.folder}: {found.label} solves {solved} of {len(found)} puzzles{one}, mean eta "
                      f"{found.mean_eta:.3f}", highlight=False)
        if parquet:
            console.print(f"{name}: {export_parquet(found)}", highlight=False)
    folders = " ".join(str(found.folder) for found in runs.values())
    console.print(f"Next: looptaps compare {folders}", highlight=False)
