"""At what loop a policy is as accurate as the baseline at its end, and how much sooner on the clock that is.

The baseline itself crosses its final accuracy early where its curve is a plateau, so its own crossing stands beside
those of others; and the crossing is a random loop, so it gets an interval: puzzles are resampled, the same ones for all
policies, and the crossing is found anew each time. Shapes: N puzzles, H outer loops, R resamples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from looptaps.evaluation.records import Run
from looptaps.evaluation.statistics import loops_to_match

Timing = Literal["interleaved", "separate", "not comparable"]
RESAMPLES = 1000
_SAME_CLOCK = ("device.type", "device.name", "device.threads", "dtype", "compiled", "batch_size", "refill")


class Crossing(NamedTuple):
    """The first loop at the target; None: not reached. `reached` is the share of resamples in which it is."""

    loop: int | None
    low: int | None
    high: int | None
    reached: float


NEVER = Crossing(None, None, None, 0.0)  # also where the baseline solves nothing: that is no target


class Clock(NamedTuple):
    """Seconds of one run over those of another, for the same puzzles; None where they may not be compared."""

    ratio: float | None
    timing: Timing
    note: str


def crossings(base: Run, runs: Mapping[str, Run], *, confidence: float = 0.95, seed: int = 0) -> dict[str, Crossing]:
    """Where each run reaches the final accuracy of `base`, with a paired bootstrap interval."""
    targets, curves = [], {name: [] for name in runs}  # type: ignore[var-annotated]
    rng = np.random.default_rng(seed)
    n = len(base)
    flags = {name: run.correct.astype(np.float32) for name, run in runs.items()}
    last = base.final.astype(np.float32)
    for size in np.diff([*range(0, RESAMPLES, 100), RESAMPLES]):  # a hundred at a time, for the memory's sake
        weights = rng.multinomial(n, np.full(n, 1 / n), size=size).astype(np.float32)
        targets.append(weights @ last)
        for name, flag in flags.items():
            curves[name].append(weights @ flag)
    target = np.concatenate(targets)[:, None]
    found = {}
    for name, run in runs.items():
        hit = np.concatenate(curves[name]) >= target  # whole numbers below 2^24: exact in float32
        place = np.where(hit.any(1), hit.argmax(1) + 1.0, np.inf)
        tail = (1 - confidence) / 2
        low, high = np.quantile(place, [tail, 1 - tail], method="inverted_cdf")
        # Counts, not shares: equal counts are equal, whatever the last bit of a mean.
        own = loops_to_match([int(count) for count in run.correct.sum(0)], int(base.final.sum()))
        found[name] = Crossing(own, _loop(low), _loop(high), float(hit.any(1).mean())) if base.final.any() else NEVER
    return found


def _loop(value: float) -> int | None:
    return int(value) if math.isfinite(value) else None


def work_until(run: Run, loop: int) -> float:
    """The share of a run's loops that is done when everyone has made `loop` of them; fixed depth: loop / H."""
    return float(np.minimum(run.loops, loop).sum() / run.loops.sum())


def clock(base: Run, run: Run) -> Clock:
    """How much longer `run` took than `base`: the median over batches, paired where they were timed in turns."""
    for field in _SAME_CLOCK:
        mine, theirs = _field(run, field), _field(base, field)
        if mine != theirs:
            return Clock(None, "not comparable", f"{field} is {mine} here and {theirs} there")
    own, other = (np.asarray(r.meta["timing"]["batch_seconds"], np.float64) for r in (run, base))
    if not len(own) or len(own) != len(other) or not (own > 0).all() or not (other > 0).all():
        return Clock(None, "not comparable", "not every batch has its seconds")
    if run is base or run.meta["timing"]["group"] == base.meta["timing"]["group"]:
        return Clock(float(np.median(own / other)), "interleaved", "")
    return Clock(float(np.median(own) / np.median(other)), "separate",
                 "timed in separate calls, so what else the machine did may show")


def _field(run: Run, field: str) -> object:
    at: object = run.meta
    for key in field.split("."):
        assert isinstance(at, dict)
        at = at[key]
    return at


def spread(base: Run, run: Run) -> tuple[float, float] | None:
    """Quartiles of the ratio over batches, where they were timed in turns."""
    if clock(base, run).timing != "interleaved":
        return None
    own, other = (np.asarray(r.meta["timing"]["batch_seconds"], np.float64) for r in (run, base))
    low, high = np.quantile(own / other, [0.25, 0.75])
    return float(low), float(high)


def speedup(run: Run, ratio: float | None, loop: int | None) -> float | None:
    """The baseline's whole time over the run's time until that loop; None: not reached, or no clock."""
    return None if loop is None or ratio is None else 1.0 / (ratio * work_until(run, loop))


