"""`looptaps solve`: one puzzle, a bundled model, the board it gives, and whether that is right."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def solve(
    puzzle: Annotated[str, typer.Argument(help='81 characters such as "53..7....", a file, or - for standard input.')],
    model: Annotated[str, typer.Option(help="A bundled model, or a kind and a path: trm:my/model.")] = "trm:sudoku",
    controller: Annotated[str, typer.Option(help="A controller's spec, such as taps-gd@blocks.")] = "standard",
    loops: Annotated[int, typer.Option(help="Outer loops at most.", min=4)] = 64,
) -> None:
    """Solve a Sudoku with a model. Exit code 0: solved; 1: the model's answer is wrong; 2: the input is."""
    import torch
    from rich.console import Console

    from looptaps.models import load_model
    from looptaps.specs import spec
    from looptaps.strategies import AdaptiveExit
    from looptaps.tasks.base import make_batch
    from looptaps.tasks.board import answer_fault, format_board, parse_board, solve_board, to_board, to_tokens

    board = parse_board(_text(puzzle))
    right, _ = solve_board(board)  # says so where there is no solution, or more than one
    tokens = to_tokens(board)[None]
    batch = make_batch(tokens, to_tokens(right)[None])
    result = AdaptiveExit(max_loops=loops).run(load_model(model), batch, spec(controller))
    shown = result.output[0].to(torch.int64).numpy()
    console = Console(highlight=False)
    legal = bool(((shown >= 1) & (shown <= 10)).all())
    answer = to_board(shown) if legal else None
    if answer is not None:
        console.print(format_board(answer))
    fault = "it holds something other than digits" if answer is None else answer_fault(board, answer)
    ran = f"{int(result.loops[0])} loops, {int(result.updates[0])} layer applications; {result.messages()[0]}"
    if fault is None:
        console.print(f"\n[green]Solved[/] in {ran}.")
        return
    console.print(f"\n[red]Not solved[/] after {ran}: {fault}.")
    raise typer.Exit(1)


def _text(puzzle: str) -> str:
    if puzzle == "-":
        return sys.stdin.read()
    path = Path(puzzle)
    # A board is text too, and no file has its name.
    return path.read_text(encoding="utf-8") if len(puzzle) < 256 and path.is_file() else puzzle
