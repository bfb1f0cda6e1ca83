"""What happened on the way, per outer loop and per decision; NaN (answers: -1) after a sample has stopped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from looptaps.errors import invalid
from looptaps.loop import Trace
from looptaps.strategies.base import Result, View


@dataclass(frozen=True, eq=False)
class RunTrace:
    """One row per outer loop (T) or per decision (K), one column per sample.

    Args:
        answers: (T, B, n) int32, the answer after each loop.
        score: (T, B) the score of that answer; None if the model has none.
        signal: (T, B) what the stopping rule compares (see each rule); None if it compares nothing.
        residual: (T, B) mean square of the loop's last z_L residual.
        mean_eta: (T, B) mean scale of the loop's updates.
        steps: (K, B) every decision of the controller: eta, progress, fluctuation, balance; `finite` is False where
            nothing was measured any more. In token scope (K, B, N).
        moves: (K, B) the relative move of every z_L update, for rules that need it; else None.
    """

    answers: Tensor
    score: Tensor | None
    signal: Tensor | None
    residual: Tensor
    mean_eta: Tensor
    steps: Trace | None
    moves: Tensor | None

    def select(self, columns: Tensor) -> RunTrace:
        """Some of the samples, or all in another order."""
        steps = self.steps
        if steps is not None:
            steps = Trace(*(None if part is None else part[:, columns] for part in steps))  # type: ignore[arg-type]
        tables: dict[str, Any] = {
            name: None if part is None else part[:, columns]
            for name, part in ((name, getattr(self, name)) for name in _TABLES)
        }
        return RunTrace(steps=steps, **tables)


_TABLES = ("answers", "score", "signal", "residual", "mean_eta", "moves")


# What a strategy's `run` takes as `trace`: nothing, everything, or all but the controller's decisions, which costs no
# more than an answer per loop.
TraceOption = bool | Literal["loops"]


def recorder_for(trace: TraceOption, size: int) -> Recorder | None:
    """The recorder that `trace` asks for."""
    if not isinstance(trace, bool) and trace != "loops":
        raise invalid("run", "trace", "True, False or 'loops'", trace, "'loops' records answers after every loop.")
    return Recorder(size, steps=trace is True) if trace else None


class Recorder:
    """Collects a `RunTrace` while a batch runs; all samples must start together. With `steps`, every decision too."""

    def __init__(self, size: int, steps: bool = True) -> None:
        self.size = size
        self.steps = steps
        self._tables: dict[str, list[Tensor]] = {}

    def note(self, places: list[int], view: View, signal: Tensor | None) -> None:
        """One outer loop of those who were running."""
        assert view.readout is not None and view.answer is not None  # noqa: PT018 (the driver reads when it records)
        stats = view.stats
        rows = {
            "answers": view.answer.int()[None],
            "score": None if view.readout.score is None else view.readout.score.float()[None],
            "signal": None if signal is None else signal[None],
            "residual": stats.residuals[-1:],
            "mean_eta": stats.mean_eta[None],
            "moves": stats.moves,
            **({} if stats.trace is None else stats.trace._asdict()),
        }
        columns = torch.tensor(places, device=view.answer.device)
        for name, part in rows.items():
            if part is not None:
                self._tables.setdefault(name, []).append(self._scatter(part, columns))

    def attach(self, result: Result) -> Result:
        """The result with its trace."""
        return replace(result, trace=self.trace())

    def trace(self) -> RunTrace:
        """What was recorded."""
        parts = {name: torch.cat(rows) for name, rows in self._tables.items()}
        steps = None
        if "eta" in parts:
            steps = Trace(parts["eta"], parts["finite"], parts.get("progress"), parts.get("fluctuation"),
                          parts.get("balance"))
        return RunTrace(
            answers=parts["answers"],
            score=parts.get("score"),
            signal=parts.get("signal"),
            residual=parts["residual"],
            mean_eta=parts["mean_eta"],
            steps=steps,
            moves=parts.get("moves"),
        )

    def _scatter(self, part: Tensor, columns: Tensor) -> Tensor:
        empty: float | int | bool = torch.nan
        if not part.is_floating_point():
            empty = False if part.dtype == torch.bool else -1
        full = part.new_full((part.shape[0], self.size, *part.shape[2:]), empty)
        full[:, columns] = part
        return full


def stack_columns(traces: list[RunTrace]) -> RunTrace:
    """Traces of different samples side by side; the shorter ones are filled with NaN (answers: -1)."""

    def side_by_side(parts: list[Tensor | None]) -> Tensor | None:
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        longest = max(part.shape[0] for part in known)
        return torch.cat([_lengthen(part, longest) for part in known], dim=1)

    tables: dict[str, Any] = {name: side_by_side([getattr(trace, name) for trace in traces]) for name in _TABLES}
    steps = None
    if all(trace.steps is not None for trace in traces):
        columns = zip(*(trace.steps for trace in traces if trace.steps is not None), strict=True)
        steps = Trace(*(side_by_side(list(column)) for column in columns))  # type: ignore[arg-type]
    return RunTrace(steps=steps, **tables)


def _lengthen(part: Tensor, rows: int) -> Tensor:
    empty: float | int | bool = torch.nan
    if not part.is_floating_point():
        empty = False if part.dtype == torch.bool else -1
    return torch.cat((part, part.new_full((rows - part.shape[0], *part.shape[1:]), empty)))
