"""Accuracy after every loop: one policy, one task, all puzzles to the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from looptaps.errors import invalid
from looptaps.loop import LoopModel, Memory, as_control
from looptaps.tasks.base import Task, score


class Curve(NamedTuple):
    """What a policy did: `correct` (N, H) after each loop, `eta` (N, H) the mean scale in it, `ids` (N,), seconds."""

    ids: NDArray[np.int64]
    correct: NDArray[np.bool_]
    eta: NDArray[np.float32]
    seconds: float

    @property
    def accuracy(self) -> list[float]:
        """The share of puzzles that are exact after each loop."""
        return [float(share) for share in self.correct.mean(0)]

    @property
    def mean_eta(self) -> float:
        """Over puzzles and loops: the constant that is beside this policy in every comparison."""
        return float(self.eta.mean(dtype=np.float64))


def accuracy_curve(
    model: LoopModel[Any],
    task: Task,
    control: Any,
    loops: int,
    *,
    limit: int | None = None,
    batch_size: int = 64,
    progress: Callable[[int], None] | None = None,
) -> Curve:
    """Run every puzzle for `loops` outer loops under one policy and score the answer after each.

    Args:
        model: any `LoopModel`.
        task: the puzzles.
        control: a controller or a `Control`.
        loops: the horizon H.
        limit: the first so many puzzles only.
        batch_size: puzzles at a time; scores do not depend on it beyond the last bits of a matrix product.
        progress: told the number of puzzles that each finished batch had.
    """
    if isinstance(loops, bool) or not isinstance(loops, int) or loops < 1:
        raise invalid("accuracy_curve", "loops", "a whole number >= 1", loops, "The paper runs 32 on Sudoku.")
    control = as_control(control)
    ids, correct, etas = [], [], []
    started = time.perf_counter()
    with torch.inference_mode():
        for part in task.batches(batch_size, limit=limit):
            carry, memory = model.begin(part.batch), None
            exact, scales = [], []
            for _ in range(loops):
                memory_before: Memory | None = memory
                carry, memory, stats = model.advance(carry, control, memory_before)
                predictions = model.readout(carry).logits.argmax(-1)
                exact.append(np.asarray(score(predictions, part.batch).exact))
                scales.append(stats.mean_eta.float().cpu().numpy())
            ids.append(np.asarray(part.ids))
            correct.append(np.stack(exact, axis=1))
            etas.append(np.stack(scales, axis=1))
            if progress is not None:
                progress(len(part.ids))
    seconds = time.perf_counter() - started
    return Curve(np.concatenate(ids), np.concatenate(correct), np.concatenate(etas), seconds)


def join_curves(parts: list[Curve]) -> Curve:
    """Curves of one policy over parts of a task, as one."""
    ids, correct, eta, seconds = zip(*parts, strict=True)
    return Curve(np.concatenate(ids), np.concatenate(correct), np.concatenate(eta), sum(seconds))
