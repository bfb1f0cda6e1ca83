"""Files that survive a kill at any moment: written beside their place, synced, then moved there in one step."""

from __future__ import annotations

import json
import os
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from looptaps import state as trees
from looptaps.errors import InvalidFile

FORMAT = 1


def write_atomically(path: Path, write: Any) -> None:
    """Call write(file) on a temporary neighbour, sync it to disk, and move it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, values: Any) -> None:
    """Plain values as indented JSON, atomically."""
    text = json.dumps(values, indent=2, sort_keys=True) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))


def save(path: Path, state: dict[str, Any]) -> None:
    """Tensors and plain values; nothing that would need code to be read."""

    def write(file: IO[bytes]) -> None:
        torch.save({"format": FORMAT, **state}, file)

    write_atomically(path, write)


def load(path: Path) -> dict[str, Any]:
    """What `save` wrote. No code in the file is ever run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about pickle protocols of files that are then refused
            state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InvalidFile(f"{path} holds something other than tensors and plain values, so it was not loaded. Give the "
                          "last.pt of a run.") from error
    except FileNotFoundError as error:
        raise InvalidFile(f"There is no checkpoint {path}. Give a run that has one, or start anew.") from error
    except Exception as error:  # torch raises many kinds for damaged and foreign files
        raise InvalidFile(f"{path} is no checkpoint of a training run, or is damaged "
                          f"({type(error).__name__}). Give the last.pt of a run.") from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise InvalidFile(f"{path} is no checkpoint of a training run in format {FORMAT}. Give the last.pt of a run.")
    return state


def plain(tree: Any) -> Any:
    """A tree of NamedTuples as nested plain tuples, which can be saved without naming classes."""
    return tuple(plain(leaf) for leaf in tree) if isinstance(tree, tuple) else tree


def rebuilt(template: Any, values: Any) -> Any:
    """`plain` undone: the values in the shape of a template tree with the same rows."""
    first = template
    while isinstance(first, tuple):
        first = next(leaf for leaf in first if leaf is not None)
    nothing = torch.zeros(first.shape[0], dtype=torch.bool, device=first.device)
    return trees.where(nothing, template, _moved(values, first.device))


def _moved(values: Any, device: torch.device) -> Any:
    if isinstance(values, tuple):
        return tuple(_moved(leaf, device) for leaf in values)
    return values.to(device) if isinstance(values, Tensor) else values


class Lines:
    """A .jsonl file that grows line by line and can be cut back to a step.

    A killed process loses no line. Against power failure `sync` is called before each checkpoint.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Iterator[dict[str, Any]]:
        """The complete lines; a line that a kill cut short is left out."""
        if not self.path.exists():
            return
        with open(self.path, encoding="utf-8") as file:
            for line in file:
                if not line.endswith("\n"):
                    return
                yield json.loads(line)

    def append(self, values: dict[str, Any]) -> None:
        """Add one line."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")

    def sync(self) -> None:
        """Have what was written reach the disk."""
        if self.path.exists():
            with open(self.path, "rb") as file:
                os.fsync(file.fileno())

    def clear(self) -> None:
        """Begin anew: what stands here is of a run that ended before its first checkpoint."""
        self.path.unlink(missing_ok=True)

    def cut(self, step: int, source: Path | None = None) -> None:
        """Drop what came after a step: a resumed run writes it again. The lines may come from another run's file."""
        lines = self if source is None else Lines(source)
        kept = "".join(json.dumps(line) + "\n" for line in lines.read() if line["step"] <= step)
        write_atomically(self.path, lambda file: file.write(kept.encode()))
