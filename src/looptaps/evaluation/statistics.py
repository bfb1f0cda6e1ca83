"""Intervals and tests for accuracy on the same puzzles: what a difference between two policies is worth.

Everything is `scipy.stats`; this file only says which of it, and on what.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from looptaps.errors import InvalidShape, InvalidValue, invalid

Correct = NDArray[np.bool_]
Verdict = Literal["better", "worse", "no difference"]


class Interval(NamedTuple):
    """A share of successes with its confidence interval."""

    value: float
    low: float
    high: float


class Paired(NamedTuple):
    """b minus a on the same puzzles.

    `difference` with its bootstrap interval; `gained` puzzles only b solved, `lost` ones only a; `p` from McNemar's
    exact test.
    """

    difference: float
    low: float
    high: float
    gained: int
    lost: int
    p: float

    def verdict(self, alpha: float = 0.05, p: float | None = None) -> Verdict:
        """What may be said of b: by `p` (one corrected for many comparisons, if given) at level alpha."""
        if (self.p if p is None else p) >= alpha or self.gained == self.lost:
            return "no difference"
        return "better" if self.gained > self.lost else "worse"


def proportion(correct: Correct, confidence: float = 0.95) -> Interval:
    """Wilson's interval for a share.

    >>> proportion(np.array([True] * 8 + [False] * 2))  # doctest: +ELLIPSIS
    Interval(value=0.8, low=0.4901..., high=0.9433...)
    """
    correct = _flags(correct, "proportion")
    _check_confidence(confidence)
    found = stats.binomtest(int(correct.sum()), len(correct)).proportion_ci(confidence, method="wilson")
    return Interval(float(correct.mean()), float(found.low), float(found.high))


def paired(a: Correct, b: Correct, *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0) -> Paired:
    """b against a, puzzle by puzzle: percentile bootstrap of the mean difference, and McNemar's exact test.

    >>> a = np.array([True, False] * 50)
    >>> paired(a, a).verdict()
    'no difference'
    """
    a, b = _flags(a, "paired"), _flags(b, "paired")
    if a.shape != b.shape:
        raise InvalidShape(f"paired needs the same puzzles twice, but got {len(a)} and {len(b)} answers.")
    _check_confidence(confidence)
    gained, lost = int((b & ~a).sum()), int((a & ~b).sum())
    n = len(a)
    if gained == lost == 0:
        return Paired(0.0, 0.0, 0.0, 0, 0, 1.0)
    # A resample of n paired differences holds only -1, 0 and 1: its counts are one multinomial draw, so the bootstrap
    # needs no n-by-resamples table.
    shares = np.array([gained, lost, n - gained - lost]) / n
    counts = np.random.default_rng(seed).multinomial(n, shares, size=resamples)
    tail = (1 - confidence) / 2
    low, high = np.quantile((counts[:, 0] - counts[:, 1]) / n, [tail, 1 - tail])
    p = float(stats.binomtest(gained, gained + lost).pvalue)
    return Paired((gained - lost) / n, float(low), float(high), gained, lost, p)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: p-values that may be compared with alpha however many comparisons there are.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    corrected = [0.0] * len(order)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[index]))
        corrected[index] = float(f"{largest:.12g}")  # 0.06, not 0.06000000000000001
    return corrected


def loops_to_match(curve: Sequence[float], target: float) -> int | None:
    """The first loop (counted from 1) whose accuracy is at least `target`; None: not reached.

    >>> loops_to_match([0.2, 0.5, 0.7], 0.5)
    2
    """
    return next((loop for loop, value in enumerate(curve, 1) if value >= target), None)


def _flags(correct: Correct, owner: str) -> Correct:
    values = np.asarray(correct)
    if values.dtype != np.bool_ or values.ndim != 1 or len(values) == 0:
        raise InvalidValue(f"{owner} needs a non-empty 1-D array of True and False, but got {values.dtype} of shape "
                           f"{values.shape}.")
    return values


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise invalid("statistics", "confidence", "a number in (0, 1)", confidence, "0.95 is the usual one.")
