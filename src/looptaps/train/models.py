"""The model of a recipe, by its registered name."""

from __future__ import annotations

from typing import Any

import torch

from looptaps.errors import InvalidUse, InvalidValue
from looptaps.models import MODELS
from looptaps.train.recipe import Recipe


def build_model(recipe: Recipe, seq_len: int, vocab_size: int, generator: torch.Generator) -> Any:
    """The recipe's model with fresh weights, for puzzles of this size."""
    cls, given = MODELS[recipe.model.kind], recipe.model.config
    for key, value in (("seq_len", seq_len), ("vocab_size", vocab_size)):
        if given.get(key, value) != value:
            raise InvalidUse(f"The recipe's model.config.{key} is {given[key]!r}, but the task has {value}. "
                             "Leave it out.")
    try:
        config = cls.config_type.from_dict({**given, "seq_len": seq_len, "vocab_size": vocab_size})
    except TypeError as error:  # a field of the wrong kind that the config's own checks did not reach
        raise InvalidValue(f"The recipe's [model.config] makes no {cls.__name__}: {error}.") from error
    return cls(config, generator)

