"""Build datasets in the released npy format: same arguments, same bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from looptaps.errors import InvalidValue, invalid
from looptaps.tasks.base import Tokens, check_count, check_seed, overlap
from looptaps.tasks.format import Dataset, Variant, write_dataset
from looptaps.tasks.maze import VOCAB, check_size, generate_mazes
from looptaps.tasks.maze_kernel import label_mazes, turned
from looptaps.tasks.random64 import U8, held_out
from looptaps.tasks.sudoku import generate, verify
from looptaps.tasks.sudoku_csv import read_csv
from looptaps.tasks.sudoku_kernel import copy_rows, geometry


def build_sudoku(
    out: str | Path,
    *,
    n: int = 1000,
    n_test: int = 1000,
    seed: int = 0,
    box: tuple[int, int] = (3, 3),
    extra: int = 0,
    augment: int = 0,
    train_csv: str | Path | None = None,
    test_csv: str | Path | None = None,
    variant: Variant = "trm",
) -> Path:
    """Write train and test splits: `n` and `n_test` generated puzzles, or rows of Sudoku-Extreme's files.

    Every training puzzle is followed by `augment` random symmetric copies of it, one group together; the first of a
    group is unchanged, the test split always. Of a file, `n` random rows (by seed) are taken, or all with `n=0`; each
    is checked to have one solution, its answer. A puzzle in both splits is an error; generated ones never are.
    """
    shape = geometry(*box)
    check_seed("build_sudoku", seed)
    check_count("build_sudoku", "augment", augment, 0)
    splits = {}
    for split, count, file in (("train", n, train_csv), ("test", n_test, test_csv)):
        check_count("build_sudoku", f"rows of {split}", count, 0 if file else 1)
        if file is None:
            inputs, labels = generate(count, seed, box=box, extra=extra, test=split == "test")
        elif box != (3, 3):
            raise invalid("build_sudoku", "box", "(3, 3) with a csv file", box, "Sudoku-Extreme's puzzles are 9x9.")
        else:
            inputs, labels = _rows(file, count, seed)
        group = 1
        if split == "train" and augment:
            group += augment
            inputs, labels = (np.repeat(part, group, axis=0) for part in (inputs, labels))
            copies = np.flatnonzero(np.arange(len(inputs)) % group)
            new, answers = (np.empty((len(copies), shape.n**2), np.uint8) for _ in range(2))
            copy_rows(seed, copies, shape.box, 0, inputs[copies], labels[copies], new, answers)
            inputs[copies], labels[copies] = new, answers
        # The released builder writes augmented rows as int64, others as uint8.
        rows = (part.astype(np.int64 if group > 1 else np.uint8) for part in (inputs, labels))
        splits[split] = Dataset.of(*rows, vocab_size=shape.n + 2, group=group, variant=variant)
    return _write_disjoint(out, splits)


def _rows(file: str | Path, count: int, seed: int) -> tuple[Tokens, Tokens]:
    rows = read_csv(file)
    verify(rows.inputs, rows.labels, owner=file)
    if not count:
        return rows.inputs, rows.labels
    if count > len(rows.inputs):
        raise invalid("build_sudoku", "n", f"at most {len(rows.inputs)}, the rows of {file}", count, "Use 0 for all.")
    chosen = np.random.Generator(np.random.Philox(seed)).choice(len(rows.inputs), count, replace=False)
    return rows.inputs[chosen], rows.labels[chosen]


def build_maze(
    out: str | Path,
    *,
    n: int = 1000,
    n_test: int = 1000,
    seed: int = 0,
    size: int = 30,
    min_path: int | None = None,
    augment: bool = False,
    variant: Variant = "trm",
) -> Path:
    """Write train and test splits of generated mazes; `augment` adds the 7 other orientations of each training maze.

    The answers of turned mazes are drawn anew, so that the same rule holds for all.
    """
    size, least = check_size("build_maze", size, min_path)
    check_seed("build_maze", seed)
    splits = {}
    for split, count in (("train", n), ("test", n_test)):
        check_count("build_maze", f"rows of {split}", count)
        group = 1
        if augment and split == "train":
            group = 8
            inputs, labels = _orientations(count, seed, size, least)
        else:
            inputs, labels = generate_mazes(count, seed, size=size, min_path=least, test=split == "test")
        splits[split] = Dataset.of(inputs, labels, vocab_size=VOCAB, group=group, variant=variant)
    return _write_disjoint(out, splits)


def _orientations(n: int, seed: int, size: int, least: int) -> tuple[U8, U8]:
    """n generated mazes, each in its 8 orientations one after the other, none of them kept for tests."""
    drawn = 2 * n + 16  # a maze passes with probability (15/16)^8 = 0.6
    while True:
        bases, _ = generate_mazes(drawn, seed, size=size, min_path=least)
        mazes = np.repeat(bases, 8, axis=0)
        for row in range(len(mazes)):
            turned(bases[row // 8], row % 8, False, mazes[row])
        kept = np.array([not held_out(maze) for maze in mazes]).reshape(-1, 8).all(1)
        if kept.sum() >= n:
            break
        drawn *= 2
    mazes = mazes.reshape(-1, 8, size * size)[kept][:n].reshape(-1, size * size)
    labels = np.empty_like(mazes)
    label_mazes(mazes, labels, np.zeros(len(mazes), np.int64))
    return mazes, labels


def _write_disjoint(out: str | Path, splits: dict[str, Dataset]) -> Path:
    shared = overlap(splits["train"].inputs, splits["test"].inputs)
    if len(shared):
        raise InvalidValue(
            f"{len(shared)} training puzzles are in the test split too (row {shared[0]} first). "
            "Take the splits from different files, or generate both."
        )
    return write_dataset(out, splits)
