"""Boards and scales of the first puzzles of a run, for people to look at: `traces.npz`.

    ids (n,)  inputs, labels (n, cells) uint8  boards (n, H, cells) uint8, the answer after every loop
    eta, balance, progress, fluctuation (n, U) float32, one column per decision of the controller, in all H loops

After a puzzle has stopped boards are 255 and numbers NaN; labels that are not scored are 255. A second pass over the
same batches, so that the timed pass of the run records nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from looptaps.evaluation.measure import Policy, device_of, to_device
from looptaps.strategies import RunTrace
from looptaps.tasks.base import Task

NOTHING = 255  # no token of a task is as large


def write_traces(
    path: Path, model: Any, task: Task, policy: Policy, *, count: int, batch_size: int, n: int, seed: int, horizon: int
) -> None:
    """Run the batches that hold the first `count` puzzles once more, and write what happened."""
    parts: list[dict[str, NDArray[Any]]] = []
    for part in task.batches(batch_size, limit=n):
        if int(part.ids[0]) >= count:
            break
        batch = to_device(part.batch, device_of(model))
        result = policy.strategy.run(model, batch, policy.control, seed=seed, ids=part.ids, trace=True)
        parts.append({
            "ids": np.asarray(part.ids, np.int64),
            "inputs": _tokens(part.batch["inputs"]),
            "labels": _tokens(part.batch["labels"]),
            "boards": _boards(result.trace, result.output, result.loops, horizon),
            **_decisions(result.trace, len(part.ids), horizon),
        })
    joined = {name: np.concatenate([part[name] for part in parts])[:count] for name in parts[0]}
    draft = path.with_name(f".{path.name}.part")
    with draft.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **joined)
    os.replace(draft, path)


def _tokens(values: Tensor) -> NDArray[np.uint8]:
    return torch.where((values < 0) | (values >= NOTHING), NOTHING, values).cpu().numpy().astype(np.uint8)


def _boards(trace: RunTrace, output: Tensor, loops: Tensor, horizon: int) -> NDArray[np.uint8]:
    answers = trace.answers.transpose(0, 1)
    boards = np.full((answers.shape[0], horizon, answers.shape[2]), NOTHING, np.uint8)
    boards[:, : answers.shape[1]] = _tokens(answers)[:, :horizon]
    boards[np.arange(len(boards)), loops.cpu().numpy() - 1] = _tokens(output)  # the answer that the strategy gives
    return boards


def _decisions(trace: RunTrace, size: int, horizon: int) -> dict[str, NDArray[np.float32]]:
    names = ("eta", "balance", "progress", "fluctuation")
    width = 0 if trace.steps is None else horizon * (trace.steps.eta.shape[0] // trace.answers.shape[0])
    found = {name: np.full((size, width), np.nan, np.float32) for name in names}
    for name in names:
        values = getattr(trace.steps, name, None)
        if values is not None:  # in token scope the mean over positions
            table = values.float() if values.ndim == 2 else values.float().mean(-1)
            rows = table[:width].T.cpu().numpy()
            found[name][:, : rows.shape[1]] = rows
    return found
