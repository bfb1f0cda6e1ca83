"""A batch under one policy: the answer after every loop, what it cost, and the seconds of computing alone.

All measuring goes through here: accuracy curves, comparisons of policies, and runs in folders. Shapes: B puzzles, H
outer loops (the horizon), n cells. Needs torch and numpy only.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from looptaps.errors import InvalidUse, invalid
from looptaps.loop import Control
from looptaps.strategies import FixedDepth, Result, Rollouts, Status, StoppingRule, View, any_right, serve_loop
from looptaps.strategies.text import strategy_spec, strategy_text
from looptaps.tasks.base import Batch, TaskBatch, score

Flags = NDArray[np.bool_]


class Policy(NamedTuple):
    """What is measured: a controller or `Control`, and a strategy, its text, or None for fixed depth."""

    control: Any
    strategy: Any = None


class Measured(NamedTuple):
    """What a batch gave, puzzle by puzzle in the order of the task.

    `correct` (B, H) and `eta` (B, H) by loop: after a puzzle has stopped, its last answer stands and eta is NaN.
    `loops`, `updates`, `updates_high`, `status`, `mean_eta`, `score` and `any` as in `Result`; the last two may be
    None.
    """

    ids: NDArray[np.int64]
    correct: Flags
    eta: NDArray[np.float32]
    loops: NDArray[np.int64]
    updates: NDArray[np.int64]
    updates_high: NDArray[np.int64]
    status: list[str]
    mean_eta: NDArray[np.float64]
    score: NDArray[np.float64] | None
    any: Flags | None
    seconds: float


def device_of(model: Any) -> torch.device:
    """Where a model computes: the device of its weights; the CPU for models without any."""
    weights = next(iter(model.parameters()), None) if callable(getattr(model, "parameters", None)) else None
    return torch.device("cpu") if weights is None else weights.device


def to_device(batch: Batch, device: torch.device) -> Batch:
    """The batch where the model is."""
    return {name: value.to(device) for name, value in batch.items()}


def resolve_strategy(strategy: Any, loops: int | None, model: Any, batch: Batch) -> tuple[Any, int]:
    """The strategy with its horizon filled in, and that horizon in outer loops.

    Args:
        strategy: an object; a text that may leave its horizon out (`adaptive-exit`, `rollouts:n=25`); or None.
        loops: the horizon where the strategy does not name its own. Both may be given if they agree.
        model: the model, of whose outer loop the updates are counted for `fixed-point`.
        batch: a batch of the task.
    """
    if loops is not None and (isinstance(loops, bool) or not isinstance(loops, int) or loops < 1):
        raise invalid("run", "loops", "a whole number >= 1", loops, "The paper runs 32 on Sudoku.")
    per_loop = _updates_per_loop(model, batch) if "fixed-point" in _words(strategy) else 1
    if strategy is None or isinstance(strategy, str):
        strategy = strategy_spec(_with_horizon(strategy or "fixed-depth", loops, per_loop))
    if not isinstance(strategy, StoppingRule | Rollouts):
        raise invalid("run", "strategy", "a strategy, its text, or None", strategy, "Use 'fixed-depth:loops=32'.")
    inner = strategy.inner if isinstance(strategy, Rollouts) else strategy
    own = inner.limit // per_loop
    cap = getattr(getattr(model, "config", None), "max_iter_eval", None)
    if type(inner).__name__ == "FPRMRule" and cap is not None:
        own = min(own, cap)
    if own < 1:
        raise invalid("run", "strategy", f"one of at least {per_loop} updates, an outer loop of this model",
                      strategy_text(strategy), "Only whole outer loops have an answer.")
    if loops is not None and own != loops:
        raise invalid("run", "loops", f"{own}, the horizon of {strategy_text(strategy)}, or left out", loops,
                      "Say the horizon once.")
    return strategy, own


def _words(strategy: Any) -> str:
    """A strategy's text, to find names in."""
    if strategy is None or isinstance(strategy, str):
        return strategy or ""
    return strategy_text(strategy) if isinstance(strategy, StoppingRule | Rollouts) else ""


