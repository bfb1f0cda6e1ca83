"""Sudoku as a task: named test sets, and where they come from.

Tokens, as in the released files: 0 pad, 1 blank, digit d is d + 1.
"""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from looptaps.errors import InvalidFile, InvalidValue, unknown
from looptaps.tasks.base import Task, Tokens, check_count, check_seed
from looptaps.tasks.board import shape_of
from looptaps.tasks.random64 import BUILD, TEST, U8
from looptaps.tasks.sudoku_kernel import generate_puzzles, geometry, solve_all


class SudokuTask(Task):
    """Sudoku puzzles with exactly one solution. Difficulty: `empty` cells, and `rating`, the guesses of a solver.

    A generated set's rating counts the guesses our own solver (naked and hidden singles, then branching on the fewest
    candidates) needs to find the solution and prove it the only one. 0 means singles suffice. Sudoku-Extreme's files
    bring the rating of their authors' stronger solver, which is much lower: the two are not to be mixed.
    """

    @classmethod
    def open(cls, source: str = "") -> SudokuTask:
        """The set a text names: "" (bundled), "generated:n=4096:seed=0:box=3x3:extra=0", a csv file, or a folder.

        >>> SudokuTask.open("generated:n=2:box=2x2").seq_len
        16
        """
        if not source:
            return cls.bundled()
        kind, _, rest = source.partition(":")
        if kind == "generated":
            return cls.generated(**generated_options("sudoku", rest, ("n", "seed", "box", "extra")))
        path = Path(source)
        if path.is_dir():
            return cls.from_dataset(path)
        if path.suffix == ".csv":
            return cls.from_csv(path)
        raise InvalidFile(
            f"sudoku:{source} names no test set. Give nothing (bundled), generated:n=4096:seed=0, a .csv file, or a "
            "folder with dataset.json."
        )

    @classmethod
    def generated(
        cls, n: int = 4096, seed: int = 0, *, box: tuple[int, int] = (3, 3), extra: int = 0
    ) -> SudokuTask:
        """n different minimal puzzles (each with 0..`extra` more clues), the same on every machine.

        They come from the sixteenth of all puzzles that training streams never emit.

        >>> SudokuTask.generated(4, seed=7, box=(2, 3)).difficulty["empty"].tolist()
        [26, 26, 25, 27]
        """
        check_count("SudokuTask.generated", "n", n)
        check_count("SudokuTask.generated", "extra", extra, 0)
        inputs, labels = generate(n, seed, box=box, extra=extra, test=True)
        origin = f"sudoku:generated:n={n}:seed={seed}:box={box[0]}x{box[1]}:extra={extra}"
        return cls.from_tokens(inputs, labels, box=box, origin=origin)

    @classmethod
    def from_tokens(
        cls, inputs: Tokens, labels: Tokens, *, origin: str, box: tuple[int, int] = (3, 3),
        rating: np.ndarray[Any, np.dtype[np.int64]] | None = None,
    ) -> SudokuTask:  # fmt: skip
        """Puzzles and answers as tokens; rated by our solver where no rating is given.

        Rating verifies: every puzzle must have one solution, and it must be the answer.
        """
        if rating is None:
            rating = verify(inputs, labels, box=box)
        difficulty = {"empty": (np.asarray(inputs) == 1).sum(1), "rating": rating}
        return cls(
            name="sudoku", vocab_size=box[0] * box[1] + 2, inputs=inputs, labels=labels, difficulty=difficulty,
            origin=origin,
        )  # fmt: skip

    @classmethod
    def from_csv(cls, path: str | Path, *, verified: bool = False) -> SudokuTask:
        """A file of Sudoku-Extreme (source,question,answer,rating), every row checked when `verified`."""
        from looptaps.tasks.sudoku_csv import read_csv

        rows = read_csv(path)
        rating = verify(rows.inputs, rows.labels, owner=path) if verified or rows.rating is None else None
        return cls.from_tokens(
            rows.inputs, rows.labels, origin=f"sudoku:{path}", rating=rating if rows.rating is None else rows.rating
        )

    @classmethod
    def from_dataset(cls, folder: str | Path, *, box: tuple[int, int] | None = None) -> SudokuTask:
        """A folder in the released npy format, memory-mapped.

        Such files tell no box: it is the usual one of the size, or, where the answers break its rules, the same turned
        (3x2 instead of 2x3).
        """
        from looptaps.tasks.format import read_dataset

        dataset = read_dataset(folder)
        shape = box or shape_of(dataset.meta.seq_len)
        if dataset.meta.vocab_size != shape[0] * shape[1] + 2:
            raise InvalidFile(
                f"{folder} has vocabulary {dataset.meta.vocab_size}, but a Sudoku of {dataset.meta.seq_len} cells has "
                f"{shape[0] * shape[1] + 2} tokens. Is it another task's folder?"
            )
        read = partial(cls.from_tokens, dataset.inputs, dataset.labels, origin=f"sudoku:{folder}")
        try:
            return read(box=shape)
        except InvalidValue:
            if box is None and shape[0] != shape[1]:
                with contextlib.suppress(InvalidValue):
                    return read(box=shape[::-1])
            raise

    @classmethod
    def bundled(cls) -> SudokuTask:
        """The 512 generated minimal 9x9 puzzles that come with the package (seed 2026)."""
        from looptaps.tasks.sudoku_csv import read_csv

        rows = read_csv(Path(__file__).parent.parent / "assets" / "sudoku_demo.csv")
        return cls.from_tokens(rows.inputs, rows.labels, origin="sudoku:", rating=rows.rating)


