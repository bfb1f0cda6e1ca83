"""Models that can be trained, by name."""

from __future__ import annotations

import importlib
from typing import Any, get_type_hints

import torch

from looptaps.errors import InvalidUse, unknown
from looptaps.train.recipe import Recipe

_KINDS = {"trm": "looptaps.models.trm:TRM"}


def build_model(recipe: Recipe, seq_len: int, vocab_size: int, generator: torch.Generator) -> Any:
    """The recipe's model with fresh weights, for puzzles of this size."""
    kind, given = recipe.model.kind, recipe.model.config
    if kind not in _KINDS:
        raise unknown("model to train", kind, _KINDS)
    for key, value in (("seq_len", seq_len), ("vocab_size", vocab_size)):
        if given.get(key, value) != value:
            raise InvalidUse(f"The recipe's model.config.{key} is {given[key]}, but the task has {value}. Leave it out.")
    module, name = _KINDS[kind].split(":")
    cls = getattr(importlib.import_module(module), name)
    config = get_type_hints(cls)["config"]
    return cls(config.from_dict({"halt_max_steps": recipe.halting.max_loops, **given, "seq_len": seq_len, "vocab_size": vocab_size}), generator)
