"""Options that every script has, and what they name: a model, puzzles, a device."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

import looptaps as lt
from common.puzzles import open_puzzles
from looptaps.tasks.base import Task, TaskBatch

RESULTS = Path(__file__).parents[1] / "results"


class Setting(NamedTuple):
    """A model and puzzles, both on the device; `batches` holds all puzzles in order."""

    model: Any
    task: Task
    batches: list[TaskBatch]
    device: torch.device
    options: argparse.Namespace


def parser(name: str, doc: str, *, limit: int, full: int, batch_size: int) -> argparse.ArgumentParser:
    """The options all scripts share. A plain call is short; `--full` is what the record is made with."""
    found = argparse.ArgumentParser(prog=name, description=doc.splitlines()[0])
    found.add_argument("--model", default="trm:sudoku", help="a bundled model (trm:sudoku), kind:path, or a TRM's path")
    found.add_argument("--puzzles", default="sudoku:generated:n={n}:seed=1",
                       help="as open_task reads it ({n}: the limit), or a .npz that common/puzzles.py wrote")
    found.add_argument("--limit", type=int, help=f"the first so many puzzles (default {limit})")
    found.add_argument("--full", action="store_true", help=f"{full} puzzles and every cell, as in the record")
    found.add_argument("--batch-size", type=int, default=batch_size)
    found.add_argument("--device", default="cpu", help="cpu, cuda, ...")
    found.add_argument("--threads", type=int, default=1, help="of the CPU")
    found.add_argument("--compile", action="store_true", help="compile the core (Inductor)")
    found.add_argument("--dtype", help="in which the core computes; left out, the model's own")
    found.add_argument("--commit", help="of this code, where the folder is no checkout")
    found.add_argument("--out", type=Path, default=None, help=f"the record (default: benchmarks/results/{name}.json "
                       "with --full, else none)")
    found.set_defaults(name=name, default_limit=limit, full_limit=full)
    return found


def open_setting(options: argparse.Namespace) -> Setting:
    """Everything the options name."""
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    model = load(options.model, options.dtype).to(device).eval()
    if options.compile:
        # Batches shrink as samples leave: one dynamic graph serves all sizes.
        model.compile_core(dynamic=True)
    limit = options.limit or (options.full_limit if options.full else options.default_limit)
    task = open_puzzles(options.puzzles, limit)
    if options.out is None and options.full:
        options.out = RESULTS / f"{options.name}.json"
    batches = [
        TaskBatch(part.ids, {name: value.to(device) for name, value in part.batch.items()})
        for part in task.batches(options.batch_size)
    ]
    return Setting(model, task, batches, device, options)


def load(text: str, dtype: str | None) -> Any:
    """A model by `kind:name`, or a TRM by its path."""
    from looptaps.evaluation.measure import with_dtype

    kind, colon, _ = text.partition(":")
    model = lt.load_model(text) if colon and not Path(text).exists() and kind else lt.load_model("trm", text)
    return with_dtype(model, dtype)


def timed(device: torch.device, go: Callable[[], Any]) -> tuple[Any, float]:
    """What a call gives, and its wall-clock seconds, the device's queue included."""
    _wait(device)
    started = time.perf_counter()
    value = go()
    _wait(device)
    return value, time.perf_counter() - started


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
