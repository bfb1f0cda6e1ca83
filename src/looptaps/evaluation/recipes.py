"""Recipes of the paper's tables and figures: what to run, what the paper says, and a small version for two CPU cores.

One TOML file for each table or figure:

    title, paper (the label in the paper), says (its claim, in a sentence), notes, views, figures
    [outside]            for what this package does not run by itself: reason, command, columns, rows, recorded
    [[outside.evaluate]] runs of lm-eval that make it: model, arguments, controllers, tasks, options, out
    [[cell]]             one comparison: name, title, claim (how it is judged), numbers (the paper's), subsets (of
                         10,000 rows each); label (put before its runs' names); also (runs of other cells:
                         "table-main.sudoku as inner", "table-main.sudoku/standard as unit"); recorded (larger runs
                         to show beside it: comparisons, or records of benchmarks/)
    [cell.run]           the fields of `looptaps run`
    [cell.small]         fields that replace those in the small version; `skip = true` leaves the cell out of it

    views      difficulty, step-sizes (cells without `run` show them); updates-to-reach (needs a cell named `target`)
    figures    accuracy, difference, eta, difficulty, refresh, site: written as SVG and PDF beside the runs
    claim      better-than-unit, better-and-sooner, not-worse, not-worse-for-less, inner-beats-outer, z_H-costs (runs
               labelled z_L and z_H), harder-costs-more, fewer-updates (than `target`), schedule-changes, shown-only
    numbers    policy -> accuracy, speedup, site, updates, median, most, saved; or a budget, for updates-to-reach
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

import looptaps
from looptaps.errors import InvalidFile, unknown
from looptaps.evaluation.options import RunOptions, file_name
from looptaps.specs import spec

Number = float | str
ALSO = re.compile(r"(?P<recipe>[\w-]+)\.(?P<cell>[\w.-]+)(/(?P<run>[\w.-]+))? as (?P<label>[\w.-]+)")
VIEWS = ("difficulty", "updates-to-reach", "step-sizes")
FIGURES = ("accuracy", "difference", "eta", "difficulty", "refresh", "site")
QUANTITIES = ("accuracy", "speedup", "site", "updates", "median", "most", "saved")
Claim = Literal["better-than-unit", "better-and-sooner", "not-worse", "not-worse-for-less", "inner-beats-outer",
                "z_H-costs", "harder-costs-more", "fewer-updates", "schedule-changes", "shown-only"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Evaluation(_Strict):
    """Runs of lm-eval with one model: one for each controller, and one for the constant at each rule's mean eta."""

    model: str
    arguments: str
    controllers: tuple[str, ...]
    tasks: tuple[str, ...]
    options: str = ""
    out: str

    def commands(self) -> list[str]:
        """All of them; the constants after the rules, since their scales are read from the rules' results."""
        rules = [text for text in self.controllers if text.startswith("taps-")]
        beside = [(f"constant:eta=$(jq .config.taps.eta_bar {self.out}/{file_name(text)}/*/results_*.json)",
                   f"constant-at-{file_name(text)}") for text in rules]
        return [
            f"taps-eval run --model {self.model} --model_args {self.arguments},controller={text} --include_path "
            f"my-tasks --tasks {','.join(self.tasks)} {self.options} --output_path {self.out}/{name}".replace("  ", " ")
            for text, name in [*((text, file_name(text)) for text in self.controllers), *beside]
        ]


class Outside(_Strict):
    """A table that other programs or a GPU must make: why, by what commands, and what the paper has.

    `recorded` names records of `benchmarks/results` that measure the same on a smaller model.
    """

    reason: str
    recorded: tuple[str, ...] = ()
    command: str = ""
    evaluate: tuple[Evaluation, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Number, ...], ...] = ()

    def commands(self) -> list[str]:
        """What makes the table, in this order."""
        prepare = ["taps-eval tasks my-benchmark-files my-tasks"] if self.evaluate else []
        return [*filter(None, [self.command]), *prepare, *(line for one in self.evaluate for line in one.commands())]


class Cell(_Strict):
    """One comparison. `numbers` is what the paper has: policy -> quantity -> value."""

    name: str
    title: str
    claim: Claim = "shown-only"
    run: dict[str, Any] = Field(default_factory=dict)
    small: dict[str, Any] = Field(default_factory=dict)
    subsets: int = 1
    also: tuple[str, ...] = ()
    label: str = ""
    recorded: tuple[str, ...] = ()
    numbers: dict[str, dict[str, Number]] = Field(default_factory=dict)

    def options(self, small: bool) -> RunOptions | None:
        """What is run; None where nothing is, or where the small version leaves the cell out."""
        if not self.run or self.left_out(small):
            return None
        return self._options(small)

    def checked(self) -> None:
        """Raise where a version could not be run, also one that is left out."""
        for small in (False, True) if self.run else ():
            self._options(small).policies()

    def _options(self, small: bool) -> RunOptions:
        changes = {name: value for name, value in self.small.items() if name != "skip"} if small else {}
        return RunOptions.model_validate({**self.run, **changes})

    def left_out(self, small: bool) -> bool:
        """Whether this version has no such cell."""
        return small and bool(self.small.get("skip"))

    def policies(self) -> list[str]:
        """The names of its own runs, in the full version."""
        options = self.options(small=False)
        return [] if options is None else list(options.policies())

    def named(self, run: str) -> str:
        """What a run of its own is called in the comparison."""
        return f"{self.label}-{run}" if self.label else run

    def paper(self, run: str) -> dict[str, Number]:
        """The paper's numbers for the run of that name, whatever preset it has here."""
        known = {file_name(policy): found for policy, found in self.numbers.items()}
        return known.get(run) or known.get(without_preset(run)) or {}


