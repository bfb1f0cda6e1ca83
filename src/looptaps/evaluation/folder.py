"""A run's folder while it is written: whole batches at a time, and after a kill exactly from where it stopped.

`run.json` says what is run and, batch by batch, how long it took; it is replaced in one go, before the batch's lines
are appended to `samples.jsonl`. So the record never lacks the seconds of a batch that is there, and what is there
beyond the last whole batch is cut off on resuming.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from looptaps.errors import InvalidFile, InvalidUse
from looptaps.evaluation.fields import Meta, wrong

RUN, SAMPLES, PARQUET, TRACES = "run.json", "samples.jsonl", "samples.parquet", "traces.npz"
SCHEMA = 1

# What must be the same for a run to be gone on with: the lines of the file depend on it.
SETTINGS = (
    "schema", "looptaps", "model.config", "model.sha256", "task.sha256", "task.n", "control", "strategy", "refill",
    "loops", "limit", "seed", "batch_size", "trace", "dtype", "recipe", "device.type", "device.name", "device.threads",
    "compiled", "versions.torch",
)  # fmt: skip


class RunFolder:
    """The writing side of a run.

    Args:
        folder: made if it is not there.
        meta: what `run.json` holds at the start.
        chunk: puzzles of a batch.
    """

    def __init__(self, folder: Path, meta: dict[str, Any], chunk: int) -> None:
        self.folder = folder
        self.meta = meta
        self.chunk = chunk
        self.total = int(meta["task"]["n"])
        self.done = 0
        self._file: IO[bytes] | None = None
        if not (folder / RUN).exists():
            for name in (SAMPLES, PARQUET):
                if (folder / name).exists() and (folder / name).stat().st_size:
                    raise InvalidFile(f"{folder} holds {name} without {RUN}, so nobody knows what it is of. Choose "
                                      "another folder.")
            return
        self.meta = self._adopt(read_meta(folder))
        self.done = self.total if self.finished else self._whole_batches()

    @property
    def finished(self) -> bool:
        """Whether all puzzles are there."""
        return self.meta["finished"] is not None

    def _adopt(self, old: dict[str, Any]) -> dict[str, Any]:
        for field in SETTINGS:
            there, here = _field(old, field), _field(self.meta, field)
            if there != here:
                raise InvalidUse(f"{self.folder} holds a run with another {_difference(field, there, here)}. "
                                 "Choose another folder, or remove that one.")
        return old

    def _whole_batches(self) -> int:
        """The puzzles that are there in whole batches."""
        path = self.folder / SAMPLES
        if not path.exists():
            return 0
        lines = path.read_bytes().split(b"\n")[:-1]  # behind the last newline is half a line, or nothing
        for place, line in enumerate(lines):
            if not line.startswith(b'{"id":%d,' % place) or not line.endswith(b"}"):
                raise InvalidFile(f"{path}: line {place + 1} is not that of puzzle {place}, so the file is damaged. "
                                  "Remove the folder and run again.")
        return len(lines) if len(lines) == self.total else len(lines) // self.chunk * self.chunk

    def open(self, part: dict[str, Any]) -> None:
        """Begin to write: cut what is not whole, note who goes on, and keep others out."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / SAMPLES
        file = path.open("ab")
        _lock(file, self.folder)
        self._file = file
        if self.done:
            lines = path.read_bytes().split(b"\n")[: self.done]
            file.truncate(sum(len(line) + 1 for line in lines))
        else:
            file.truncate(0)
        timing = self.meta["timing"]
        timing["batch_seconds"] = timing["batch_seconds"][: -(-self.done // self.chunk)]
        self.meta["parts"].append({"from": self.done, **part})
        self._write_meta()

    def append(self, rows: list[dict[str, Any]], seconds: float) -> None:
        """A whole batch: its seconds, then its lines, on the disk before this returns."""
        assert self._file is not None
        timing, counts = self.meta["timing"], self.meta["counts"]
        timing["batch_seconds"].append(round(seconds, 6))
        timing["seconds"] = round(sum(timing["batch_seconds"]), 6)
        self._write_meta()
        text = "".join(json.dumps(row, separators=(",", ":"), allow_nan=False) + "\n" for row in rows)
        self._file.write(text.encode())
        self._file.flush()
        os.fsync(self._file.fileno())
        self.done += len(rows)
        counts["puzzles"] = self.done

    def finish(self, counts: dict[str, int], finished: str) -> None:
        """All puzzles are there."""
        self.meta["counts"] = counts
        self.meta["finished"] = finished
        self._write_meta()

    def close(self) -> None:
        """Let others in. A run that ended before its first batch leaves nothing that could stand in another's way."""
        if self._file is None:
            return
        self._file.close()
        self._file = None
        if self.done == 0:
            for name in (RUN, SAMPLES):
                (self.folder / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # somebody else's files are in it
                self.folder.rmdir()

    def _write_meta(self) -> None:
        write_json(self.folder / RUN, self.meta)


def read_meta(folder: Path) -> dict[str, Any]:
    """A folder's `run.json`, if it is one of ours."""
    path = folder / RUN
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InvalidFile(f"{folder} holds no {RUN}, so it is no run. Make one with `looptaps run --out {folder}`."
                          ) from error
    except (OSError, ValueError) as error:
        raise InvalidFile(f"{path} cannot be read ({error}). Remove the folder and run again.") from error
    if not isinstance(meta, dict) or meta.get("schema") != SCHEMA:
        found = meta.get("schema") if isinstance(meta, dict) else None
        raise InvalidFile(f"{path} has schema {found!r}, but this version reads {SCHEMA}. Run again.")
    try:
        Meta.model_validate(meta)
    except ValidationError as error:
        raise InvalidFile(f"{path} {wrong(error)}. Remove the folder and run again.") from error
    return meta


def write_json(path: Path, values: Any) -> None:
    """In one go: nobody ever sees half of it."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with part.open("w", encoding="utf-8") as file:
        file.write(json.dumps(values, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def _lock(file: IO[bytes], folder: Path) -> None:
    try:
        import fcntl
    except ImportError:  # no such thing on Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise InvalidUse(f"Another process is writing to {folder}. Wait for it, or choose another folder.") from error


def _field(meta: dict[str, Any], field: str) -> Any:
    at: Any = meta
    for key in field.split("."):
        at = at[key]
    return at


def _difference(field: str, there: Any, here: Any) -> str:
    """The field, down to the key that differs, and both values."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in sorted(there.keys() | here.keys()):
            if there.get(key) != here.get(key):
                return _difference(f"{field}.{key}", there.get(key), here.get(key))
    return f"{field}: {there!r} there, {here!r} here"
