"""Recipes of the paper's tables and figures: what to run, what the paper says, and a small version for two CPU cores.

One TOML file for each table or figure:

    title, paper (the label in the paper), says (its claim, in a sentence), notes, views
    [outside]            for what this package does not run by itself: reason, command, columns, rows, recorded
    [[cell]]             one comparison: name, title, numbers (the paper's), subsets (of 10,000 rows each);
                         label (put before its runs' names); also (runs of other cells: "table-main.sudoku as inner",
                         "table-main.sudoku/standard as unit"); recorded (larger runs to show beside it)
    [cell.run]           the fields of `looptaps run`
    [cell.small]         fields that replace those in the small version; `skip = true` leaves the cell out of it
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

import looptaps
from looptaps.errors import InvalidFile, unknown
from looptaps.evaluation.options import RunOptions, file_name

Number = float | str
ALSO = re.compile(r"(?P<recipe>[\w-]+)\.(?P<cell>[\w-]+)(/(?P<run>[\w.-]+))? as (?P<label>[\w.-]+)")
VIEWS = ("difficulty", "updates-to-reach", "step-sizes")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Outside(_Strict):
    """A table that other programs or a GPU must make: why, by what command, and what the paper has.

    `recorded` names records of `benchmarks/results` that measure the same on a smaller model.
    """

    reason: str
    recorded: tuple[str, ...] = ()
    command: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Number, ...], ...] = ()


class Cell(_Strict):
    """One comparison. `numbers` is what the paper has: policy -> quantity -> value."""

    name: str
    title: str
    run: dict[str, Any] = Field(default_factory=dict)
    small: dict[str, Any] = Field(default_factory=dict)
    subsets: int = 1
    also: tuple[str, ...] = ()
    label: str = ""
    recorded: tuple[str, ...] = ()
    numbers: dict[str, dict[str, Number]] = Field(default_factory=dict)

    def options(self, small: bool) -> RunOptions | None:
        """What is run; None where nothing is, or where the small version leaves the cell out."""
        if not self.run or (small and self.small.get("skip")):
            return None
        return RunOptions.model_validate({**self.run, **(self.small if small else {})})

    def left_out(self, small: bool) -> bool:
        """Whether this version has no such cell."""
        return small and bool(self.small.get("skip"))

    def paper(self, run: str) -> dict[str, Number]:
        """The paper's numbers for the run of that name, whatever preset it has here."""
        known = {file_name(policy): found for policy, found in self.numbers.items()}
        return known.get(run) or known.get(run.removesuffix("-trm").removesuffix("-blocks")) or {}


class Recipe(_Strict):
    """A table or figure of the paper."""

    title: str
    paper: str
    says: str
    notes: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    outside: Outside | None = None
    cell: tuple[Cell, ...] = ()


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
    """All recipes of a folder, in the order of the paper's label in their names' files."""
    return sorted(path.stem for path in folder.glob("*.toml") if path.stem.startswith(("table-", "figure-")))


def load_recipe(name: str, folder: Path) -> Found:
    """The recipe of that name; every cell is checked as if it were run."""
    if name not in recipe_names(folder):
        raise unknown("recipe", name, recipe_names(folder))
    path = folder / f"{name}.toml"
    try:
        data = path.read_bytes()
        recipe = Recipe.model_validate(tomllib.loads(data.decode()))
        for cell in recipe.cell:
            for small in (False, True):
                options = cell.options(small)
                if options is not None:
                    options.policies()
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidFile(f"{path}: {where}: {first['msg']}. Correct or remove it.") from error
    except ValueError as error:
        raise InvalidFile(f"{path} is no recipe: {error}") from error
    _check(recipe, path)
    return Found(name=name, sha256=hashlib.sha256(data).hexdigest(), recipe=recipe)


def _check(recipe: Recipe, path: Path) -> None:
    if (recipe.outside is None) == (not recipe.cell):
        raise InvalidFile(f"{path} must have either cells to run or [outside], which says why it is not run here.")
    names = [cell.name for cell in recipe.cell]
    if len(set(names)) < len(names):
        raise InvalidFile(f"{path}: two cells have one name. Rename one.")
    for view in recipe.views:
        if view not in VIEWS:
            raise unknown(f"view in {path}", view, VIEWS)
    for cell in recipe.cell:
        if cell.subsets < 1:
            raise InvalidFile(f"{path}: subsets of {cell.name} must be at least 1, but is {cell.subsets}.")
        for place in cell.also:
            if ALSO.fullmatch(place) is None:
                raise InvalidFile(f"{path}: also of {cell.name} must read 'recipe.cell as label' or 'recipe.cell/run "
                                  f"as name', but is {place!r}.")
        if not cell.run and not cell.also:
            raise InvalidFile(f"{path}: {cell.name} has neither run nor also, so there is nothing to compare.")