class Recipe(_Strict):
    """A table or figure of the paper."""

    title: str
    paper: str
    says: str
    notes: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    outside: Outside | None = None
    cell: tuple[Cell, ...] = ()

    def cell_named(self, name: str) -> Cell:
        """The cell of that name."""
        for cell in self.cell:
            if cell.name == name:
                return cell
        raise unknown(f"cell of the recipe {self.title!r}", name, [cell.name for cell in self.cell])


class Found(_Strict):
    """A recipe, the name of its file, and the sha256 of that."""

    name: str
    sha256: str
    recipe: Recipe


def recipe_folder(given: Path | None = None) -> Path:
    """Where the recipes are: as given, `recipes` here, or beside the package's sources."""
    places = [given] if given is not None else [Path("recipes"), Path(looptaps.__path__[0]).parents[1] / "recipes"]
    for place in places:
        if recipe_names(place):
            return place
    tried = " or ".join(str(place) for place in places)
    raise InvalidFile(f"There are no recipes of tables in {tried}. They come with the sources, not with the installed "
                      "package: name their folder with --recipes.")


def recipe_names(folder: Path) -> list[str]:
    """All recipes of a folder, by name."""
    return sorted(path.stem for path in folder.glob("*.toml") if path.stem.startswith(("table-", "figure-")))


def load_recipe(name: str, folder: Path) -> Found:
    """The recipe of that name; every cell is checked as if it were run."""
    found = _read(name, folder)
    _check(found.recipe, folder, folder / f"{name}.toml")
    return found


def without_preset(run: str) -> str:
    """
    >>> without_preset("inner-taps-gd-trm")
    'inner-taps-gd'
    """
    return run.removesuffix("-trm").removesuffix("-blocks")


def _read(name: str, folder: Path) -> Found:
    if name not in recipe_names(folder):
        raise unknown("recipe", name, recipe_names(folder))
    path = folder / f"{name}.toml"
    try:
        data = path.read_bytes()
        recipe = Recipe.model_validate(tomllib.loads(data.decode()))
        for cell in recipe.cell:
            cell.checked()
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidFile(f"{path}: {where}: {first['msg']}. Correct or remove it.") from error
    except ValueError as error:
        raise InvalidFile(f"{path} is no recipe: {error}") from error
    return Found(name=name, sha256=hashlib.sha256(data).hexdigest(), recipe=recipe)


def _check(recipe: Recipe, folder: Path, path: Path) -> None:
    if (recipe.outside is None) == (not recipe.cell):
        raise InvalidFile(f"{path} must have either cells to run or [outside], which says why it is not run here.")
    names = [cell.name for cell in recipe.cell]
    if len(set(names)) < len(names):
        raise InvalidFile(f"{path}: two cells have one name. Rename one.")
    if "updates-to-reach" in recipe.views and "target" not in names:
        raise InvalidFile(f"{path}: the view updates-to-reach needs a cell named target. Add it.")
    for what, given, known in (("view", recipe.views, VIEWS), ("figure", recipe.figures, FIGURES)):
        for name in given:
            if name not in known:
                raise unknown(f"{what} in {path}", name, known)
    for one in () if recipe.outside is None else recipe.outside.evaluate:
        for text in one.controllers:
            spec(text)
    for cell in recipe.cell:
        if cell.subsets < 1:
            raise InvalidFile(f"{path}: subsets of {cell.name} must be at least 1, but is {cell.subsets}.")
        if not cell.run and not cell.also:
            raise InvalidFile(f"{path}: {cell.name} has neither run nor also, so there is nothing to compare.")
        if cell.small and (not cell.run or cell.small.get("skip", True) is not True):
            raise InvalidFile(f"{path}: small of {cell.name} must replace fields of its run, or hold skip = true.")
        _check_numbers(recipe, cell, folder, path)


def _check_numbers(recipe: Recipe, cell: Cell, folder: Path, path: Path) -> None:
    """The paper's numbers are of policies that the comparison has, and of quantities that a table shows."""
    runs = {cell.named(run) for run in cell.policies()}
    for place in cell.also:
        named = ALSO.fullmatch(place)
        if named is None:
            raise InvalidFile(f"{path}: also of {cell.name} must read 'recipe.cell as label' or 'recipe.cell/run "
                              f"as name', but is {place!r}.")
        made = _read(named["recipe"], folder).recipe.cell_named(named["cell"]).policies()
        if named["run"] is None:
            runs |= {f"{named['label']}-{run}" for run in made}
        elif named["run"] in made:
            runs.add(named["label"])
        else:
            raise unknown(f"run of {place}", named["run"], made)
    known = runs | {without_preset(run) for run in runs}
    for policy, quantities in cell.numbers.items():
        if file_name(policy) not in known:
            raise unknown(f"policy in the numbers of {cell.name} in {path}", policy, sorted(known))
        for quantity in quantities:
            if quantity not in QUANTITIES and not ("updates-to-reach" in recipe.views and quantity.isdecimal()):
                raise unknown(f"quantity of {policy} in {path}", quantity, QUANTITIES)
