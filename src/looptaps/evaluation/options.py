"""What `looptaps run` takes, as one strict value: from the command line, from a TOML recipe, or in Python.

>>> from looptaps.evaluation.options import RunOptions
>>> options = RunOptions(model="trm:sudoku", controller=("standard", "taps-gd@blocks"), loops=16)
>>> list(options.policies())
['standard', 'taps-gd-blocks']
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from looptaps.controllers import Standard
from looptaps.errors import InvalidFile, InvalidUse, InvalidValue, unknown
from looptaps.evaluation.measure import Policy
from looptaps.evaluation.records import Run
from looptaps.evaluation.runner import run, run_many
from looptaps.loop import Control
from looptaps.models import load_model
from looptaps.specs import spec
from looptaps.tasks import Task, open_task

RULES = ("taps-gd", "taps-sign", "taps-momentum", "taps-rmsprop", "taps-adam", "taps-bb")
ALL = ("standard", *RULES)


def _texts(value: Any) -> Any:
    """Specs from a text or a list of texts, separated by commas; `all` is the unit step and the six rules."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        return value
    names = [name.strip() for part in parts for name in part.split(",") if name.strip()]
    every: list[str] = []
    for name in names:
        head, at, preset = name.partition("@")
        every += [f"{one}{at}{preset}" if one != "standard" else one for one in ALL] if head == "all" else [name]
    return tuple(dict.fromkeys(every))


