"""Recipes of small language models that are trained here: strict values read from TOML."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from looptaps.errors import InvalidFile, InvalidValue, unknown
from looptaps.train.recipe import Count, Counts, NotNegative, OptimizerRecipe, Positive, ScheduleRecipe, Unit


class _Section(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class OuroRecipe(_Section):
    """The model: `config` goes to `OuroConfig` (the vocabulary follows from the task).

    Embeddings begin with a standard deviation of `embedding_std`, the norms behind attention and MLP with weights of
    `residual`: the state must not forget the token within one step.
    """

    config: dict[str, Any] = {}
    embedding_std: Positive = 1.0
    residual: Positive = 0.5
    compile: bool = False


class ChainsRecipe(_Section):
    """The texts: a batch has programs of one of `statements`; see `looptaps.tasks.chains`."""

    statements: Counts = (4, 8, 12)
    reach: Count = 2
    restart: Unit = 0.05


class StepsRecipe(_Section):
    """How many recurrent steps a batch runs, `least`..`most`, and what the exit gate's entropy is worth.

    The loss of the answers is the mean over all steps, so that every number of steps up to `most` is trained. The gate
    learns from the same losses without a gradient into the model: Ouro's expected loss minus `entropy` times H(p).
    """

    least: Count = 4
    most: Count = 8
    entropy: NotNegative = 0.1


class HeldOutRecipe(_Section):
    """Accuracy on fixed questions by number of steps, by the averaged weights."""

    every: Count = 500
    questions: Count = 1024
    batch: Count = 512
    steps: Counts = (1, 2, 4, 8)
    seed: int = 4242


class LanguageRecipe(_Section):
    """A training run of a small Ouro."""

    name: str = "ouro-tiny"
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    batch_size: Count = 512
    precision: Literal["fp32", "bf16"] = "fp32"
    log_every: Count = 50
    checkpoint_minutes: Positive = 1.0
    model: OuroRecipe = OuroRecipe()
    data: ChainsRecipe = ChainsRecipe()
    steps: StepsRecipe = StepsRecipe()
    optimizer: OptimizerRecipe = OptimizerRecipe()
    schedule: ScheduleRecipe
    validation: HeldOutRecipe = HeldOutRecipe()

    @property
    def digest(self) -> str:
        """sha256 of the recipe in canonical form: equal exactly where the recipes are."""
        return hashlib.sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


def load_language_recipe(path: str | Path) -> LanguageRecipe:
    """Read a recipe file; the first mistake is named with what would be accepted."""
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(f"The recipe {path} cannot be read: {error}. Check the path.") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidFile(f"{path} is not TOML: {error}. Correct that line.") from error
    return language_recipe_from(values, str(path))


def language_recipe_from(values: dict[str, Any], origin: str = "the recipe") -> LanguageRecipe:
    """A recipe from plain values."""
    try:
        recipe = LanguageRecipe.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        place = [str(part) for part in problem["loc"]]
        if problem["type"] == "extra_forbidden":
            section: Any = LanguageRecipe
            for part in place[:-1]:
                section = section.model_fields[part].annotation
            raise unknown(f"key in {origin}", place[-1], section.model_fields) from error
        if problem["type"] == "missing":
            raise InvalidValue(f"{origin} lacks {'.'.join(place)}. Add it; recipes/ shows complete ones.") from error
        raise InvalidValue(f"{origin}: {'.'.join(place)} is {problem['input']!r}, but: {problem['msg']}.") from error
    if recipe.steps.least > recipe.steps.most:
        raise InvalidValue(f"{origin}: steps.least is {recipe.steps.least}, but must be at most steps.most = "
                           f"{recipe.steps.most}.")
    return recipe