# What the horizon is called, by strategy.
_HORIZON = {"fixed-depth": "loops", "fixed-point": "max_updates"}


def _with_horizon(text: str, loops: int | None, per_loop: int) -> str:
    own, nested, inner = text.partition(":inner=")
    name = own.partition(":")[0]
    if name == "rollouts":
        return f"{own}:inner={_with_horizon(inner or 'fixed-depth', loops, per_loop)}"
    field = _HORIZON.get(name, "max_loops")
    if loops is None or any(part.startswith(f"{field}=") for part in own.split(":")[1:]):
        return own + nested + inner
    return f"{own}:{field}={loops * per_loop}{nested}{inner}"


def _updates_per_loop(model: Any, batch: Batch) -> int:
    from looptaps.controllers import Standard

    one = {name: value[:1] for name, value in batch.items()}
    return int(FixedDepth(1).run(model, to_device(one, device_of(model)), Control(Standard())).updates[0])


def warm_up(model: Any, batch: Batch, policy: Policy) -> None:
    """One outer loop, untimed: allocations, kernels and caches are not what is measured.

    A compiled core also sees a smaller batch and a single puzzle, so that it compiles for every size here, and in the
    same order in a run that goes on.
    """
    size = len(batch["inputs"])
    for rows in sorted({size, max(size - 1, 1), 1}, reverse=True) if is_compiled(model) else (size,):
        part = {name: value[:rows] for name, value in batch.items()}
        FixedDepth(1).run(model, to_device(part, device_of(model)), policy.control, trace="loops")


def is_compiled(model: Any) -> bool:
    """Whether the model's cores are compiled."""
    cores = getattr(model, "cores", None)
    return callable(cores) and any(getattr(core, "_compiled_call_impl", None) is not None for core in cores())


def compile_core(model: Any) -> None:
    """Compile a model's cores, once."""
    if not callable(getattr(model, "compile_core", None)):
        raise InvalidUse(f"run: compile needs a model with compile_core(); {type(model).__name__} has none. "
                         "Leave compile out.")
    if not is_compiled(model):
        model.compile_core()


def measure(model: Any, part: TaskBatch, policy: Policy, horizon: int, *, seed: int = 0) -> Measured:
    """One batch, whole. The strategy must be an object (see `resolve_strategy`)."""
    device = device_of(model)
    batch = to_device(part.batch, device)
    started = _now(device)
    result = policy.strategy.run(model, batch, policy.control, seed=seed, ids=part.ids, trace="loops")
    seconds = _now(device) - started
    trace = result.trace
    exact = torch.stack([score(answers, batch).exact for answers in trace.answers.long()]).T
    any_of = None
    if result.rollouts is not None:
        any_of = any_right(result, lambda answers: score(answers, batch).exact)
    return _measured(part.ids, batch, result, exact, trace.mean_eta.T, horizon, any_of, seconds)


def measure_refilled(
    model: Any, part: TaskBatch, policy: Policy, horizon: int, *, capacity: int, seed: int = 0
) -> Measured:
    """Many puzzles, `capacity` at a time: places that become free are taken by those who wait."""
    device = device_of(model)
    batch = to_device(part.batch, device)
    row_of = {int(sample): row for row, sample in enumerate(part.ids.tolist())}
    exact = torch.zeros(len(part.ids), horizon, dtype=torch.bool, device=device)
    etas = torch.full((len(part.ids), horizon), torch.nan, device=device)

    def watch(ids: list[int], view: View) -> None:
        assert view.answer is not None
        rows = torch.tensor([row_of[sample] for sample in ids], device=device)
        labels = {name: batch[name][rows] for name in ("inputs", "labels")}
        exact[rows, view.loops - 1] = score(view.answer, labels).exact
        etas[rows, view.loops - 1] = view.stats.mean_eta.float()

    started = _now(device)
    served = list(serve_loop(policy.strategy, model, _stream(part, device), policy.control, batch_size=capacity,
                             seed=seed, watch=watch))
    seconds = _now(device) - started
    order = torch.cat([done.ids for done in served]).argsort()
    result = Result.join([done.result for done in served]).select(order.to(device))
    return _measured(part.ids, batch, result, exact, etas, horizon, None, seconds)


