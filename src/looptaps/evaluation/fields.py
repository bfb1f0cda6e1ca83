"""What the files of a run may hold: one table of fields for `run.json`, one for a line of `samples.jsonl`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from looptaps.loop.control import MemorySpan, OuterAt, ScopeName, Site

Count = Annotated[int, Field(ge=0, le=2**53)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Fields(BaseModel):
    """The fields of a record that are read, and what each may hold; others may stand beside them."""

    model_config = ConfigDict(strict=True)


class _Model(_Fields):
    spec: str
    config: dict[str, Any] | None
    parameters: Count
    sha256: str | None


class _Task(_Fields):
    spec: str
    name: str
    sha256: str
    n: Annotated[Count, Field(ge=1)]


class _Control(_Fields):
    controller: str
    site: Site
    outer_at: OuterAt
    every: Annotated[Count, Field(ge=1)]
    scope: ScopeName
    memory: MemorySpan


class _Device(_Fields):
    type: str
    name: str
    threads: Count


class _Timing(_Fields):
    protocol: str
    group: str
    seconds: Seconds
    batch_seconds: list[Seconds]


class _Counts(_Fields):
    puzzles: Count
    loops: Count
    updates: Count
    updates_high: Count


class _Versions(_Fields):
    python: str
    torch: str


class _Git(_Fields):
    commit: str | None
    dirty: bool | None


class Meta(_Fields):
    """`run.json`."""

    name: str
    looptaps: str
    git: _Git
    model: _Model
    task: _Task
    controller: str
    control: _Control
    strategy: str
    loops: Annotated[Count, Field(ge=1)]
    refill: bool
    limit: Count | None
    seed: int
    batch_size: Annotated[Count, Field(ge=1)]
    device: _Device
    dtype: str
    compiled: bool
    versions: _Versions
    recipe: dict[str, Any] | None
    trace: Count
    timing: _Timing
    counts: _Counts
    parts: list[dict[str, Any]]
    finished: str | None


Number = Annotated[float, Field(allow_inf_nan=False)] | None


class Sample(_Fields):
    """A line of `samples.jsonl`."""

    id: Count
    difficulty: dict[str, Number]
    correct: Annotated[str, Field(pattern="^[01]+$")]
    loops: Annotated[Count, Field(ge=1)]
    updates: Count
    updates_high: Count
    status: Literal["RAN_ALL", "EXITED", "CONVERGED", "NONFINITE"]
    score: Number
    eta: Number
    eta_by_loop: list[Number]
    any: bool = False  # under rollouts only


def wrong(error: ValidationError) -> str:
    """The fields that a record lacks; if none, the first that is wrong, and what it may be."""
    found = error.errors(include_url=False)
    lacking = [".".join(map(str, one["loc"])) for one in found if one["type"] == "missing"]
    if lacking:
        return f"lacks {', '.join(lacking)}"
    where, value = ".".join(map(str, found[0]["loc"])) or "content", repr(found[0]["input"])
    given = value if len(value) <= 60 else value[:59] + "…"
    return f"has {where} {given}, but: {found[0]['msg'].partition(' or instance of')[0]}"
