"""Sudoku-Extreme's csv files: `source,question,answer,rating`, the first and the last optional, '.' for a blank."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from looptaps.errors import InvalidFile
from looptaps.tasks.random64 import U8


class SudokuRowsOfFile(NamedTuple):
    """The rows of one file as tokens."""

    inputs: U8  # (N, 81): blank 1, digit d is d + 1
    labels: U8  # (N, 81)
    rating: npt.NDArray[np.int64] | None  # None where the file has no such column
    sources: list[str] | None


def read_csv(path: str | Path, *, limit: int | None = None) -> SudokuRowsOfFile:
    """Read the rows (or the first `limit`); every row must be 81 characters, its answer full and equal to the clues.

    That each has one solution is checked by `sudoku.verify`.
    """
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            if not {"question", "answer"} <= set(header):
                raise InvalidFile(
                    f"{path} must begin with a line naming the columns question and answer, but it reads "
                    f"{','.join(header)[:80]!r}. Is it a file of Sudoku-Extreme?"
                )
            lines = [line for _, line in zip(range(limit if limit is not None else 2**62), reader)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidFile(f"{path} is not a csv text file ({error}). Give a file of Sudoku-Extreme.") from error
    except OSError as error:
        raise InvalidFile(f"{path} cannot be read: {error.strerror}. Check the path.") from error
    if not lines:
        raise InvalidFile(f"{path} has no rows. Give a file with at least one puzzle.")
    short = next((i for i, line in enumerate(lines) if len(line) != len(header)), None)
    if short is not None:
        raise InvalidFile(
            f"{path}, line {short + 2}: {len(lines[short])} fields instead of {len(header)}. The file may be cut off."
        )
    column = {name: i for i, name in enumerate(header)}
    inputs = _tokens(path, "question", [line[column["question"]] for line in lines], b"123456789.")
    labels = _tokens(path, "answer", [line[column["answer"]] for line in lines], b"123456789")
    changed = ((inputs > 1) & (inputs != labels)).any(1)
    if changed.any():
        raise InvalidFile(f"{path}, line {int(np.argmax(changed)) + 2}: the answer changes a clue. Correct that line.")
    rating = None
    if "rating" in column:
        texts = [line[column["rating"]] for line in lines]
        bad = next((i for i, text in enumerate(texts) if not text.isdecimal()), None)
        if bad is not None:
            raise InvalidFile(f"{path}, line {bad + 2}: the rating must be a whole number, but is {texts[bad]!r}.")
        rating = np.array(texts, np.int64)
    sources = [line[column["source"]] for line in lines] if "source" in column else None
    return SudokuRowsOfFile(inputs, labels, rating, sources)


def _tokens(path: str | Path, name: str, texts: list[str], accepted: bytes) -> U8:
    table = np.zeros(256, np.uint8)
    for character in accepted:
        table[character] = 1 if character == ord(".") else character - ord("0") + 1
    for i, text in enumerate(texts):
        if len(text) != 81:
            raise InvalidFile(f"{path}, line {i + 2}: the {name} must have 81 characters, but has {len(text)}.")
    raw = np.frombuffer("".join(texts).encode("latin-1", "replace"), np.uint8)
    tokens = table[raw].reshape(len(texts), 81)
    if (tokens == 0).any():
        row, cell = np.argwhere(tokens == 0)[0]
        raise InvalidFile(
            f"{path}, line {row + 2}: character {cell + 1} of the {name} is {texts[row][cell]!r}, but must be one of "
            f"{accepted.decode()}. Correct that line."
        )
    return tokens


def write_csv(path: str | Path, inputs: U8, labels: U8, rating: npt.NDArray[np.int64], source: str) -> None:
    """Write rows as Sudoku-Extreme's files have them."""
    symbols = np.frombuffer(b"?.123456789", np.uint8)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["source", "question", "answer", "rating"])
        for puzzle, answer, guesses in zip(inputs, labels, rating):
            question, solution = (symbols[row].tobytes().decode() for row in (puzzle, answer))
            writer.writerow([source, question, solution, int(guesses)])
