"""The released dataset format: one folder per split, npy arrays beside a dataset.json.

    <out>/identifiers.json                 ["<blank>"]
    <out>/{train,test}/dataset.json
    <out>/{train,test}/all__{inputs,labels,puzzle_identifiers,puzzle_indices,group_indices}.npy

The rows of puzzle p are puzzle_indices[p] to puzzle_indices[p + 1]; a group is a puzzle with its augmented copies, from
group_indices[g] to group_indices[g + 1]. TRM's files and HRM's differ in one key of dataset.json: HRM's has no
total_puzzles. What is read and written again is the same byte for byte.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from looptaps.errors import InvalidFile, InvalidValue, LooptapsError, invalid
from looptaps.tasks.base import Tokens, check_tokens

Variant = Literal["trm", "hrm"]
ARRAYS = ("inputs", "labels", "puzzle_identifiers", "puzzle_indices", "group_indices")
IDENTIFIERS = ("<blank>",)


@dataclass(frozen=True, kw_only=True)
class DatasetMeta:
    """dataset.json, its keys in the order of the files. `total_puzzles` is None in HRM's variant."""

    pad_id: int = 0
    ignore_label_id: int | None = 0
    blank_identifier_id: int = 0
    vocab_size: int
    seq_len: int
    num_puzzle_identifiers: int = 1
    total_groups: int
    mean_puzzle_examples: float = 1.0
    total_puzzles: int | None
    sets: tuple[str, ...] = ("all",)

    @property
    def variant(self) -> Variant:
        """Whose builder writes such a file."""
        return "hrm" if self.total_puzzles is None else "trm"

    def text(self) -> str:
        """The file's content."""
        values = asdict(self)
        if self.total_puzzles is None:
            del values["total_puzzles"]
        return json.dumps({**values, "sets": list(self.sets)})


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """One split. Arrays keep the dtype they were read with (and are memory-mapped then)."""

    meta: DatasetMeta
    inputs: Tokens  # (N, seq_len)
    labels: Tokens  # (N, seq_len)
    puzzle_identifiers: npt.NDArray[Any]  # (P,)
    puzzle_indices: npt.NDArray[Any]  # (P + 1,)
    group_indices: npt.NDArray[Any]  # (G + 1,)

    @classmethod
    def of(
        cls, inputs: Tokens, labels: Tokens, *, vocab_size: int, group: int = 1, variant: Variant = "trm"
    ) -> Dataset:
        """Rows of which every `group` in sequence are one puzzle and its augmented copies.

        >>> Dataset.of(np.ones((4, 16), np.uint8), np.ones((4, 16), np.uint8), vocab_size=6, group=2).group_indices
        array([0, 2, 4], dtype=int32)
        """
        if variant not in ("trm", "hrm"):
            raise invalid("Dataset", "variant", "'trm' or 'hrm'", variant, "Use 'trm'; HRM's lacks total_puzzles.")
        if group < 1 or len(inputs) % group:
            raise invalid("Dataset", "group", f"a divisor of the {len(inputs)} rows", group, "Use 1.")
        count = len(inputs) // group
        meta = DatasetMeta(
            vocab_size=vocab_size,
            seq_len=inputs.shape[1],
            total_groups=count,
            # The released builder writes the number of groups here, augmented or not.
            total_puzzles=count if variant == "trm" else None,
        )
        dataset = cls(
            meta=meta,
            inputs=inputs,
            labels=labels,
            puzzle_identifiers=np.zeros(len(inputs), np.int32),
            puzzle_indices=np.arange(len(inputs) + 1, dtype=np.int32),
            group_indices=np.arange(0, len(inputs) + 1, group, dtype=np.int32),
        )
        dataset.check("Dataset")
        return dataset

    def check(self, owner: str) -> None:
        """Raise one sentence where the parts do not fit together."""
        meta, n, puzzles = self.meta, len(self.inputs), len(self.puzzle_identifiers)
        rows = (n, meta.seq_len)
        indices = (("puzzle_indices", self.puzzle_indices, puzzles + 1, n),
                   ("group_indices", self.group_indices, meta.total_groups + 1, puzzles))  # fmt: skip
        for name, tokens in (("inputs", self.inputs), ("labels", self.labels)):
            if tokens.shape != rows:
                raise InvalidFile(
                    f"{owner}: {name} should be of shape {rows} by dataset.json and the other arrays, but is "
                    f"{tokens.shape}. The files do not belong together."
                )
        for name, values, length, last in indices:
            if values.shape != (length,) or values[0] != 0 or values[-1] != last or (np.diff(values) < 0).any():
                raise InvalidFile(
                    f"{owner}: {name} should rise from 0 to {last} in {length} numbers, but does not. "
                    "The files do not belong together."
                )
        identifiers = self.puzzle_identifiers
        if puzzles and not 0 <= identifiers.min() <= identifiers.max() < meta.num_puzzle_identifiers:
            raise InvalidFile(
                f"{owner}: puzzle_identifiers should be in 0..{meta.num_puzzle_identifiers - 1}, but reach "
                f"{identifiers.max()}. The files do not belong together."
            )
        check_tokens(owner, self.inputs, self.labels, meta.vocab_size)


