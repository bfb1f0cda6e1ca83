"""Difficulty analysis: accuracy and compute by empty cells, rating, or any other number per puzzle."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from looptaps.errors import InvalidShape, InvalidValue, invalid
from looptaps.evaluation.statistics import Interval, proportion


class Group(NamedTuple):
    """The puzzles of a range of difficulty, both ends included: how many were solved, and what they cost.

    `accuracy` with Wilson's interval; `updates` is the mean with Student's t interval; `quartiles` are those of the
    updates (25 %, median, 75 %).
    """

    low: float
    high: float
    puzzles: int
    accuracy: Interval
    updates: Interval
    quartiles: tuple[float, float, float]


def by_difficulty(difficulty: Any, correct: Any, updates: Any, *, groups: int = 4) -> list[Group]:
    """Accuracy and effective updates in ranges of difficulty that hold about as many puzzles each, easiest first.

    Args:
        difficulty: (N,) one finite number per puzzle, such as `task.difficulty["empty"]`.
        correct: (N,) bool, whether each puzzle was solved.
        updates: (N,) what each puzzle cost, such as `result.updates`.
        groups: how many ranges at most; equal difficulties are never parted, so there may be fewer.

    >>> found = by_difficulty([50, 51, 55, 56], [True, True, True, False], [48, 48, 60, 384], groups=2)
    >>> [(group.low, group.high, group.puzzles, group.accuracy.value, group.updates.value) for group in found]
    [(50.0, 51.0, 2, 1.0, 48.0), (55.0, 56.0, 2, 0.5, 222.0)]
    """
    values, cost = np.asarray(difficulty, np.float64), np.asarray(updates, np.float64)
    solved = np.asarray(correct)
    if values.ndim != 1 or not len(values) or values.shape != cost.shape or values.shape != solved.shape:
        raise InvalidShape("by_difficulty needs one difficulty, one flag and one number of updates per puzzle, but got "
                           f"{values.shape}, {solved.shape} and {cost.shape}. Take them from the same run.")
    if not np.isfinite(values).all() or not np.isfinite(cost).all():
        raise InvalidValue("by_difficulty needs finite difficulties and updates, but some are not. Leave those "
                           "puzzles out.")
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < 1:
        raise invalid("by_difficulty", "groups", "a whole number >= 1", groups, "The default is 4.")
    edges = np.unique(np.quantile(values, np.linspace(0, 1, groups + 1)[1:-1], method="lower"))
    place = np.searchsorted(edges, values, side="left")
    return [_group(values[rows], solved[rows], cost[rows]) for rows in (place == i for i in np.unique(place))]


def _group(values: NDArray[np.float64], solved: NDArray[np.bool_], cost: NDArray[np.float64]) -> Group:
    low, middle, high = np.quantile(cost, [0.25, 0.5, 0.75])
    return Group(float(values.min()), float(values.max()), len(values), proportion(solved), mean_interval(cost),
                 (float(low), float(middle), float(high)))


def mean_interval(values: Any, confidence: float = 0.95) -> Interval:
    """A mean with Student's t interval; a single value, or equal ones, have none.

    >>> mean_interval([1.0, 2.0, 3.0])  # doctest: +ELLIPSIS
    Interval(value=2.0, low=-0.48..., high=4.48...)
    """
    numbers = np.asarray(values, np.float64)
    middle = float(numbers.mean())
    error = float(stats.sem(numbers)) if len(numbers) > 1 else 0.0
    if error == 0.0:
        return Interval(middle, middle, middle)
    low, high = stats.t.interval(confidence, len(numbers) - 1, middle, error)
    return Interval(middle, float(low), float(high))
