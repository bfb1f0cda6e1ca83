"""The models in the package: which there are, and what their cards say. Loads no torch, so that listing is cheap."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from looptaps.models import MODELS


def assets() -> Path:
    """The folder of everything that comes with the package."""
    return Path(str(files("looptaps"))) / "assets"


def bundled_models() -> list[str]:
    """The models in the package, as `kind:name`.

    >>> bundled_models()
    ['fprm:sudoku', 'looped:sudoku', 'trm:maze', 'trm:sudoku']
    """
    names = (file.stem.partition("-") for file in assets().glob("*.safetensors"))
    return sorted(f"{kind}:{name}" for kind, _, name in names if kind in MODELS and name)


def bundled_file(kind: str, name: str) -> Path:
    """Where the weights of a bundled model lie, or would."""
    return assets() / f"{kind}-{name}.safetensors"


def card_line(model: str) -> str:
    """The sentence with which the card of `kind:name` begins.

    >>> card_line("trm:sudoku")
    'TRM with 292,994 parameters for 9x9 Sudoku, trained by `looptaps train` and nothing else.'
    """
    card = bundled_file(*model.split(":", 1)).with_suffix(".md")
    lines = card.read_text(encoding="utf-8").splitlines() if card.is_file() else []
    title = next((i for i, line in enumerate(lines) if line.startswith("# ")), len(lines))
    return next((line for line in lines[title + 1 :] if line), "")
