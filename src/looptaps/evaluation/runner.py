"""`run`: one policy, one task, a folder. `run_many`: several policies, batch by batch in turns, a folder each.

Turns matter for the clock: whatever else the machine does falls on all policies alike, so their seconds may be
compared. Batches are those of the task in order, random numbers belong to samples: a run that was killed goes on at
its last whole batch and ends with the same file.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

import looptaps
from looptaps.controllers import Constant
from looptaps.errors import InvalidUse
from looptaps.evaluation.folder import SAMPLES, SCHEMA, TRACES, RunFolder
from looptaps.evaluation.measure import (
    Policy,
    compile_core,
    device_of,
    is_compiled,
    measure,
    measure_refilled,
    resolve_strategy,
    rows_of,
    warm_up,
    with_dtype,
)
from looptaps.evaluation.provenance import device_facts, git_state, model_facts, now, versions
from looptaps.evaluation.records import Run, load_run
from looptaps.evaluation.traces import write_traces
from looptaps.loop import Control, as_control
from looptaps.specs import spec_text
from looptaps.strategies import Rollouts
from looptaps.strategies.text import strategy_text
from looptaps.tasks.base import Task, TaskBatch, check_count, check_seed

TIMED = (
    "Seconds of computing alone: the strategy on a batch that is already on the device, its answer after every loop "
    "included; the device is synchronised before and after. One outer loop of warm-up, untimed."
)
# A refilled run is written in pieces of so many batches; at the end of each the places are no longer refilled.
REFILL_SPAN = 16


def run(
    model: Any,
    task: Task,
    control: Any,
    strategy: Any = None,
    *,
    out: str | Path,
    loops: int | None = None,
    limit: int | None = None,
    seed: int = 0,
    batch_size: int = 64,
    dtype: str | None = None,
    compile: bool = False,
    trace: int = 0,
    refill: bool = False,
    recipe: Mapping[str, Any] | None = None,
    name: str | None = None,
    model_spec: str | None = None,
    task_spec: str | None = None,
    commit: str | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Run:
    """Measure one policy and write the folder; go on with a run that was stopped; load one that is complete.

    Args:
        model: any `LoopModel`; it is run where it is (`model.to("cuda")` moves it).
        task: the puzzles.
        control: a controller or a `Control`.
        strategy: a strategy or its text; its horizon may be left to `loops`. None is fixed depth.
        out: the folder. One that holds a run with other settings is refused.
        loops: the horizon H in outer loops.
        limit: the first so many puzzles only.
        seed: of noise and random initial states, drawn per sample.
        batch_size: puzzles at a time.
        dtype: what the model's cores compute in, such as "float32"; None leaves it.
        compile: compile the cores first (`model.compile_core()`), which makes them several times faster on a CPU.
        trace: for how many of the first puzzles boards and scales are kept, in a second, untimed pass.
        refill: fill free places from the puzzles that wait, as a server does.
        recipe: {"name": ..., "hash": ...} of the recipe this belongs to.
        name: of the run; the folder's if left out.
        model_spec, task_spec: the texts that name them, for the record.
        commit: what to record as this package's commit where it is in no checkout.
        progress: told the name and the number of puzzles after each batch.
    """
    out = Path(out)
    own = name or out.resolve().name
    return _run_all(
        model, task, {own: (Policy(control, strategy), out)}, loops=loops, limit=limit, seed=seed,
        batch_size=batch_size, dtype=dtype, compile=compile, trace=trace, refill=refill, recipe=recipe,
        model_spec=model_spec, task_spec=task_spec, commit=commit, progress=progress,
    )[own]  # fmt: skip


def run_many(
    model: Any,
    task: Task,
    policies: Mapping[str, Policy],
    *,
    out: str | Path,
    constants: bool = False,
    **options: Any,
) -> dict[str, Run]:
    """Several policies on the same puzzles, interleaved batch by batch, each into the folder `out`/name.

    Args:
        model: any `LoopModel`.
        task: the puzzles.
        policies: name -> `Policy(control, strategy)`.
        out: the folder of the folders.
        constants: afterwards also run the constants at the adaptive rules' mean etas, which belong beside them.
        options: as of `run`, but `name`.
    """
    if not policies:
        raise InvalidUse("run_many: no policy is named. Give at least one: {'unit': Policy(lt.Standard())}.")
    out = Path(out)
    if options.get("dtype") is not None:  # once, for both passes
        model = with_dtype(model, options["dtype"])
    runs = _run_all(model, task, {name: (policy, out / name) for name, policy in policies.items()}, **options)
    if constants:
        beside = {name: policy for name, policy in matched_constants(runs).items() if name not in runs}
        if beside:
            runs |= _run_all(model, task, {name: (policy, out / name) for name, policy in beside.items()}, **options)
    return runs


def matched_constants(runs: Mapping[str, Run]) -> dict[str, Policy]:
    """The constants at the mean etas (to two decimals) of the adaptive rules among the runs."""
    found = {}
    for run in runs.values():
        if not run.adaptive:
            continue
        own, eta = Control.from_dict(run.meta["control"]), f"{run.mean_eta:.2f}"
        control = Control(Constant(float(eta)), site=own.site, outer_at=own.outer_at)
        plain = str(run.meta["strategy"]).startswith("fixed-depth:") and own.site == "inner"
        place = "" if plain else "-" + hashlib.sha256(f"{own.site} {own.outer_at} {run.meta['strategy']}".encode()
                                                      ).hexdigest()[:6]
        found[f"constant-{eta}{place}"] = Policy(control, run.meta["strategy"])
    return found


def _run_all(
    model: Any,
    task: Task,
    policies: Mapping[str, tuple[Policy, Path]],
    *,
    loops: int | None = None,
    limit: int | None = None,
    seed: int = 0,
    batch_size: int = 64,
    dtype: str | None = None,
    compile: bool = False,
    trace: int = 0,
    refill: bool = False,
    recipe: Mapping[str, Any] | None = None,
    model_spec: str | None = None,
    task_spec: str | None = None,
    commit: str | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> dict[str, Run]:
    check_count("run", "batch_size", batch_size)
    check_seed("run", seed)
    check_count("run", "trace", trace, 0)
    if limit is not None:
        check_count("run", "limit", limit)
    if not len(task):
        raise InvalidUse("run: the task holds no puzzles.")
    _check_fit(model, task)
    model = with_dtype(model, dtype)
    if compile:
        compile_core(model)
    n = len(task) if limit is None else min(limit, len(task))
    first = next(iter(task.batches(min(batch_size, n))))
    common: dict[str, Any] = {
        "looptaps": looptaps.__version__,
        "git": _git(commit),
        "model": model_facts(model, model_spec),
        "task": {"spec": task_spec or task.origin, "name": task.name, "sha256": task.fingerprint(), "n": n},
        "refill": refill,
        "limit": limit,
        "seed": seed,
        "batch_size": batch_size,
        "device": device_facts(device_of(model)),
        "dtype": _dtype(model),
        "compiled": is_compiled(model),
        "versions": versions(device_of(model)),
        "recipe": None if recipe is None else dict(recipe),
        "trace": min(trace, n),
    }
    chunk = batch_size * REFILL_SPAN if refill else batch_size
    group = secrets.token_hex(6)  # calls of the same second are told apart
    timing = {
        "protocol": "interleaved" if len(policies) > 1 else "single",
        "group": group,
        "policies": list(policies),
        "text": TIMED,
        "seconds": 0.0,
        "batch_seconds": [],
    }
    folders: dict[str, RunFolder] = {}
    resolved: dict[str, Policy] = {}
    for name, (policy, folder) in policies.items():
        control = as_control(policy.control).resolved()
        strategy, horizon = resolve_strategy(policy.strategy, loops, model, first.batch)
        if refill and isinstance(strategy, Rollouts):
            raise InvalidUse(f"run: refill serves stopping rules, but {name} is {strategy_text(strategy)}. Leave "
                             "refill out, or run it by itself.")
        resolved[name] = Policy(control, strategy)
        meta = {
            "schema": SCHEMA, "name": name, **common, "controller": spec_text(control.controller),
            "control": control.to_dict(), "strategy": strategy_text(strategy), "loops": horizon,
            "timing": json.loads(json.dumps(timing)),
            "counts": {"puzzles": 0, "loops": 0, "updates": 0, "updates_high": 0}, "parts": [], "started": now(),
            "finished": None,
        }  # fmt: skip
        folders[name] = RunFolder(folder, json.loads(json.dumps(meta)), chunk)
    _one_group(folders, timing)
    _measure_all(model, task, resolved, folders, n, chunk, refill, seed, first, common["git"], progress)
    for name, policy in resolved.items():
        path = folders[name].folder / TRACES
        if common["trace"] and not path.exists():
            write_traces(path, model, task, policy, count=common["trace"], batch_size=batch_size, n=n, seed=seed,
                         horizon=folders[name].meta["loops"])
    return {name: load_run(folder.folder) for name, folder in folders.items()}


def _check_fit(model: Any, task: Task) -> None:
    """That the puzzles are of the size that the model was built for, where it says one."""
    config = getattr(model, "config", None)
    for field, what in (("seq_len", "cells of a puzzle"), ("vocab_size", "tokens")):
        own, needed = getattr(config, field, None), getattr(task, field)
        if own is not None and own != needed:
            raise InvalidUse(f"run: {type(model).__name__}.config.{field} is {own}, but the task {task.name!r} has "
                             f"{field} {needed} ({what}). Choose a task of that size, or a model that was made for "
                             "this one.")


def _measure_all(
    model: Any,
    task: Task,
    policies: Mapping[str, Policy],
    folders: Mapping[str, RunFolder],
    n: int,
    chunk: int,
    refill: bool,
    seed: int,
    first: TaskBatch,
    git: dict[str, Any],
    progress: Callable[[str, int], None] | None,
) -> None:
    todo = {name: folder for name, folder in folders.items() if not folder.finished}
    try:
        for name, folder in todo.items():
            folder.open({"started": now(), **git})
            if folder.done < n:
                warm_up(model, first.batch, policies[name])
        for part in task.batches(chunk, limit=n):
            start, end = int(part.ids[0]), int(part.ids[-1]) + 1
            for name, folder in folders.items():
                if folder.done < end:
                    assert folder.done == start
                    policy, horizon = policies[name], int(folder.meta["loops"])
                    if refill:
                        capacity = int(folder.meta["batch_size"])
                        found = measure_refilled(model, part, policy, horizon, capacity=capacity, seed=seed)
                    else:
                        found = measure(model, part, policy, horizon, seed=seed)
                    difficulty = {key: values[start:end] for key, values in task.difficulty.items()}
                    folder.append(rows_of(found, difficulty), found.seconds)
                if progress is not None:
                    progress(name, end - start)
        for folder in todo.values():
            folder.finish(_counts(folder.folder / SAMPLES), now())
    finally:
        for folder in todo.values():
            folder.close()


def _one_group(folders: Mapping[str, RunFolder], timing: dict[str, Any]) -> None:
    """Seconds may be compared within a group only: runs that began in the same interleaved call."""
    groups = {folder.meta["timing"]["group"] for folder in folders.values()}
    if len(groups) > 1:  # some were begun in another call; those that begin now are a group without them
        new = [name for name, folder in folders.items() if folder.meta["timing"]["group"] == timing["group"]]
        for name in new:
            own = folders[name].meta["timing"]
            own["policies"], own["protocol"] = new, "interleaved" if len(new) > 1 else "single"


def _counts(samples: Path) -> dict[str, int]:
    """Totals that depend on no machine."""
    totals = {"puzzles": 0, "loops": 0, "updates": 0, "updates_high": 0}
    with samples.open(encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            totals["puzzles"] += 1
            for name in ("loops", "updates", "updates_high"):
                totals[name] += row[name]
    return totals


def _git(commit: str | None) -> dict[str, Any]:
    found = git_state()
    return found if found["commit"] is not None or commit is None else {"commit": commit, "dirty": None}


def _dtype(model: Any) -> str:
    """What the cores compute in: the config's word, else the dtype of the weights."""
    config = getattr(model, "config", None)
    named = getattr(config, "forward_dtype", None)
    if named is not None:
        return str(named)
    weights = next(iter(model.parameters()), None) if callable(getattr(model, "parameters", None)) else None
    return str(torch.get_default_dtype() if weights is None else weights.dtype).removeprefix("torch.")
