"""From a recipe's data section to a training stream and the puzzles that validate it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from looptaps.errors import InvalidUse, InvalidValue, unknown
from looptaps.tasks.base import Task, Tokens
from looptaps.tasks.stream import MixedStream, Stream
from looptaps.train.recipe import Recipe

_TASKS = ("sudoku", "maze")


class TrainingData(NamedTuple):
    """What training draws from, the sets that validate it (by name), and where rows came from (file: sha256)."""

    stream: Stream
    validation: dict[str, Task]
    files: dict[str, str]


def make_data(recipe: Recipe, files: Sequence[Path] = (), *, rank: int = 0, world_size: int = 1) -> TrainingData:
    """The stream and validation sets of a recipe; `files` are rows to mix in (Sudoku-Extreme's csv format).

    Generated validation puzzles are of the part of all puzzles that streams never emit; validation rows are the last
    of the files, kept out of training.
    """
    data = recipe.data
    if data.task not in _TASKS:
        raise unknown("task to train on", data.task, _TASKS)
    if files and data.task != "sudoku":
        raise InvalidUse(f"Rows from files can be mixed into Sudoku training alone, but the task is {data.task!r}. "
                         "Leave --data out.")
    generated = _generated(recipe, rank)
    if not files:
        return TrainingData(generated, {"generated": _validation(recipe)}, {})
    from looptaps.tasks.sudoku import SudokuTask
    from looptaps.tasks.sudoku_stream import SudokuRows

    inputs, labels, digests = _read(files)
    held = data.rows_held_out
    if held >= len(inputs):
        raise InvalidValue(f"data.rows_held_out is {held}, but the files have {len(inputs)} rows in all. "
                           "Hold out fewer, or give more rows.")
    cut = len(inputs) - held
    # Files may repeat a puzzle; what validates must not be trained on.
    kept = {row.tobytes() for row in inputs[cut:]}
    train = np.array([i for i in range(cut) if inputs[i].tobytes() not in kept])
    rows = SudokuRows(inputs[train], labels[train], extra=data.rows_extra, seed=recipe.seed, rank=rank,
                      world_size=world_size)
    parts: list[tuple[float, Stream]] = [(1 - data.rows_share, generated), (data.rows_share, rows)]
    validation: dict[str, Task] = {"generated": _validation(recipe)}
    if held:
        validation["rows"] = SudokuTask.from_tokens(inputs[cut:], labels[cut:], origin="held-out rows")
    return TrainingData(MixedStream(parts, seed=recipe.seed, rank=rank), validation, digests)


def _read(files: Sequence[Path]) -> tuple[Tokens, Tokens, dict[str, str]]:
    from looptaps.tasks.sudoku import verify
    from looptaps.tasks.sudoku_csv import read_csv

    tables = [read_csv(path) for path in files]
    for path, table in zip(files, tables, strict=True):  # a second for 50,000 rows; a wrong answer would be learned
        verify(table.inputs, table.labels, owner=path)
    digests = {Path(path).name: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in files}
    return np.concatenate([t.inputs for t in tables]), np.concatenate([t.labels for t in tables]), digests


def _generated(recipe: Recipe, rank: int) -> Stream:
    data = recipe.data
    if data.task == "sudoku":
        from looptaps.tasks.sudoku_stream import SudokuStream, SudokuStreamConfig

        config = _config(SudokuStreamConfig, {**data.options, "extra": data.extra, "seed": recipe.seed})
        return SudokuStream(config, rank=rank)
    from looptaps.tasks.maze_stream import MazeStream, MazeStreamConfig

    return MazeStream(_config(MazeStreamConfig, {**data.options, "seed": recipe.seed}), rank=rank)


def _config(cls: Any, values: dict[str, Any]) -> Any:
    for key in values:
        if key not in cls.__dataclass_fields__:
            raise unknown("option of [data.options]", key, cls.__dataclass_fields__)
    return cls(**values)


def _validation(recipe: Recipe) -> Task:
    count, seed = recipe.validation.puzzles, recipe.validation.seed
    if recipe.data.task == "sudoku":
        from looptaps.tasks.sudoku import SudokuTask

        rows, columns = recipe.data.options.get("box", (3, 3))
        return SudokuTask.generated(count, seed, box=(rows, columns))
    from looptaps.tasks.maze import MazeTask

    shape = {key: value for key, value in recipe.data.options.items() if key in ("size", "min_path")}
    return MazeTask.generated(count, seed, **shape)


