"""Mazes as a task, like Maze-Hard: mark a shortest path from S to G in an n x n grid.

Tokens, as in the released files: 0 pad, '#' 1, ' ' 2, 'S' 3, 'G' 4, 'o' 5. The label is the whole grid with the path.

How like Maze-Hard the generated mazes are, 600 of ours against 1,500 released ones (30x30, means):

| | released | ours |
|---|---|---|
| walls (standard deviation) | 0.371 (0.027) | 0.368 (0.024) |
| moves from S to G (95th percentile) | 113.8 (124) | 113.6 (122) |
| moves from S to the furthest cell | 120.1 | 119.8 |
| independent cycles; free 2x2 squares | 122.6; 130.9 | 126.2; 132.7 |
| S on the edge of the grid | 0.197 | 0.202 |
| straight distance from S to G | 20.0 | 19.5 |

Both begin at 109 moves, have no frame of walls, and almost always many shortest paths. Ours have slightly fewer walls.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from looptaps.errors import InvalidFile, InvalidShape, InvalidValue, invalid
from looptaps.tasks.base import Task, Tokens, check_count, check_seed
from looptaps.tasks.maze_kernel import check_mazes, generate_rows, label_mazes
from looptaps.tasks.random64 import BUILD, TEST_MAZE, U8
from looptaps.tasks.sudoku import generated_options

SYMBOLS = "?# SGo"
VOCAB = 6


def default_min_path(size: int) -> int:
    """The least number of moves in a generated maze: 109 at 30x30 as in Maze-Hard, about as rare at other sizes.

    >>> [default_min_path(n) for n in (10, 20, 30)]
    [31, 69, 109]
    """
    return max(2, round(109 * math.pow(size / 30, 1.13)))


def maze_size(cells: int) -> int:
    """The side of a maze with so many cells."""
    size = math.isqrt(cells)
    if size * size != cells or not 4 <= size <= 100:
        raise InvalidShape(f"A maze is a square of 4x4 to 100x100 cells, but here are {cells}. Give whole rows.")
    return size


def check_size(owner: str, size: int, min_path: int | None) -> tuple[int, int]:
    """Side and least path length, validated."""
    check_count(owner, "size", size, 4)
    if size > 100:
        raise invalid(owner, "size", "4..100", size, "Use 30, as Maze-Hard.")
    if min_path is None:
        min_path = default_min_path(size)
    check_count(owner, "min_path", min_path, 2)
    if min_path > size * size // 2:
        raise invalid(owner, "min_path", f"at most {size * size // 2} for size {size}", min_path,
                      f"Leave it out: then it is {default_min_path(size)}.")  # fmt: skip
    return size, min_path


class MazeTask(Task):
    """Mazes, each with its canonical shortest path as label. Difficulty: `path_length`, the moves from S to G.

    Exact match is against that one path; `valid` accepts any shortest path.
    """

    @classmethod
    def open(cls, source: str = "generated") -> MazeTask:
        """The set a text names: "generated:n=1000:seed=0:size=30:min_path=109", or a folder in the npy format.

        >>> MazeTask.open("generated:n=2:size=8").seq_len
        64
        """
        kind, _, rest = source.partition(":")
        if kind in ("", "generated"):
            return cls.generated(**generated_options("maze", rest, ("n", "seed", "size", "min_path")))
        if Path(source).is_dir():
            return cls.from_dataset(source)
        raise InvalidFile(
            f"maze:{source} names no test set. Give generated:n=1000:seed=0:size=30, or a folder with dataset.json."
        )

    @classmethod
    def generated(cls, n: int = 1000, seed: int = 0, *, size: int = 30, min_path: int | None = None) -> MazeTask:
        """n different mazes, the same on every machine, from the sixteenth of all mazes kept for tests.

        >>> MazeTask.generated(3, seed=3, size=6, min_path=8).difficulty["path_length"].tolist()
        [8, 8, 9]
        """
        check_count("MazeTask.generated", "n", n)
        size, least = check_size("MazeTask.generated", size, min_path)
        inputs, labels = generate_mazes(n, seed, size=size, min_path=least, test=True)
        return cls.from_tokens(inputs, labels, origin=f"maze:generated:n={n}:seed={seed}:size={size}:min_path={least}")

    @classmethod
    def from_tokens(cls, inputs: Tokens, labels: Tokens, *, origin: str) -> MazeTask:
        """Mazes and answers as tokens, every answer checked to be a shortest path."""
        moves = verify_mazes(inputs, labels)
        difficulty = {"path_length": moves}
        return cls(
            name="maze", vocab_size=VOCAB, inputs=inputs, labels=labels, difficulty=difficulty, origin=origin
        )

    @classmethod
    def from_dataset(cls, folder: str | Path) -> MazeTask:
        """A folder in the released npy format, memory-mapped."""
        from looptaps.tasks.format import read_dataset

        dataset = read_dataset(folder)
        if dataset.meta.vocab_size != VOCAB:
            raise InvalidFile(
                f"{folder} has vocabulary {dataset.meta.vocab_size}, but mazes have {VOCAB} tokens. "
                "Is it another task's folder?"
            )
        return cls.from_tokens(dataset.inputs, dataset.labels, origin=f"maze:{folder}")

    def valid(self, ids: Tensor, predictions: Tensor) -> Tensor:
        """(B,) bool: whether each answer marks a connected shortest path, whichever, and changes nothing else."""
        inputs = np.asarray(self.inputs[ids.numpy()]).astype(np.uint8)
        right = np.zeros(len(inputs), np.bool_)
        check_mazes(inputs, predictions.clamp(0, 255).to(torch.uint8).cpu().numpy(), right)
        return torch.from_numpy(right)


def verify_mazes(inputs: Tokens, labels: Tokens) -> npt.NDArray[np.int64]:
    """The moves from S to G of each maze, after checking that the answer marks a shortest path."""
    mazes, answers = (np.ascontiguousarray(part, dtype=np.uint8) for part in (inputs, labels))
    maze_size(mazes.shape[1])
    moves = np.zeros(len(mazes), np.int64)
    right = np.zeros(len(mazes), np.bool_)
    label_mazes(mazes, np.empty_like(mazes), moves)
    check_mazes(mazes, answers, right)
    for wrong, what in (
        ((mazes < 1).any(1) | (mazes > 4).any(1), "has other tokens than wall 1, free 2, start 3, goal 4"),
        (moves == -2, "must have one start and one goal"),
        (moves == -1, "has no way from start to goal"),
        (~right, "has an answer that is not a shortest path"),
    ):
        if wrong.any():
            raise InvalidValue(f"maze: row {int(np.argmax(wrong))} {what}. Correct or remove that row.")
    return moves


def generate_mazes(
    n: int, seed: int = 0, *, size: int = 30, min_path: int | None = None, test: bool = False
) -> tuple[U8, U8]:
    """n different mazes and their answers as (n, size^2) tokens."""
    check_seed("maze", seed)
    size, least = check_size("maze", size, min_path)
    inputs = np.empty((0, size * size), np.uint8)
    drawn = 0
    while len(inputs) < n:
        more = np.empty((n - len(inputs), size * size), np.uint8)
        if not generate_rows(seed, TEST_MAZE if test else BUILD, drawn, size, least, test, more):
            raise too_rare(size, least)
        drawn += len(more)
        before = len(inputs)
        both = np.concatenate([inputs, more])
        inputs = both[np.sort(np.unique(both, axis=0, return_index=True)[1])]
        if len(inputs) - before < len(more) // 20 or drawn > 100 * n + 10_000:  # hardly anything new any more
            raise InvalidValue(
                f"maze: only {len(inputs)} different {size}x{size} mazes turned up in {drawn}, but n is {n}. "
                "Ask for fewer, or for larger mazes."
            )
    labels = np.empty_like(inputs)
    label_mazes(inputs, labels, np.zeros(n, np.int64))
    return inputs, labels


def too_rare(size: int, least: int) -> InvalidValue:
    """The sentence for a path length that random mazes do not reach."""
    return invalid("maze", "min_path", f"a length that random {size}x{size} mazes reach", least,
                   f"Lower it; {default_min_path(size)} is as hard as Maze-Hard.")  # fmt: skip


def maze_text(tokens: Tokens) -> str:
    """Draw a maze: '#' wall, ' ' free, S, G, 'o' path; '?' where a model predicts padding."""
    size = maze_size(len(tokens))
    symbols = [SYMBOLS[token] for token in np.asarray(tokens)]
    return "\n".join("".join(symbols[i : i + size]) for i in range(0, len(symbols), size))


def parse_maze(text: str) -> U8:
    """Read a maze drawn line by line with '#', ' ' (or '.'), 'S', 'G' and 'o'.

    >>> parse_maze("S..#\\n##.#\\n#...\\n#.#G").reshape(4, 4)[0]
    array([3, 2, 2, 1], dtype=uint8)
    """
    lines = text.strip("\r\n").splitlines()
    size = len(lines)
    uneven = next((i for i, line in enumerate(lines) if len(line) != size), None)
    if uneven is not None or not 4 <= size <= 100:
        found = f"are {size} lines"
        if uneven is not None:
            found = f"line {uneven + 1} of {size} has {len(lines[uneven])} characters"
        raise InvalidValue(f"A maze is a square of 4 to 100 lines of equal length, but here {found}. Complete it.")
    cells = "".join(lines).replace(".", " ")
    other = next((symbol for symbol in cells if symbol not in SYMBOLS[1:]), None)
    if other is not None:
        raise InvalidValue(f"A maze is drawn with '#', ' ' or '.', 'S', 'G' and 'o', but has {other!r}. Correct it.")
    return np.array([SYMBOLS.index(symbol) for symbol in cells], np.uint8)


def maze_fault(maze: Tokens, answer: Tokens) -> str | None:
    """Why an answer does not solve a maze, in a few words; None where it marks a shortest path, whichever.

    >>> maze = parse_maze("S..#\\n##.#\\n#...\\n#.#G")
    >>> maze_fault(maze, maze), maze_fault(maze, solve_maze(maze)[0])
    ('what it marks is no shortest path from S to G', None)
    """
    puzzle, given = np.asarray(maze), np.asarray(answer)
    size = maze_size(len(puzzle))
    changed = (given != puzzle) & ~((puzzle == SYMBOLS.index(" ")) & (given == SYMBOLS.index("o")))
    if changed.any():
        cell = int(np.argmax(changed))
        return (f"row {cell // size + 1}, column {cell % size + 1} is {SYMBOLS[given[cell]]!r} instead of "
                f"{SYMBOLS[puzzle[cell]]!r}")
    right = np.zeros(1, np.bool_)
    check_mazes(puzzle[None].astype(np.uint8), given[None].astype(np.uint8), right)
    return None if right[0] else "what it marks is no shortest path from S to G"


def solve_maze(tokens: Tokens) -> tuple[U8, int]:
    """The canonical shortest path of one maze, and its moves; a sentence when there is none."""
    maze = np.ascontiguousarray(tokens, np.uint8)[None]
    label, moves = np.empty_like(maze), np.zeros(1, np.int64)
    label_mazes(maze, label, moves)
    if moves[0] == -2:
        raise InvalidValue("A maze must have one S and one G. Mark both.")
    if moves[0] == -1:
        raise InvalidValue("This maze has no way from S to G. Check its walls.")
    return label[0], int(moves[0])


__all__ = [
    "MazeTask", "default_min_path", "generate_mazes", "maze_fault", "maze_text", "parse_maze", "solve_maze",
    "verify_mazes",
]  # fmt: skip
