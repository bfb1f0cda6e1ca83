"""`looptaps solve`: one puzzle, a bundled model, the board it gives, and whether that is right."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from looptaps.errors import InvalidFile, InvalidUse, InvalidValue

app = typer.Typer(add_completion=False)


class Posed(NamedTuple):
    """A puzzle that has an answer: `show` draws what a model says, `fault` tells why that is wrong (None: right)."""

    tokens: Any
    answer: Any
    show: Callable[[Any], str]
    fault: Callable[[Any], str | None]


@app.command()
def solve(
    puzzle: Annotated[
        str, typer.Argument(help='81 characters such as "53..7....", a file (a Sudoku, or a maze drawn with # S G), '
                                 "or - for standard input.")
    ],
    model: Annotated[
        str | None,
        typer.Option(help="A bundled model, or a kind and a path: trm:my/model. [default: trm:sudoku or trm:maze]"),
    ] = None,
    controller: Annotated[str, typer.Option(help="A controller's spec, such as taps-gd@blocks.")] = "standard",
    loops: Annotated[int, typer.Option(help="Outer loops at most.", min=4)] = 64,
) -> None:
    """Solve a Sudoku or a maze with a model. Exit code 0: solved; 1: the model's answer is wrong; 2: the input is."""
    import torch
    from rich.console import Console

    from looptaps.models import load_model
    from looptaps.specs import spec
    from looptaps.strategies import AdaptiveExit
    from looptaps.tasks.base import make_batch

    text = _text(puzzle)
    is_maze = "#" in text or {"S", "G"} <= set(text)
    name = model or ("trm:maze" if is_maze else "trm:sudoku")
    solver = load_model(name)
    posed = (_maze if is_maze else _sudoku)(text, name, solver.config)
    batch = make_batch(posed.tokens[None], posed.answer[None])
    result = AdaptiveExit(max_loops=loops).run(solver, batch, spec(controller))
    given = result.output[0].to(torch.int64).numpy()
    typer.echo(posed.show(given))
    console = Console(highlight=False)
    ran = f"{int(result.loops[0])} loops, {int(result.updates[0])} layer applications; {result.messages()[0]}"
    fault = posed.fault(given)
    if fault is None:
        console.print(f"\n[green]Solved[/] in {ran}.")
        return
    console.print(f"\n[red]Not solved[/] after {ran}: {fault}.")
    raise typer.Exit(1)


def _text(puzzle: str) -> str:
    name = "standard input" if puzzle == "-" else puzzle
    try:
        if puzzle == "-":
            return sys.stdin.read()
        if not puzzle:
            raise InvalidValue("The puzzle is an empty text. Give its characters, a file, or - for standard input.")
        # A board is text too, and no file has its name.
        path = Path(puzzle)
        if len(puzzle) < 256 and path.is_file():
            return path.read_text(encoding="utf-8")
    except (UnicodeDecodeError, OSError) as error:
        raise InvalidFile(f"{name} cannot be read as text ({error}). Give a puzzle's characters.") from error
    if len(puzzle) < 256 and path.is_dir():
        raise InvalidFile(f"{puzzle} is a folder. Give a file with one puzzle.")
    if re.fullmatch(r".*[/\\].*|\S*[A-Za-z]\S*\.[A-Za-z]{2,5}", puzzle):
        raise InvalidFile(f"There is no file {puzzle}. Give the puzzle's characters, a file, or - for standard input.")
    return puzzle


def _sudoku(text: str, name: str, config: Any) -> Posed:
    from looptaps.tasks.board import answer_fault, format_board, parse_board, shape_of, solve_board, to_board, to_tokens

    sizes = {(n * n, n + 2): n for n in (4, 6, 8, 9, 12, 16)}
    cells = config.seq_len or (config.vocab_size - 2) ** 2
    if (cells, config.vocab_size) not in sizes:
        raise InvalidUse(f"{name} is no model of Sudokus: it works on {cells} cells of {config.vocab_size} tokens. "
                         "Leave --model out for trm:sudoku.")
    usual, digits = shape_of(cells), sizes[cells, config.vocab_size]
    answers: dict[tuple[int, int], Any] = {}
    refused: list[InvalidValue] = []
    for box in dict.fromkeys((usual, usual[::-1])):  # a text tells no box: 6x6 may mean 2x3 or 3x2
        try:
            board = parse_board(text, box=box)
            answers[box], _ = solve_board(board, box=box)  # refuses what has no solution, or more than one
        except InvalidValue as error:
            refused.append(error)
    if not answers:
        raise refused[0]

    def used(tokens: Any) -> tuple[int, int]:
        right = (box for box in answers if answer_fault(board, to_board(tokens), box=box) is None)
        return next(right, next(iter(answers)))

    def show(tokens: Any) -> str:
        box = used(tokens)
        note = "" if box == usual else f"\n(boxes of {box[0]} rows and {box[1]} columns)"
        return format_board(to_board(tokens), box=box) + note

    def fault(tokens: Any) -> str | None:
        if (tokens > digits + 1).any():
            return "it holds something other than digits"
        return answer_fault(board, to_board(tokens), box=used(tokens))

    return Posed(to_tokens(board), to_tokens(next(iter(answers.values()))), show, fault)


def _maze(text: str, name: str, config: Any) -> Posed:
    from looptaps.tasks.maze import VOCAB, maze_fault, maze_size, maze_text, parse_maze, solve_maze

    if config.vocab_size != VOCAB:
        raise InvalidUse(f"{name} is no model of mazes: it has {config.vocab_size} tokens, and mazes have {VOCAB}. "
                         "Leave --model out for trm:maze.")
    maze = parse_maze(text)
    side = maze_size(len(maze))
    if config.seq_len not in (None, len(maze)):
        own = maze_size(config.seq_len)
        raise InvalidUse(f"{name} solves mazes of {own} x {own} cells, but this one has {side} x {side}. "
                         "Give --model one that was trained on such mazes.")
    right, _ = solve_maze(maze)  # says so where there is no way
    return Posed(maze, right, maze_text, partial(maze_fault, maze))
