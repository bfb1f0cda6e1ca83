"""Recipes: everything that decides a training run, as strict values read from TOML."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from looptaps.errors import InvalidFile, InvalidValue, unknown

Unit = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
# TOML has lists and no tuples; strict mode would refuse them.
Pair = Annotated[tuple[int, int], BeforeValidator(lambda v: tuple(v) if isinstance(v, list) else v)]
Floats = Annotated[tuple[float, float], BeforeValidator(lambda v: tuple(v) if isinstance(v, list) else v)]
Counts = Annotated[tuple[Count, ...], BeforeValidator(lambda v: tuple(v) if isinstance(v, list) else v)]


def _clues(value: Any) -> Any:
    """One sentence for `extra`, where the union's own errors would name its branches."""
    pairs = value if isinstance(value, list) else [(0, value)]
    if all(isinstance(pair, list | tuple) and len(pair) == 2 and all(type(v) is int for v in pair) for pair in pairs):
        return value
    raise ValueError("must be a whole number >= 0, or [from sample, most clues] pairs such as [[0, 16], [40000, 8]]")


class _Section(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ModelRecipe(_Section):
    """Which model, and its config (vocab_size and seq_len follow from the task)."""

    kind: str
    config: dict[str, Any] = {}
    compile: bool = False


class DataRecipe(_Section):
    """What is trained on: generated puzzles, and rows of a file where one is given.

    `extra`: clues added to minimal Sudoku puzzles, 0..extra, as a number or as [from sample, most] pairs.
    `rows_share`: the share of samples from the rows given by --data; the last `rows_held_out` of them are kept for
    validation and never trained on. `rows_extra`: clues added to rows, 0..rows_extra.
    `options`: passed to the generator's config, such as box = [2, 3].
    """

    task: str = "sudoku"
    options: dict[str, Any] = {}
    extra: Annotated[int | list[Pair], BeforeValidator(_clues)] = 0
    rows_share: Unit = 0.5
    rows_extra: Annotated[int, Field(ge=0)] = 0
    rows_held_out: Annotated[int, Field(ge=0)] = 256


class LossRecipe(_Section):
    """The answer's loss, the halting head's weight, and the balance penalty (mu = 0 leaves it out)."""

    kind: Literal["softmax", "stablemax"] = "softmax"
    q_weight: NotNegative = 0.5
    penalty_mu: NotNegative = 0.0
    penalty_kappa: NotNegative = 4.0


class OptimizerRecipe(_Section):
    """The optimizer; gradients are clipped to norm `clip`."""

    kind: Literal["adamw", "adam-atan2"] = "adamw"
    lr: Positive = 1e-3
    betas: Floats = (0.9, 0.95)
    weight_decay: NotNegative = 0.1
    clip: Positive = 1.0
    ema: Annotated[float, Field(ge=0, lt=1)] = 0.998


class ScheduleRecipe(_Section):
    """How long, and how the learning rate goes.

    The run ends after `steps` optimizer steps, or after `minutes` of wall-clock (resumed runs included) if that is
    given and comes first. Progress is the larger of the two shares. With `minutes` the learning rate follows the
    clock, so a resumed run continues its state exactly but its later learning rates depend on the machine.
    """

    steps: Count
    minutes: Positive | None = None
    warmup: Annotated[int, Field(ge=0)] = 100
    kind: Literal["cosine", "constant"] = "cosine"
    decay_from: Unit = 0.6
    final: Unit = 0.1


class HaltingRecipe(_Section):
    """When a sample is replaced by a fresh one: its halting logit is positive, or `max_loops` are done.

    A share `exploration` of samples must think at least U{2..max_loops} loops.
    """

    max_loops: Count = 16
    exploration: Unit = 0.1


class ControlRecipe(_Section):
    """Step control while training (left out: the unit step)."""

    controller: str
    site: Literal["inner", "outer"] = "inner"
    every: Count = 1
    memory: Literal["rollout", "loop", "cycle"] = "rollout"
    grad_through_eta: bool = False


class ValidationRecipe(_Section):
    """Exact accuracy by loop on fixed puzzles, by the averaged weights."""

    every: Count = 500
    puzzles: Count = 256
    batch: Count = 64
    loops: Counts = (1, 2, 4, 8, 16)
    seed: int = 4242


class Recipe(_Section):
    """A training run.

    >>> recipe = parse_recipe('[model]\\nkind = "trm"\\n[schedule]\\nsteps = 10')
    >>> recipe.batch_size, recipe.schedule.steps, len(recipe.digest)
    (64, 10, 64)
    """

    name: str = "run"
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    batch_size: Count = 64
    accumulate: Count = 1
    tracker: Literal["tensorboard", "wandb", "none"] = "tensorboard"
    log_every: Count = 50
    checkpoint_minutes: Positive = 3.0
    model: ModelRecipe
    data: DataRecipe = DataRecipe()
    loss: LossRecipe = LossRecipe()
    optimizer: OptimizerRecipe = OptimizerRecipe()
    schedule: ScheduleRecipe
    halting: HaltingRecipe = HaltingRecipe()
    control: ControlRecipe | None = None
    validation: ValidationRecipe = ValidationRecipe()

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        if self.loss.penalty_mu > 0 and self.control is None:
            raise ValueError("loss.penalty_mu needs a [control] section with a TAPS rule, whose trace it measures")
        return self

    @property
    def digest(self) -> str:
        """sha256 of the recipe in canonical form: equal exactly where the recipes are."""
        return hashlib.sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


def parse_recipe(text: str, origin: str = "the recipe") -> Recipe:
    """A recipe from TOML text."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidFile(f"{origin} is not TOML: {error}. Correct that line.") from error
    return recipe_from(values, origin)


def recipe_from(values: dict[str, Any], origin: str = "the recipe") -> Recipe:
    """A recipe from plain values; the first mistake is named with what would be accepted."""
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        raise _sentence(problem, origin) from error


def load_recipe(path: str | Path) -> Recipe:
    """Read a recipe file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(f"The recipe {path} cannot be read: {error}. Check the path.") from error
    return parse_recipe(text, str(path))


def _sentence(problem: Any, origin: str) -> Exception:
    place = [str(part) for part in problem["loc"]]
    where = ".".join(place)
    if problem["type"] == "extra_forbidden":
        section: Any = Recipe
        for part in place[:-1]:
            annotation = section.model_fields[part].annotation
            section = annotation if isinstance(annotation, type) else ControlRecipe
        name = f"key of [{'.'.join(place[:-1])}]" if len(place) > 1 else "top-level key"
        return unknown(f"{name} in {origin}", place[-1], section.model_fields)
    if problem["type"] == "missing":
        return InvalidValue(f"{origin} lacks {where}. Add it; recipes/ shows complete ones.")
    message = problem["msg"].removeprefix("Value error, ")
    if not place:
        return InvalidValue(f"{origin}: {message}.")
    return InvalidValue(f"{origin}: {where} is {problem['input']!r}, but: {message}.")
