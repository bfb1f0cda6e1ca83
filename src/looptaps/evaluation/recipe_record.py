"""What running a recipe gave, as one JSON file: comparisons, tables as text, and where it was run."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from looptaps.errors import InvalidFile
from looptaps.evaluation.comparison import Comparison


class TextTable(BaseModel):
    """A table of a recipe: the paper's numbers beside ours."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Estimate(BaseModel):
    """A number that a claim is judged on and that needs the runs themselves, with its 95 % interval.

    None: not reached (a value), or not reached in too many resamples (an end). `unit`: it is the unit step's, beside
    which the rules' stand.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    value: float | None
    low: float | None
    high: float | None
    unit: bool = False


class RecipeRecord(BaseModel):
    """One recipe, run.

    `seconds` is what its own runs took, all sessions together, and `commit` (several, where a run was gone on with)
    that of the runs; `changed`: the sources then differed from it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = 1
    recipe: str
    recipe_sha256: str
    small: bool
    command: str
    looptaps: str
    commit: str | None
    changed: bool | None
    seconds: float
    finished: str
    comparisons: dict[str, Comparison]
    estimates: dict[str, tuple[Estimate, ...]] = {}
    tables: tuple[TextTable, ...]

    def write(self, path: Path) -> None:
        """As JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.model_dump(mode="json"), indent=1, allow_nan=False) + "\n", encoding="utf-8")


def read_record(path: Path) -> RecipeRecord:
    """The record in a file."""
    try:
        return RecipeRecord.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidFile(f"{path} cannot be read ({error}).") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise InvalidFile(f"{path} is no record of a recipe: {where}: {first['msg']}. Run `looptaps reproduce` again."
                          ) from error
