"""`looptaps data build sudoku|maze`: seeded datasets in the released npy format; `data demo`: the bundled test set."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Build datasets in the released npy format.", no_args_is_help=True, add_completion=False)
build = typer.Typer(help="Build a dataset: the same options give the same bytes.", no_args_is_help=True)
app.add_typer(build, name="build")


class Variant(StrEnum):
    """Whose dataset.json is written."""

    trm = "trm"
    hrm = "hrm"


Out = Annotated[Path, typer.Argument(help="A new folder; train/, test/ and identifiers.json are written into it.")]
Train = Annotated[int, typer.Option("--n", help="Training puzzles (with --train-csv: 0 for all rows).")]
Test = Annotated[int, typer.Option("--n-test", help="Test puzzles (with --test-csv: 0 for all rows).")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same puzzles on every machine.")]
Which = Annotated[Variant, typer.Option(help="TRM's files, or HRM's, which lack total_puzzles.")]


@build.command("sudoku")
def build_sudoku(
    out: Out,
    n: Train = 1000,
    n_test: Test = 1000,
    seed: Seed = 0,
    box: Annotated[str, typer.Option(help="Rows x columns of a box: 2x2, 2x3 or 3x3.")] = "3x3",
    extra: Annotated[int, typer.Option(help="Each puzzle gets 0 to this many clues beyond a minimal one.")] = 0,
    augment: Annotated[int, typer.Option(help="Random symmetric copies of each training puzzle.")] = 0,
    train_csv: Annotated[Path | None, typer.Option(help="Take training rows from a Sudoku-Extreme file.")] = None,
    test_csv: Annotated[Path | None, typer.Option(help="Take test rows from a Sudoku-Extreme file.")] = None,
    variant: Which = Variant.trm,
) -> None:
    """Generated minimal Sudoku with one solution, or rows of Sudoku-Extreme's csv files."""
    from looptaps.errors import invalid
    from looptaps.tasks import build as builders

    rows, _, cols = box.partition("x")
    if not (rows.isdecimal() and cols.isdecimal()):
        raise invalid("build sudoku", "--box", "two numbers such as 3x3", box, "Use 3x3 for 9x9 grids.")
    folder = builders.build_sudoku(
        out, n=n, n_test=n_test, seed=seed, box=(int(rows), int(cols)), extra=extra, augment=augment,
        train_csv=train_csv, test_csv=test_csv, variant=variant.value,
    )  # fmt: skip
    _report(folder)


@build.command("maze")
def build_maze(
    out: Out,
    n: Train = 1000,
    n_test: Test = 1000,
    seed: Seed = 0,
    size: Annotated[int, typer.Option(help="Side of the square maze.")] = 30,
    min_path: Annotated[
        int | None, typer.Option(help="Least moves from start to goal; by default 109 at size 30, as in Maze-Hard.")
    ] = None,
    augment: Annotated[bool, typer.Option(help="Add the 7 other orientations of each training maze.")] = False,
    variant: Which = Variant.trm,
) -> None:
    """Generated mazes like Maze-Hard's."""
    from looptaps.tasks import build as builders

    folder = builders.build_maze(
        out, n=n, n_test=n_test, seed=seed, size=size, min_path=min_path, augment=augment, variant=variant.value
    )
    _report(folder)


@app.command("demo")
def demo(
    out: Annotated[Path, typer.Argument(help="The csv file to write.")],
    n: Annotated[int, typer.Option(help="Puzzles.")] = 512,
    seed: Annotated[int, typer.Option(help="Seed of the bundled set.")] = 2026,
) -> None:
    """Write the bundled test set anew: generated minimal 9x9 Sudoku with solution and rating."""
    from looptaps.tasks import SudokuTask
    from looptaps.tasks.sudoku_csv import write_csv

    task = SudokuTask.generated(n, seed)
    write_csv(out, task.inputs, task.labels, task.difficulty["rating"], source=f"looptaps-seed-{seed}")
    typer.echo(f"{out}: {n} puzzles, {(task.difficulty['rating'] == 0).mean():.0%} solved by singles alone")


def _report(folder: Path) -> None:
    from looptaps.tasks.format import read_dataset

    for split in ("train", "test"):
        dataset = read_dataset(folder / split)
        rows, cells = dataset.inputs.shape
        typer.echo(f"{folder / split}: {dataset.meta.total_groups} puzzles, {rows} rows of {cells} cells")