def _stream(part: TaskBatch, device: torch.device) -> Iterator[tuple[Tensor, Batch]]:
    yield part.ids, to_device(part.batch, device)


def _measured(
    ids: Tensor, batch: Batch, result: Result, exact: Tensor, etas: Tensor, horizon: int, any_of: Tensor | None,
    seconds: float,
) -> Measured:
    loops = result.loops.cpu().numpy()
    by_loop = exact.cpu().numpy()
    correct = np.zeros((len(loops), horizon), bool)
    correct[:, : by_loop.shape[1]] = by_loop[:, :horizon]
    # The final answer is the strategy's own: of the loop before, where a state went bad.
    final = score(result.output, batch).exact.cpu().numpy()
    after = np.arange(horizon) >= loops[:, None] - 1
    correct = np.where(after, final[:, None], correct)
    eta = np.full((len(loops), horizon), np.nan, np.float32)
    found = etas.float().cpu().numpy()
    eta[:, : found.shape[1]] = found[:, :horizon]
    eta[np.arange(horizon) >= loops[:, None]] = np.nan
    return Measured(
        ids=np.asarray(ids, np.int64),
        correct=correct,
        eta=eta,
        loops=loops,
        updates=result.updates.cpu().numpy(),
        updates_high=result.updates_high.cpu().numpy(),
        status=[Status(code).name for code in result.status.tolist()],
        mean_eta=result.mean_eta.double().cpu().numpy(),
        score=None if result.score is None else result.score.double().cpu().numpy(),
        any=None if any_of is None else any_of.cpu().numpy(),
        seconds=seconds,
    )


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def rows_of(found: Measured, difficulty: dict[str, NDArray[Any]]) -> list[dict[str, Any]]:
    """One plain JSON object per puzzle: what a line of `samples.jsonl` holds. `difficulty` is of these puzzles."""
    rows = []
    for i, sample in enumerate(found.ids.tolist()):
        loops = int(found.loops[i])
        row: dict[str, Any] = {
            "id": sample,
            "difficulty": {name: _number(values[i]) for name, values in difficulty.items()},
            "correct": "".join("01"[flag] for flag in found.correct[i, :loops].tolist()),
            "loops": loops,
            "updates": int(found.updates[i]),
            "updates_high": int(found.updates_high[i]),
            "status": found.status[i],
            "score": None if found.score is None else _number(found.score[i], 5),
            "eta": _number(found.mean_eta[i], 6),
            "eta_by_loop": [_number(value, 4) for value in found.eta[i, :loops]],
        }
        if found.any is not None:
            row["any"] = bool(found.any[i])
        rows.append(row)
    return rows


def _number(value: Any, digits: int | None = None) -> int | float | None:
    """A plain number; None for what is not finite, since JSON has no word for it."""
    if isinstance(value, int | np.integer):
        return int(value)
    plain = float(value)
    if not math.isfinite(plain):
        return None
    return plain if digits is None else round(plain, digits)


def with_dtype(model: Any, dtype: str | None) -> Any:
    """The model with its cores computing in another dtype; itself where nothing changes."""
    config = getattr(model, "config", None)
    if dtype is None or (config is not None and getattr(config, "forward_dtype", None) == dtype):
        return model
    if config is None or not hasattr(config, "forward_dtype"):
        raise InvalidUse(f"run: dtype {dtype!r} needs a model of this package; {type(model).__name__} has no config "
                         "with forward_dtype. Leave dtype out.")
    other = dataclasses.replace(config, forward_dtype=dtype)
    return type(model).from_weights(other, model.state_dict(), "this model").to(device_of(model))
