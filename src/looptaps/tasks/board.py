"""One Sudoku as text: reading, showing, solving and checking, with a sentence for everything that can be wrong.

A board is a flat uint8 array of digits, 0 for a blank. Digits beyond 9 (grids larger than 9x9) are written A, B, ...
"""

from __future__ import annotations

import numpy as np

from looptaps.errors import InvalidShape, InvalidValue
from looptaps.tasks.base import Tokens
from looptaps.tasks.random64 import U8
from looptaps.tasks.sudoku_kernel import Geometry, geometry, solve

SYMBOLS = ".123456789ABCDEFG"
_SKIP = set(" \t\r\n|+-")  # what `format_board` draws besides cells
_SHAPES = {16: (2, 2), 36: (2, 3), 64: (2, 4), 81: (3, 3), 144: (3, 4), 256: (4, 4)}


def shape_of(cells: int) -> tuple[int, int]:
    """The usual box of a grid with so many cells.

    >>> shape_of(36)
    (2, 3)
    """
    if cells not in _SHAPES:
        sizes = ", ".join(str(size) for size in _SHAPES)
        raise InvalidShape(f"A Sudoku has {sizes} cells, but here are {cells}. Write one character per cell.")
    return _SHAPES[cells]


def parse_board(text: str, *, box: tuple[int, int] = (3, 3)) -> U8:
    """Read a puzzle: digits, and '.', '0' or '_' for a blank; white space and the lines of a drawn grid are skipped.

    >>> parse_board("1... ..3. .4.. ...2", box=(2, 2))
    array([1, 0, 0, 0, 0, 0, 3, 0, 0, 4, 0, 0, 0, 0, 0, 2], dtype=uint8)
    >>> parse_board("12")
    Traceback (most recent call last):
    looptaps.errors.InvalidValue: A 9x9 Sudoku has 81 cells, but 2 were given. Write 1-9, or '.' for a blank, per cell.
    """
    shape = geometry(*box)
    n = shape.n
    digits = SYMBOLS[1 : n + 1]
    accepted = f"1-{n}" if n <= 9 else f"1-9, A-{digits[-1]}"
    cells = []
    for place, character in enumerate(text):
        if character in _SKIP:
            continue
        digit = 0 if character in ".0_" else digits.find(character.upper()) + 1
        if digit == 0 and character not in ".0_":
            raise InvalidValue(
                f"A {n}x{n} Sudoku is written with {accepted}, and '.', '0' or '_' for a blank, but character "
                f"{place + 1} is {character!r}. Correct it."
            )
        cells.append(digit)
    if len(cells) != n * n:
        raise InvalidValue(
            f"A {n}x{n} Sudoku has {n * n} cells, but {len(cells)} were given. Write {accepted}, or '.' for a blank, "
            "per cell."
        )
    board = np.array(cells, np.uint8)
    clash = _clash(board, shape)
    if clash:
        raise InvalidValue(f"The clues clash: {clash}. Correct one of the two.")
    return board


def format_board(board: Tokens, *, box: tuple[int, int] = (3, 3)) -> str:
    """Draw a board; `parse_board` reads it back.

    >>> print(format_board(parse_board("1... ..3. .4.. ...2", box=(2, 2)), box=(2, 2)))
    1 . | . .
    . . | 3 .
    ----+----
    . 4 | . .
    . . | . 2
    """
    rows, cols = box
    n = rows * cols
    lines = []
    for i in range(n):
        symbols = [SYMBOLS[digit] for digit in np.asarray(board)[i * n : (i + 1) * n]]
        parts = [" ".join(symbols[j : j + cols]) for j in range(0, n, cols)]
        lines.append(" | ".join(parts))
        if (i + 1) % rows == 0 and i + 1 < n:
            lines.append("+".join("-" * (len(part) + (1 if k in (0, len(parts) - 1) else 2))
                                  for k, part in enumerate(parts)))  # fmt: skip
    return "\n".join(lines)


def board_text(board: Tokens) -> str:
    """A board as one line of characters, '.' for a blank."""
    return "".join(SYMBOLS[digit] for digit in np.asarray(board))


def to_tokens(board: Tokens) -> U8:
    """Digits to tokens: blank is 1, digit d is d + 1."""
    return (np.asarray(board) + 1).astype(np.uint8)


def to_board(tokens: Tokens) -> U8:
    """Tokens to digits. Padding (0), which a model may predict, becomes a blank.

    >>> to_board(np.array([0, 1, 2, 10]))
    array([0, 0, 1, 9], dtype=uint8)
    """
    return np.maximum(np.asarray(tokens).astype(np.int64) - 1, 0).astype(np.uint8)


def solve_board(board: Tokens, *, box: tuple[int, int] = (3, 3)) -> tuple[U8, int]:
    """The one solution, and the guesses it took; a sentence when there is none, or more than one.

    >>> board_text(solve_board(parse_board("1... ..3. .4.. ...2", box=(2, 2)), box=(2, 2))[0])
    '1324423124133142'
    """
    shape = geometry(*box)
    solution = np.zeros(shape.n**2, np.uint8)
    count, guesses = solve(np.ascontiguousarray(board, np.uint8), shape.units, shape.peers, solution, 2)
    if count == 0:
        raise InvalidValue("This Sudoku has no solution. Check that every clue is copied correctly.")
    if count > 1:
        clues = int((np.asarray(board) > 0).sum())
        raise InvalidValue(f"This Sudoku has several solutions with its {clues} clues. Add the missing clues.")
    return solution, int(guesses)


def answer_fault(board: Tokens, answer: Tokens, *, box: tuple[int, int] = (3, 3)) -> str | None:
    """Why an answer does not solve a puzzle, in a few words; None where it does."""
    shape = geometry(*box)
    puzzle, given = np.asarray(board), np.asarray(answer)
    if given.shape != puzzle.shape:
        return f"{given.size} cells instead of {puzzle.size}"
    if (given == 0).any():
        return f"{_place(int(np.argmax(given == 0)), shape.n)} is blank"
    changed = (puzzle > 0) & (puzzle != given)
    if changed.any():
        cell = int(np.argmax(changed))
        return f"{_place(cell, shape.n)} is {SYMBOLS[given[cell]]} instead of the clue {SYMBOLS[puzzle[cell]]}"
    return _clash(given, shape)


def check_solution(board: Tokens, answer: Tokens, *, box: tuple[int, int] = (3, 3)) -> bool:
    """Whether a filled board keeps the clues and all the rules."""
    return answer_fault(board, answer, box=box) is None


def _place(cell: int, n: int) -> str:
    return f"row {cell // n + 1}, column {cell % n + 1}"


def _clash(board: Tokens, shape: Geometry) -> str | None:
    """Two equal digits in one unit, in words."""
    for u, unit in enumerate(shape.units):
        values = board[unit]
        for digit in range(1, shape.n + 1):
            cells = unit[values == digit]
            if len(cells) > 1:
                kind = ("row", "column", "box")[u // shape.n]
                first, second = (_place(int(cell), shape.n) for cell in cells[:2])
                return f"{SYMBOLS[digit]} stands twice in {kind} {u % shape.n + 1} ({first}; {second})"
    return None