def generate(
    n: int, seed: int = 0, *, box: tuple[int, int] = (3, 3), extra: int = 0, test: bool = False
) -> tuple[U8, U8]:
    """n different puzzles and their answers as (n, cells) tokens; each gets 0..extra clues beyond a minimal puzzle.

    With `test` they come from the sixteenth of all puzzles kept for tests, else from the rest.
    """
    check_seed("sudoku", seed)
    shape = geometry(*box)
    seen: dict[bytes, None] = {}
    inputs = np.empty((0, shape.n**2), np.uint8)
    labels = np.empty_like(inputs)
    drawn = 0
    while len(inputs) < n:
        more = np.empty((n - len(inputs), shape.n**2), np.uint8)
        answers = np.empty_like(more)
        domain = TEST if test else BUILD
        generate_puzzles(seed, domain, drawn, extra, test, shape.box, shape.units, shape.peers, more, answers)
        drawn += len(more)
        new = []
        for i, row in enumerate(more):
            if row.tobytes() not in seen:
                seen[row.tobytes()] = None
                new.append(i)
        inputs, labels = np.concatenate([inputs, more[new]]), np.concatenate([labels, answers[new]])
        if len(new) < len(more) // 20 or drawn > 100 * n + 10_000:  # hardly anything new any more
            raise InvalidValue(
                f"sudoku: only {len(inputs)} different {shape.n}x{shape.n} puzzles turned up in {drawn}, but n is {n}. "
                "Ask for fewer, or for a larger grid."
            )
    return inputs, labels


def verify(
    inputs: Tokens, labels: Tokens, *, box: tuple[int, int] = (3, 3), owner: str | Path = "sudoku"
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The rating of each row, after checking that it has one solution and that this is the answer.

    `owner` is what an error names: the file the rows are from, say.
    """
    shape = geometry(*box)
    boards = np.asarray(inputs).astype(np.uint8)
    if boards.ndim != 2 or boards.shape[1] != shape.n**2 or (boards < 1).any() or (boards > shape.n + 1).any():
        raise InvalidValue(
            f"{owner}: puzzles must be rows of {shape.n**2} tokens in 1..{shape.n + 1} (blank 1, digit d is d + 1). "
            "Convert them, or give the right box."
        )
    boards -= 1
    solutions = np.zeros_like(boards)
    counts = np.zeros(len(boards), np.int64)
    guesses = np.zeros(len(boards), np.int64)
    solve_all(boards, shape.units, shape.peers, 2, solutions, counts, guesses)
    for wrong, what in (
        (counts == 0, "has no solution"),
        (counts > 1, "has several solutions"),
        ((solutions + 1 != labels).any(1), "has another solution than its answer"),
    ):
        if wrong.any():
            raise InvalidValue(f"{owner}: row {int(np.argmax(wrong))} {what}. Correct or remove that row.")
    return guesses


def generated_options(task: str, text: str, known: tuple[str, ...]) -> dict[str, Any]:
    """`n=4096:seed=0:box=3x3` as keyword arguments."""
    options: dict[str, Any] = {}
    for part in filter(None, text.split(":")):
        key, _, value = part.partition("=")
        if key not in known:
            raise unknown(f"{task}:generated option", key, known)
        numbers = value.split("x") if key == "box" else [value]
        if not all(number.isdecimal() for number in numbers) or len(numbers) != (2 if key == "box" else 1):
            form = "two numbers such as 3x3" if key == "box" else "a whole number"
            raise InvalidValue(f"{task}:generated {key} must be {form}, but is {value!r}. Write {task}:generated:n=64.")
        options[key] = tuple(map(int, numbers)) if key == "box" else int(value)
    return options
