"""A comparison as a record: what `looptaps compare --format json` writes, and what documents and the demo read.

Numbers are shares, not percent. A record that lacks a field, or has one too many, is refused with its place.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from looptaps.errors import InvalidFile, unknown
from looptaps.evaluation.matched import Timing
from looptaps.evaluation.statistics import Verdict

Kind = Literal["unit", "constant", "rule"]
Against = Literal["baseline", "constant", "site"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Share(_Record):
    """A share of puzzles with its 95 % interval."""

    value: float
    low: float
    high: float


class Pair(_Record):
    """`b` minus `a`, puzzle by puzzle.

    `against`: `a` is the baseline, the constant at b's mean eta, or the same rule under outer control (`site`). `p` is
    McNemar's exact test, `p_holm` after Holm's correction over all pairs of that kind, and the verdict is on it.
    """

    a: str
    b: str
    against: Against
    difference: float
    low: float
    high: float
    gained: int
    lost: int
    p: float
    p_holm: float
    verdict: Verdict


class Matched(_Record):
    """The first loop at the baseline's final accuracy, with its interval, and the wall-clock speedup there.

    None is N/R: not reached. `reached` is the share of resamples in which it is. `ratio` is this policy's time for all
    its loops over the baseline's (`spread`: its quartiles over batches); None, with the reason in `note`, where the two
    may not be compared, and then there is no speedup either.
    """

    loop: int | None
    loop_low: int | None
    loop_high: int | None
    reached: float
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    ratio: float | None
    spread: tuple[float, float] | None
    timing: Timing
    note: str


class Row(_Record):
    """One policy. `constant` names the constant at its mean eta; `by_loop` is the share that is right by loop."""

    name: str
    kind: Kind
    model: str
    model_sha256: str | None
    parameters: int
    controller: str
    site: str
    every: int
    strategy: str
    accuracy: Share
    any: Share | None
    by_loop: tuple[float, ...]
    mean_eta: float
    loops: float
    updates: float
    updates_median: float
    updates_max: int
    updates_high: float
    seconds: float
    constant: str | None
    matched: Matched


class Facts(_Record):
    """What the runs share, and where they were made."""

    task: str
    task_sha256: str
    puzzles: int
    loops: int
    seed: int
    batch_size: int
    device: str
    threads: int
    dtype: str
    compiled: bool
    torch: str
    looptaps: str
    commit: str | None
    changed: bool | None
    finished: str


class Comparison(_Record):
    """Rows, the baseline first, and pairs."""

    schema_version: Literal[1] = 1
    title: str = ""
    facts: Facts
    base: str
    rows: tuple[Row, ...]
    pairs: tuple[Pair, ...]

    def row(self, name: str) -> Row:
        """The policy of that name."""
        for row in self.rows:
            if row.name == name:
                return row
        raise unknown("policy of this comparison", name, [row.name for row in self.rows])

    def pair(self, name: str, against: Against) -> Pair | None:
        """What that policy was compared with; None if with nothing of the kind."""
        return next((pair for pair in self.pairs if pair.b == name and pair.against == against), None)

    def to_json(self) -> str:
        """Text that `from_json` reads back as an equal value."""
        return json.dumps(self.model_dump(mode="json"), indent=1, allow_nan=False) + "\n"


def from_json(text: str, source: str) -> Comparison:
    """The comparison in a text.

    Args:
        text: of `Comparison.to_json`.
        source: what to call it where it is wrong.
    """
    try:
        values: Any = json.loads(text)
        return Comparison.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise InvalidFile(f"{source} is no comparison: {where}: {first['msg']}. Write it again with `looptaps compare "
                          "--format json`.") from error
    except ValueError as error:
        raise InvalidFile(f"{source} is no JSON ({error}). Write it again with `looptaps compare --format json`."
                          ) from error


def read_comparison(path: str | Path) -> Comparison:
    """The comparison in a file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(f"{path} cannot be read ({error}).") from error
    return from_json(text, str(path))


