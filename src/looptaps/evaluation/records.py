"""Runs as they are read: `load_run(folder)` gives arrays, whichever of the two sample files is there.

    run.json                what was run, on what, how long it took
    samples.jsonl           one line per puzzle, in the order of the task: the record
    samples.parquet         the same, as an export
    traces.npz              optional: boards and scales of the first puzzles

Shapes: N puzzles, H outer loops (the horizon). Parquet needs pyarrow.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from looptaps.errors import InvalidFile, MissingExtra
from looptaps.evaluation.fields import Sample, wrong
from looptaps.evaluation.folder import PARQUET, RUN, SAMPLES, TRACES, read_meta


@dataclass(frozen=True, eq=False)
class Run:
    """One policy on one set of puzzles.

    Args:
        folder: where it lies.
        meta: `run.json`.
        ids: (N,) the puzzles' ids in their task.
        correct: (N, H) whether the answer after each loop is exact; a puzzle that has stopped keeps its last answer.
        loops, updates, updates_high: (N,) what each puzzle cost.
        status: (N,) why it stopped, a name of `Status`.
        eta: (N,) mean scale over its updates.
        eta_by_loop: (N, H) mean scale of each loop, NaN after it stopped.
        score: (N,) the model's score of its answer; None if the model has none.
        any: (N,) whether any rollout is right; None without rollouts.
        difficulty: name -> (N,) float, NaN where unknown.
    """

    folder: Path
    meta: dict[str, Any]
    ids: NDArray[np.int64]
    correct: NDArray[np.bool_]
    loops: NDArray[np.int64]
    updates: NDArray[np.int64]
    updates_high: NDArray[np.int64]
    status: NDArray[np.str_]
    eta: NDArray[np.float64]
    eta_by_loop: NDArray[np.float64]
    score: NDArray[np.float64] | None
    any: NDArray[np.bool_] | None
    difficulty: dict[str, NDArray[np.float64]]
    rows: list[dict[str, Any]] = field(repr=False)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def name(self) -> str:
        """As in `run.json`."""
        return str(self.meta["name"])

    @property
    def accuracy(self) -> list[float]:
        """The share of puzzles that are exact after each loop."""
        return [float(share) for share in self.correct.mean(0)]

    @property
    def final(self) -> NDArray[np.bool_]:
        """(N,) whether the final answer is exact."""
        last: NDArray[np.bool_] = self.correct[:, -1]
        return last

    @property
    def mean_eta(self) -> float:
        """Over all loops of all puzzles: the constant that belongs beside this run."""
        return float((self.eta * self.loops).sum() / self.loops.sum())

    @property
    def adaptive(self) -> bool:
        """Whether its scale is chosen online, so that a constant at its mean belongs beside it."""
        return str(self.meta["controller"]).partition(":")[0] not in ("standard", "constant", "schedule")

    @property
    def label(self) -> str:
        """Controller, what of its control is not the default, and the strategy unless it is fixed depth.

        A run that refills says so.
        """
        return run_label(self.meta)

    @cached_property
    def traces(self) -> dict[str, NDArray[Any]] | None:
        """The arrays of `traces.npz`; None if there are none."""
        path = self.folder / TRACES
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as file:
                found = {name: file[name] for name in file.files}
        except Exception as error:  # a wrong byte may raise nearly anything: BadZipFile, zlib.error, struct.error
            raise InvalidFile(f"{path} is damaged ({error}). Remove it and run again.") from error
        _check_traces(found, path, len(self), int(self.meta["loops"]))
        return found


_TOTALS = ("loops", "updates", "updates_high")
_DEFAULTS = {"site": "inner", "outer_at": "cycle", "every": 1, "scope": "sample", "memory": "rollout"}


def run_label(meta: dict[str, Any]) -> str:
    """What a run is called in tables: see `Run.label`.

    >>> run_label({"controller": "taps-gd", "control": {"every": 2}, "strategy": "fixed-depth:loops=8"})
    'taps-gd every=2'
    """
    control = meta["control"]
    parts = [str(meta["controller"])]
    parts += [f"{name}={control[name]}" for name, usual in _DEFAULTS.items() if control.get(name, usual) != usual]
    if not str(meta["strategy"]).startswith("fixed-depth:"):
        parts.append(str(meta["strategy"]))
    return " ".join(parts + (["refilled"] if meta.get("refill") else []))


def run_folders(paths: Sequence[str | Path]) -> list[Path]:
    """The folders that are runs: those named, and those directly in a named folder that is none itself."""
    found: list[Path] = []
    for path in map(Path, paths):
        inside = [] if (path / RUN).exists() else sorted(part.parent for part in path.glob(f"*/{RUN}"))
        found += inside or [path]
    return found


def load_run(folder: str | Path, *, partial: bool = False) -> Run:
    """The run in a folder.

    Args:
        folder: with `run.json` and `samples.jsonl` or `samples.parquet`.
        partial: accept a run that has not finished, as far as it has come.
    """
    folder = Path(folder)
    meta = read_meta(folder)
    n, horizon = meta["task"]["n"], meta["loops"]
    jsonl = folder / SAMPLES
    rows = _read_jsonl(jsonl, partial) if jsonl.exists() else _read_parquet(folder)
    _check(rows, jsonl if jsonl.exists() else folder / PARQUET, horizon)
    if len(rows) != n or meta["finished"] is None:
        if len(rows) >= n and meta["finished"] is not None:
            raise InvalidFile(f"{folder} holds {len(rows)} puzzles, but its run.json says {n}. Run again.")
        if not partial:
            raise InvalidFile(f"{folder} has not finished: {len(rows)} of {n} puzzles are there. Start the same "
                              "`looptaps run` again and it goes on.")
        if not rows:
            raise InvalidFile(f"{folder} holds no puzzle yet. Start the same `looptaps run` again and it goes on.")
    run = _run(folder, meta, rows, horizon)
    if meta["finished"] is not None:
        totals = {"puzzles": len(run), **{name: int(getattr(run, name).sum()) for name in _TOTALS}}
        for name, total in totals.items():
            if meta["counts"][name] != total:
                raise InvalidFile(f"{folder / RUN} has counts.{name} {meta['counts'][name]}, but the samples hold "
                                  f"{total}. Remove the folder and run again.")
    return run


def export_parquet(run: Run, path: str | Path | None = None) -> Path:
    """Write the samples as `samples.parquet` (zstd), by default into the run's own folder."""
    pa, pq = _pyarrow()
    target = Path(path) if path is not None else run.folder / PARQUET
    part = target.with_name(target.name + ".part")
    pq.write_table(pa.Table.from_pylist(run.rows, schema=_schema(pa, run.rows)), part, compression="zstd")
    os.replace(part, target)
    return target