class RunOptions(BaseModel):
    """All that decides a run. Fields as the options of `looptaps run`."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    model: str
    task: str = "sudoku"
    controller: Annotated[tuple[str, ...], BeforeValidator(_texts)] = ("standard",)
    strategy: str | None = None
    loops: int | None = None
    where: str | None = None
    rows: str | None = None
    limit: int | None = None
    seed: int = 0
    batch_size: int = 64
    site: Literal["inner", "outer"] = "inner"
    outer_at: Literal["cycle", "loop"] = "cycle"
    every: int = 1
    scope: Literal["sample", "sequence", "token"] = "sample"
    memory: Literal["rollout", "loop", "cycle"] = "rollout"
    device: str | None = None
    dtype: str | None = None
    compile: bool = False
    threads: int | None = None
    refill: bool = False
    trace: int = 0
    constants: bool = False

    def policies(self) -> dict[str, Policy]:
        """The policies by the names of their folders; the unit step is the same under every control."""
        if not self.controller:
            raise InvalidUse("run: no controller is named. Leave --controller out for the unit step.")
        found = {}
        for text in self.controller:
            rule = spec(text)
            control = Control(rule) if isinstance(rule, Standard) else Control(
                rule, site=self.site, outer_at=self.outer_at, every=self.every, scope=self.scope, memory=self.memory,
            )
            found[file_name(text)] = Policy(control, self.strategy)
        return found

    def folder_name(self) -> str:
        """What a folder of this run is called where nobody says."""
        return file_name(self.controller[0]) if len(self.controller) == 1 else file_name(self.task)


def file_name(text: str) -> str:
    """A text as the name of a folder.

    >>> file_name("constant:eta=1.05")
    'constant-eta-1.05'
    """
    return re.sub(r"[^\w.]+", "-", text).strip("-.") or "run"


def options_of(given: Mapping[str, Any], recipe: str | Path | None = None) -> tuple[RunOptions, dict[str, str] | None]:
    """The options, those of a recipe first and what is given over them; and the recipe's name and sha256.

    Args:
        given: options by name.
        recipe: a TOML file with the same names.
    """
    values: dict[str, Any] = {}
    facts = None
    if recipe is not None:
        try:
            text = Path(recipe).read_bytes()
            values = tomllib.loads(text.decode())
        except (OSError, ValueError) as error:
            raise InvalidFile(f"The recipe {recipe} cannot be read ({error}). Check path and syntax.") from error
        facts = {"name": Path(recipe).stem, "hash": hashlib.sha256(text).hexdigest()}
        for key in values:
            if key not in RunOptions.model_fields:
                raise unknown(f"key of the run recipe {recipe}", key, RunOptions.model_fields)
    try:
        return RunOptions.model_validate({**values, **given}), facts
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        if first["type"] == "missing":
            raise InvalidUse(f"run needs --{where}; leave nothing but defaults out.") from error
        if first["type"] == "extra_forbidden":
            raise unknown("option of run", where, RunOptions.model_fields) from error
        raise InvalidValue(f"run: {where} is {first['input']!r}, but: {first['msg']}.") from error


def execute(
    options: RunOptions,
    out: str | Path,
    *,
    recipe: Mapping[str, Any] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    models: dict[Any, Any] | None = None,
    several: bool = False,
) -> dict[str, Run]:
    """Load model and task and run: one controller into `out` itself, several into folders in it.

    Args:
        options: what to run.
        out: the folder.
        recipe: {"name", "hash"} of the recipe the options come from.
        progress: told a policy's name, the puzzles of a batch, and how many there are in all.
        models: keeps models that are loaded (and compiled) from one call to the next.
        several: make folders in the folder for a single controller, too.
    """
    policies = options.policies()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    task = part_of(harder(open_task(options.task), options.where), options.rows)
    device = pick_device(options.device)
    key, kept = (options.model, str(device), options.compile), {} if models is None else models
    if key not in kept:
        kept[key] = load_model(options.model).eval().to(device)
    model = kept[key]
    total = len(task) if options.limit is None else min(options.limit, len(task))
    settings: dict[str, Any] = {
        "loops": options.loops, "limit": options.limit, "seed": options.seed, "batch_size": options.batch_size,
        "dtype": options.dtype, "compile": options.compile, "trace": options.trace, "refill": options.refill,
        "recipe": recipe, "model_spec": options.model,
        "task_spec": " ".join(filter(None, (options.task, options.where, options.rows and f"[{options.rows}]"))),
        "progress": None if progress is None else lambda name, puzzles: progress(name, puzzles, total),
    }  # fmt: skip
    if len(policies) == 1 and not options.constants and not several:
        (policy,) = policies.values()
        found = run(model, task, policy.control, policy.strategy, out=out, **settings)
        return {found.name: found}
    return run_many(model, task, policies, out=out, constants=options.constants, **settings)


def harder(task: Task, where: str | None) -> Task:
    """The puzzles of a task that meet a condition on a difficulty: `rating>=5`, `empty<=56`."""
    if where is None:
        return task
    found = re.fullmatch(r"(\w+)(>=|<=)(-?\d+(?:\.\d+)?)", where.replace(" ", ""))
    if found is None:
        raise InvalidValue(f"run.where must read field>=number or field<=number, but is {where!r}. Write rating>=5.")
    field, sign, number = found.groups()
    if field not in task.difficulty:
        raise unknown("difficulty of this task", field, task.difficulty)
    values = np.asarray(task.difficulty[field], np.float64)
    rows = np.flatnonzero(values >= float(number) if sign == ">=" else values <= float(number))
    if not len(rows):
        raise InvalidValue(f"run.where: no puzzle has {where}; {field} is in {values.min():g}..{values.max():g}.")
    return task.select(rows)


def part_of(task: Task, rows: str | None) -> Task:
    """The puzzles `start:stop` of a task, both within it: subsets that do not overlap."""
    if rows is None:
        return task
    start, _, stop = rows.partition(":")
    if not (start.isdecimal() and stop.isdecimal()) or not int(start) < int(stop) <= len(task):
        raise InvalidValue(f"run.rows must be start:stop with start < stop <= {len(task)}, the puzzles of the task, "
                           f"but is {rows!r}. Write 0:{len(task)} for all.")
    return task.select(slice(int(start), int(stop)))


def pick_device(name: str | None) -> torch.device:
    """The device of that name, or a GPU if there is one; never another than was asked for."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidValue(f"The device {name!r} cannot be used here: {reason}. Use --device cpu.") from error
    return device
