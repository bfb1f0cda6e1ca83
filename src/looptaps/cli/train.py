"""`looptaps train --recipe FILE`: train a model, go on with a run, or export one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def train(
    recipe: Annotated[Path, typer.Option(help="The recipe, a TOML file; recipes/ has some.")],
    out: Annotated[Path | None, typer.Option(help="The run's folder (default: runs/<name of the recipe>).")] = None,
    data: Annotated[
        list[Path] | None, typer.Option(help="Rows to mix in (csv with question and answer); may be repeated.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    start: Annotated[
        # Not --start: torchrun would take that for an abbreviation of its own --start-method.
        Path | None, typer.Option("--resume-from", help="Go on, in a new folder, from this checkpoint of another run.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads (default: torch's choice).")] = None,
    export_to: Annotated[
        Path | None,
        typer.Option("--export", help="Train nothing: export the last checkpoint to a folder or .safetensors file."),
    ] = None,
) -> None:
    """Train a model by a recipe: checkpoints, a curve, and at the end weights with a card in <out>/model.

    A run that was stopped or killed goes on with --resume, with the same losses as if nothing had happened.
    """
    from looptaps.train.recipe import load_recipe

    values = load_recipe(recipe)
    folder = out or Path("runs") / values.name
    if export_to is not None:
        from looptaps.train.exporting import export

        typer.echo(f"Exported to {export(folder, export_to)}")
        return
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    from looptaps.train.trainer import Trainer

    trainer = Trainer(values, folder, data=data or [], resume=resume, start=start)
    where = trainer.run()
    if trainer.is_main:
        typer.echo(f"Exported to {where}")
