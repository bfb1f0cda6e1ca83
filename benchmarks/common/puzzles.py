"""Puzzles for a benchmark: a task's text, or a .npz file, which needs no generator where the benchmark runs.

    python benchmarks/common/puzzles.py sudoku:generated:n=4096:seed=1 puzzles.npz       # write such a file
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from looptaps.tasks.base import Task, open_task


def open_puzzles(text: str, limit: int) -> Task:
    """The first `limit` puzzles of a set."""
    task = read(Path(text)) if text.endswith(".npz") else open_task(text.replace("{n}", str(limit)))
    if len(task) < limit:
        raise SystemExit(f"{text} holds {len(task)} puzzles, and {limit} were asked for. Use --limit or a larger set.")
    return task if len(task) == limit else task.select(slice(0, limit))


def read(path: Path) -> Task:
    """A set that `write` wrote."""
    with np.load(path) as data:
        difficulty = {name.removeprefix("difficulty_"): data[name] for name in data if name.startswith("difficulty_")}
        return Task(name=str(data["name"]), vocab_size=int(data["vocab_size"]), inputs=data["inputs"],
                    labels=data["labels"], difficulty=difficulty, origin=str(data["origin"]))


def write(text: str, path: Path) -> None:
    """A task as a file."""
    task = open_task(text)
    np.savez_compressed(
        path, name=np.array(task.name), vocab_size=np.array(task.vocab_size), origin=np.array(task.origin),
        inputs=np.asarray(task.inputs, np.uint8), labels=np.asarray(task.labels, np.uint8),
        **{f"difficulty_{name}": np.asarray(values) for name, values in task.difficulty.items()},
    )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(str(__doc__))
    write(sys.argv[1], Path(sys.argv[2]))
