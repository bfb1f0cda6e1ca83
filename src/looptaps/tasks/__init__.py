"""What the models work on: Sudoku and mazes, generated, read from released files, streamed for training.

Names load on first use, so that asking which tasks there are compiles nothing.

>>> list(TASKS)[:2]
['maze', 'sudoku']
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from looptaps.registry import Registry

if TYPE_CHECKING:
    from looptaps.tasks.base import Batch, Scores, Task, TaskBatch, open_task, overlap, score
    from looptaps.tasks.maze import MazeTask
    from looptaps.tasks.maze_stream import MazeRows, MazeStream, MazeStreamConfig
    from looptaps.tasks.stream import MixedStream, RowStream, Stream
    from looptaps.tasks.sudoku import SudokuTask
    from looptaps.tasks.sudoku_stream import SudokuRows, SudokuStream, SudokuStreamConfig

TASKS = Registry(
    "tasks",
    {
        "sudoku": "looptaps.tasks.sudoku:SudokuTask",
        "maze": "looptaps.tasks.maze:MazeTask",
    },
)

_NAMES = {
    **dict.fromkeys(
        ("Batch", "Scores", "Task", "TaskBatch", "open_task", "overlap", "score"), "looptaps.tasks.base"
    ),
    "MazeTask": "looptaps.tasks.maze",
    **dict.fromkeys(("MazeRows", "MazeStream", "MazeStreamConfig"), "looptaps.tasks.maze_stream"),
    **dict.fromkeys(("MixedStream", "RowStream", "Stream"), "looptaps.tasks.stream"),
    "SudokuTask": "looptaps.tasks.sudoku",
    **dict.fromkeys(("SudokuRows", "SudokuStream", "SudokuStreamConfig"), "looptaps.tasks.sudoku_stream"),
}

__all__ = [
    "TASKS",
    "Batch",
    "MazeRows",
    "MazeStream",
    "MazeStreamConfig",
    "MazeTask",
    "MixedStream",
    "RowStream",
    "Scores",
    "Stream",
    "SudokuRows",
    "SudokuStream",
    "SudokuStreamConfig",
    "SudokuTask",
    "Task",
    "TaskBatch",
    "open_task",
    "overlap",
    "score",
]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'looptaps.tasks' has no attribute {name!r}")
    value = getattr(import_module(_NAMES[name]), name)
    globals()[name] = value
    return value