def read_dataset(folder: str | Path, *, mmap: bool = True) -> Dataset:
    """Read one split (`<out>/test`, say), checked; the large arrays stay on disk until used."""
    path = Path(folder)
    meta = _read_meta(path)
    arrays = {name: _read_array(path / f"{meta.sets[0]}__{name}.npy", mmap=mmap) for name in ARRAYS}
    dataset = Dataset(meta=meta, **arrays)
    try:
        dataset.check(str(path))
    except InvalidFile:
        raise
    except LooptapsError as error:
        raise InvalidFile(str(error)) from error
    return dataset


def _read_meta(path: Path) -> DatasetMeta:
    file = path / "dataset.json"
    if not file.is_file():
        splits = sorted(part.parent.name for part in path.glob("*/dataset.json"))
        hint = f"Give one of its splits: {', '.join(splits)}." if splits else "Give the folder of one split."
        raise InvalidFile(f"{path} has no dataset.json. {hint}")
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise InvalidFile(f"{file} is not valid JSON ({error}). The file may be cut off.") from error
    known = {field.name for field in fields(DatasetMeta)}
    if not isinstance(values, dict) or set(values) - known or known - set(values) - {"total_puzzles"}:
        found = sorted(values) if isinstance(values, dict) else type(values).__name__
        raise InvalidFile(f"{file} must have the keys {sorted(known)}, but has {found}. Is it of another format?")
    for key, value in values.items():
        if key == "sets":
            good = isinstance(value, list) and len(value) == 1 and isinstance(value[0], str) and "/" not in value[0]
        elif key == "mean_puzzle_examples":
            good = isinstance(value, int | float) and value > 0
        else:
            good = (isinstance(value, int) and value >= 0) or (key == "ignore_label_id" and value is None)
        if not good or isinstance(value, bool):
            raise InvalidFile(f"{file}: {key} is {value!r}, which no dataset of one set can have. Correct the file.")
    return DatasetMeta(**{"total_puzzles": None, **values, "sets": tuple(values["sets"])})


def _read_array(file: Path, *, mmap: bool) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = np.load(file, mmap_mode="r" if mmap else None, allow_pickle=False)
    except FileNotFoundError as error:
        raise InvalidFile(f"{file} is missing. Copy the whole folder.") from error
    except (ValueError, OSError, EOFError) as error:
        raise InvalidFile(f"{file} is not a readable npy file ({error}). The file may be cut off.") from error
    if not np.issubdtype(array.dtype, np.integer):
        raise InvalidFile(f"{file} holds {array.dtype}, but must hold integers. Is it of another format?")
    return array


def write_dataset(out: str | Path, splits: Mapping[str, Dataset]) -> Path:
    """Write all splits and identifiers.json to a new folder: all of it, or nothing.

    Everything is first written beside `out` and moved there in one step, so an error or a kill leaves no half dataset.
    """
    target = Path(out)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InvalidValue(f"{target} exists already and is not empty. Choose another folder, or remove it.")
    for name, dataset in splits.items():
        dataset.check(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        (work / "identifiers.json").write_text(json.dumps(list(IDENTIFIERS)), encoding="utf-8")
        for name, dataset in splits.items():
            folder = work / name
            folder.mkdir()
            for array in ARRAYS:
                np.save(folder / f"{dataset.meta.sets[0]}__{array}.npy", np.asarray(getattr(dataset, array)))
            (folder / "dataset.json").write_text(dataset.meta.text(), encoding="utf-8")
        work.chmod(0o755)  # mkdtemp's folders are private
        work.replace(target)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return target