def _schema(pa: Any, rows: list[dict[str, Any]]) -> Any:
    """Types by what the rows hold; a whole number stays one."""
    kinds: dict[str, Any] = {}
    for row in rows:
        for name, value in row["difficulty"].items():
            if isinstance(value, float) or name not in kinds:
                kinds[name] = pa.float64() if isinstance(value, float) else pa.int64()
    columns = [
        ("id", pa.int64()),
        ("difficulty", pa.struct(list(kinds.items()))),
        ("correct", pa.string()),
        *[(name, pa.int64()) for name in ("loops", "updates", "updates_high")],
        ("status", pa.string()),
        *[(name, pa.float64()) for name in ("score", "eta")],
        ("eta_by_loop", pa.list_(pa.float64())),
    ]
    return pa.schema(columns + ([("any", pa.bool_())] if rows and "any" in rows[0] else []))


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("Parquet needs pyarrow, which is not installed: pip install pyarrow.") from error
    return pyarrow, pyarrow.parquet


def _read_jsonl(path: Path, partial: bool) -> list[dict[str, Any]]:
    text = path.read_bytes()
    lines = text.split(b"\n")
    if lines[-1] and not partial:
        raise InvalidFile(f"{path} ends in the middle of line {len(lines)}. Start the same `looptaps run` again.")
    rows = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise InvalidFile(f"{path}: line {number} is no JSON ({error}). Remove the folder and run again."
                              ) from error
    return rows


