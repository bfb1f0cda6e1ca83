"""`looptaps bench`: what controllers cost on the clock, interleaved with the unit step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(add_completion=False)


@app.command()
def bench(
    model: Annotated[str, typer.Option(help="A bundled model, or a kind and a path: trm:my/model.")] = "trm:sudoku",
    task: Annotated[str, typer.Option(help="The puzzles; the first batch of them is timed.")] = "sudoku",
    controllers: Annotated[
        list[str] | None, typer.Option("--controllers", "--controller", help="Specs, separated by commas, or `all`.")
    ] = None,
    strategy: Annotated[str | None, typer.Option(help="fixed-depth, adaptive-exit, rollouts:n=25, ...")] = None,
    loops: Annotated[int, typer.Option(help="The horizon in outer loops.", min=1)] = 8,
    batch_size: Annotated[int, typer.Option(help="Puzzles in the batch.", min=1)] = 32,
    repeats: Annotated[int, typer.Option(help="How often each is timed.", min=3)] = 9,
    threads: Annotated[int, typer.Option(help="CPU threads of this process.", min=1)] = 1,
    device: Annotated[str | None, typer.Option(help="cuda, cpu, ... (default: a GPU if there is one).")] = None,
    dtype: Annotated[str | None, typer.Option(help="What the cores compute in, such as float32.")] = None,
    compile: Annotated[bool, typer.Option("--compile", help="Compile the cores first.")] = False,
    out: Annotated[Path | None, typer.Option(help="Also write a record (JSON) to this file.")] = None,
) -> None:
    """Time controllers on one batch: warm-up, turns in rotating order, median and quartiles, ratios to the first."""
    import torch
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    from looptaps.evaluation.folder import write_json
    from looptaps.evaluation.measure import compile_core, with_dtype
    from looptaps.evaluation.options import RunOptions, pick_device
    from looptaps.evaluation.provenance import device_facts, git_state, model_facts, now, versions
    from looptaps.evaluation.timing import PROTOCOL, time_policies
    from looptaps.models import load_model
    from looptaps.tasks import open_task

    torch.set_num_threads(threads)
    options = RunOptions(model=model, controller=tuple(controllers or ("all",)), strategy=strategy)
    policies = options.policies()
    network = with_dtype(load_model(model).eval().to(pick_device(device)), dtype)
    if compile:
        compile_core(network)
    part = next(iter(open_task(task).batches(batch_size)))
    console, started = Console(soft_wrap=True), now()
    with Progress(console=console, transient=True) as bars:
        bar = bars.add_task("repeats", total=repeats)
        found = time_policies(network, part, policies, loops=loops, repeats=repeats,
                              progress=lambda done: bars.update(bar, completed=done))  # fmt: skip
    base = next(iter(found))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(("policy", "ms for the batch", "quartiles", f"time / {base}", "quartiles")):
        table.add_column(column, justify="right" if place else "left", no_wrap=True)
    for name, timed in found.items():
        own, ratio = timed.seconds, timed.ratio
        table.add_row(name, f"{1e3 * own.median:.1f}", f"{1e3 * own.low:.1f} to {1e3 * own.high:.1f}",
                      f"{ratio.median:.3f}", f"{ratio.low:.3f} to {ratio.high:.3f}")
    console.print(table)
    facts = device_facts(next(network.parameters()).device)
    count = len(part.ids)
    where = f"{facts['name']}, {threads} CPU thread{'s' * (threads != 1)}"
    console.print(f"\n{model}, {count} puzzles ({task}), {loops} loops, {repeats} repeats; {where}.\n{PROTOCOL}",
                  style="dim", highlight=False)  # fmt: skip
    if out is not None:
        record: dict[str, Any] = {
            "schema": 1, "kind": "bench", "started": started, "finished": now(), "git": git_state(),
            "model": model_facts(network, model), "task": task, "puzzles": count, "loops": loops, "repeats": repeats,
            "compiled": compile, "device": facts, "versions": versions(next(network.parameters()).device),
            "protocol": PROTOCOL, "baseline": base,
            "policies": {name: {"controller": str(options.controller[place]), "seconds": timed.seconds._asdict(),
                                "ratio": timed.ratio._asdict(), "all_seconds": list(timed.all_seconds)}
                         for place, (name, timed) in enumerate(found.items())},
        }  # fmt: skip
        out.parent.mkdir(parents=True, exist_ok=True)
        write_json(out, record)
        console.print(f"Record: {out}")
