"""Comparisons that come with the package: long runs of the bundled models, to stand beside short ones."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from looptaps.errors import unknown
from looptaps.evaluation.comparison import Comparison, read_comparison


def shipped_names() -> list[str]:
    """What there is, in alphabetical order."""
    return sorted(path.stem for path in _folder().glob("*.json"))


def shipped(name: str) -> Comparison:
    """The comparison of that name."""
    if name not in shipped_names():
        raise unknown("shipped record", name, shipped_names())
    return read_comparison(_folder() / f"{name}.json")


def _folder() -> Path:
    return Path(str(files("looptaps"))) / "assets" / "records"