def _read_parquet(folder: Path) -> list[dict[str, Any]]:
    path = folder / PARQUET
    if not path.exists():
        raise InvalidFile(f"{folder} holds neither {SAMPLES} nor {PARQUET}. Run again.")
    pa, pq = _pyarrow()
    try:
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise InvalidFile(f"{path} is damaged, or no parquet file ({error}).") from error
    return rows


def _check(rows: list[Any], path: Path, horizon: int) -> None:
    """Each line by itself, then what lines must have in common."""
    for place, row in enumerate(rows):
        what = None
        try:
            Sample.model_validate(row)
        except ValidationError as error:
            what = wrong(error)
        else:
            if row["id"] != place:
                what = f"is of puzzle {row['id']}, not {place}"
            elif row["loops"] > horizon:
                what = f"has loops {row['loops']}, outside of 1..{horizon}"
            elif odd := [name for name in ("correct", "eta_by_loop") if len(row[name]) != row["loops"]]:
                what = f"has {odd[0]} of length {len(row[odd[0]])}, but loops {row['loops']}"
            elif row["difficulty"].keys() != rows[0]["difficulty"].keys() or ("any" in row) != ("any" in rows[0]):
                what = "has other fields (in difficulty, or any) than line 1"
        if what is not None:
            raise InvalidFile(f"{path}: line {place + 1} {what}. Remove the folder and run again.")


_TRACED = {"ids": 1, "inputs": 2, "labels": 2, "boards": 3, "eta": 2, "balance": 2, "progress": 2, "fluctuation": 2}


def _check_traces(found: dict[str, NDArray[Any]], path: Path, n: int, horizon: int) -> None:
    """That the arrays are there, and fit each other and the run."""
    for name, ndim in _TRACED.items():
        array = found.get(name)
        if array is None or array.ndim != ndim or len(array) != len(found["ids"]) or array.dtype.kind not in "iuf":
            shape = "is missing" if array is None else f"is {array.dtype} of shape {array.shape}"
            raise InvalidFile(f"{path}: {name} {shape}, but must hold numbers in {ndim} dimensions, a row for each "
                              "of ids. Remove it and run again.")
    ids, boards = found["ids"], found["boards"]
    if boards.shape[1:] != (horizon, *found["inputs"].shape[1:]) or not ((ids >= 0) & (ids < n)).all():
        raise InvalidFile(f"{path}: its boards {boards.shape} are not of this run's {horizon} loops, or its ids not of "
                          f"its {n} puzzles. Remove it and run again.")


def _run(folder: Path, meta: dict[str, Any], rows: list[dict[str, Any]], horizon: int) -> Run:
    correct = np.zeros((len(rows), horizon), bool)
    etas = np.full((len(rows), horizon), np.nan)
    for place, row in enumerate(rows):
        loops = row["loops"]
        flags = np.frombuffer(row["correct"].encode(), np.uint8) == ord("1")
        correct[place, :loops] = flags
        correct[place, loops:] = flags[-1]
        etas[place, :loops] = [np.nan if value is None else value for value in row["eta_by_loop"]]

    def column(name: str) -> NDArray[np.float64]:
        return np.array([np.nan if row[name] is None else row[name] for row in rows], np.float64)

    def whole(name: str) -> NDArray[np.int64]:
        return np.array([row[name] for row in rows], np.int64)

    names = list(rows[0]["difficulty"])
    scored = any(row["score"] is not None for row in rows)
    return Run(
        folder=folder,
        meta=meta,
        ids=whole("id"),
        correct=correct,
        loops=whole("loops"),
        updates=whole("updates"),
        updates_high=whole("updates_high"),
        status=np.array([row["status"] for row in rows]),
        eta=column("eta"),
        eta_by_loop=etas,
        score=column("score") if scored else None,
        any=np.array([row["any"] for row in rows], bool) if "any" in rows[0] else None,
        difficulty={
            name: np.array([np.nan if row["difficulty"][name] is None else row["difficulty"][name] for row in rows],
                           np.float64)
            for name in names
        },
        rows=rows,
    )
