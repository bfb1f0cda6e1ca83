"""What a training run shows: a live bar in a terminal, one line per interval elsewhere."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column


class Display:
    """Loss, exact accuracy by loop and time left. Shows nothing where `quiet` (other processes than the first)."""

    def __init__(self, name: str, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.console = Console(file=sys.stderr, soft_wrap=True)
        self.live = self.console.is_terminal and not quiet
        self.accuracy = ""
        self._progress: Progress | None = None
        self._task: Any = None
        self._name = name

    def __enter__(self) -> Display:
        if self.live:
            # The status takes what a narrow terminal leaves; the figures before it are never cut.
            whole = Column(no_wrap=True, min_width=7)
            columns = (BarColumn(bar_width=12), TextColumn("{task.percentage:>5.1f} %", table_column=whole),
                       TextColumn("{task.fields[status]}", table_column=Column(no_wrap=True, ratio=1)))
            self._progress = Progress(*columns, console=self.console, expand=True)
            self._progress.start()
            self._task = self._progress.add_task(self._name, total=1.0, status="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def advance(self, done: float) -> None:
        """Move the bar."""
        if self._progress is not None:
            self._progress.update(self._task, completed=done)

    def interval(self, line: dict[str, Any], done: float, left: float) -> None:
        """Report a logged line; `left` seconds remain."""
        status = (f"left {_clock(left)}  step {line['step']}  loss {line['loss']:.4f}  "
                  f"exact {100 * line['exact']:.1f} %  loops {line['loops']:.1f}  {self.accuracy}")
        if self._progress is not None:
            self._progress.update(self._task, completed=done, status=status)
        elif not self.quiet:
            self.say(f"{100 * done:5.1f} %  {status}  lr {line['lr']:.2e}  {line['per_second']:.0f}/s")

    def validated(self, line: dict[str, Any]) -> None:
        """Remember and report accuracy by loop."""
        parts = []
        for name, by_loop in line["exact"].items():
            parts.append(f"{name} " + " ".join(f"{loop}:{100 * share:.1f}" for loop, share in by_loop.items()))
        self.accuracy = "; ".join(parts)
        if not self.quiet and self._progress is None:
            self.say(f"        exact % by loop at step {line['step']}: {self.accuracy}")

    def say(self, text: str) -> None:
        """One line of text."""
        if not self.quiet:
            self.console.print(text, markup=False, highlight=False)


def _clock(seconds: float) -> str:
    if seconds == float("inf"):
        return "?"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
