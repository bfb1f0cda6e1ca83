"""Training: recipes, deep supervision with a carry, exact resume, and the balance penalty.

Names load on first use, so that the penalty alone costs no accelerate.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from looptaps.train.exporting import export
    from looptaps.train.penalty import BalancePenalty
    from looptaps.train.recipe import Recipe, load_recipe, parse_recipe
    from looptaps.train.trainer import Trainer

_NAMES = {
    "BalancePenalty": "looptaps.train.penalty",
    "Recipe": "looptaps.train.recipe",
    "Trainer": "looptaps.train.trainer",
    "export": "looptaps.train.exporting",
    "load_recipe": "looptaps.train.recipe",
    "parse_recipe": "looptaps.train.recipe",
}

__all__ = ["BalancePenalty", "Recipe", "Trainer", "export", "load_recipe", "parse_recipe"]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'looptaps.train' has no attribute {name!r}")
    value = getattr(import_module(_NAMES[name]), name)
    globals()[name] = value
    return value
