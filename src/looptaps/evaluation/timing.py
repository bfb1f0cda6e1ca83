"""What a policy costs on the clock, whatever it solves: the same batch again and again, all policies in turns.

In each repeat every policy runs once, and its seconds are divided by the unit step's of that repeat, so that what else
the machine does falls on both. The order rotates, so that nobody always comes first. One untimed pass warms up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from looptaps.errors import InvalidUse
from looptaps.evaluation.measure import Policy, measure, resolve_strategy, warm_up
from looptaps.tasks.base import TaskBatch, check_count

PROTOCOL = (
    "One batch that is already on the device, answers after every loop included; one untimed pass; then policies in "
    "turns, in rotating order; the device is synchronised before and after each. Medians with quartiles over repeats; "
    "ratios are taken within a repeat."
)


class Spread(NamedTuple):
    """A median and its quartiles."""

    median: float
    low: float
    high: float


class Timed(NamedTuple):
    """Seconds for the batch, and those over the baseline's of the same repeat."""

    seconds: Spread
    ratio: Spread
    all_seconds: tuple[float, ...]


def time_policies(
    model: Any,
    part: TaskBatch,
    policies: Mapping[str, Policy],
    *,
    loops: int | None = None,
    repeats: int = 9,
    baseline: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Timed]:
    """Time each policy on the same puzzles.

    Args:
        model: any `LoopModel`, where and as it should be timed.
        part: the puzzles.
        policies: name -> `Policy(control, strategy)`.
        loops: the horizon where a strategy does not name its own.
        repeats: how often each is timed.
        baseline: whose seconds the others are divided by; left out, the first.
        progress: told the number of each finished repeat.
    """
    check_count("bench", "repeats", repeats, 3)
    if not policies:
        raise InvalidUse("bench: no policy is named. Give at least the unit step.")
    base = baseline or next(iter(policies))
    if base not in policies:
        raise InvalidUse(f"bench: the baseline {base!r} is not among the policies {', '.join(policies)}.")
    resolved, horizons = {}, {}
    for name, policy in policies.items():
        strategy, horizons[name] = resolve_strategy(policy.strategy, loops, model, part.batch)
        resolved[name] = Policy(policy.control, strategy)
        warm_up(model, part.batch, resolved[name])
        measure(model, part, resolved[name], horizons[name])  # sizes that an early exit leaves are warm then, too
    names = list(resolved)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for repeat in range(repeats):
        first = repeat % len(names)
        for name in names[first:] + names[:first]:
            seconds[name].append(measure(model, part, resolved[name], horizons[name]).seconds)
        if progress is not None:
            progress(repeat + 1)
    against = np.asarray(seconds[base])
    return {
        name: Timed(_spread(np.asarray(own)), _spread(np.asarray(own) / against), tuple(own))
        for name, own in seconds.items()
    }


def _spread(values: Any) -> Spread:
    low, median, high = (float(value) for value in np.quantile(values, [0.25, 0.5, 0.75]))
    return Spread(median, low, high)
