"""Runs as they are read: `load_run(folder)` gives arrays, whichever of the two sample files is there.

    run.json                what was run, on what, how long it took
    samples.jsonl           one line per puzzle, in the order of the task: the record
    samples.parquet         the same, as an export
    traces.npz              optional: boards and scales of the first puzzles

Shapes: N puzzles, H outer loops (the horizon). Numpy and the standard library; parquet needs pyarrow.
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

from looptaps.errors import InvalidFile, MissingExtra
from looptaps.evaluation.folder import PARQUET, RUN, SAMPLES, TRACES, read_meta

_STATUS = ("RAN_ALL", "EXITED", "CONVERGED", "NONFINITE")
_FIELDS = ("id", "difficulty", "correct", "loops", "updates", "updates_high", "status", "score", "eta", "eta_by_loop")


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
                return {name: file[name] for name in file.files}
        except (OSError, ValueError, EOFError, KeyError) as error:
            raise InvalidFile(f"{path} is damaged ({error}). Remove it and run again.") from error


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
    n, horizon = int(meta["task"]["n"]), int(meta["loops"])
    jsonl = folder / SAMPLES
    rows = _read_jsonl(jsonl, partial) if jsonl.exists() else _read_parquet(folder)
    for place, row in enumerate(rows):
        _check(row, place, jsonl if jsonl.exists() else folder / PARQUET, horizon)
    if len(rows) != n or meta["finished"] is None:
        if len(rows) >= n and meta["finished"] is not None:
            raise InvalidFile(f"{folder} holds {len(rows)} puzzles, but its run.json says {n}. Run again.")
        if not partial:
            raise InvalidFile(f"{folder} has not finished: {len(rows)} of {n} puzzles are there. Start the same "
                              "`looptaps run` again and it goes on.")
        if not rows:
            raise InvalidFile(f"{folder} holds no puzzle yet. Start the same `looptaps run` again and it goes on.")
    return _run(folder, meta, rows, horizon)


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


def _check(row: Any, place: int, path: Path, horizon: int) -> None:
    what = None
    if not isinstance(row, dict):
        what = "is no object"
    elif lacking := [name for name in _FIELDS if name not in row]:
        what = f"lacks {', '.join(lacking)}"
    elif row["id"] != place:
        what = f"is of puzzle {row['id']!r}, not {place}"
    elif not isinstance(row["loops"], int) or not 1 <= row["loops"] <= horizon:
        what = f"has loops {row['loops']!r}, outside of 1..{horizon}"
    elif not isinstance(row["correct"], str) or len(row["correct"]) != row["loops"] or set(row["correct"]) - {"0", "1"}:
        what = "has no 0 or 1 for each of its loops in `correct`"
    elif not isinstance(row["eta_by_loop"], list) or len(row["eta_by_loop"]) != row["loops"]:
        what = "has no number for each of its loops in `eta_by_loop`"
    elif row["status"] not in _STATUS:
        what = f"has the unknown status {row['status']!r}"
    if what is not None:
        raise InvalidFile(f"{path}: line {place + 1} {what}. Remove the folder and run again.")


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
