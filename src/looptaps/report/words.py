"""Numbers as text, the same everywhere."""

from __future__ import annotations

from collections.abc import Sequence

from looptaps.evaluation.comparison import Matched, Pair, Share
from looptaps.evaluation.statistics import Interval, Paired

NOT_REACHED = "N/R"


def percent(share: float) -> str:
    """
    >>> percent(0.1234)
    '12.3'
    """
    return f"{100 * share:.1f}"


def share(found: Interval | Share) -> str:
    """A share in percent, with its interval."""
    return f"{percent(found.value)} [{percent(found.low)}, {percent(found.high)}]"


def points(found: Paired | Pair) -> str:
    """A difference in percentage points, with its interval."""
    return f"{100 * found.difference:+.2f} [{100 * found.low:+.2f}, {100 * found.high:+.2f}]"


def crossing(found: Matched) -> str:
    """The loop at the baseline's accuracy, with its interval."""
    low, high = (NOT_REACHED if loop is None else str(loop) for loop in (found.loop_low, found.loop_high))
    return f"{NOT_REACHED if found.loop is None else found.loop} [{low}, {high}]"


def times(found: Matched) -> str:
    """The matched-accuracy speedup with its interval, N/R, or a dash where clocks may not be compared.

    `~` marks runs that were timed in separate calls.
    """
    if found.ratio is None:
        return "-" if found.loop is not None else NOT_REACHED
    low, high = (NOT_REACHED if value is None else f"{value:.2f}" for value in (found.speedup_low, found.speedup_high))
    mark = "~" if found.timing == "separate" else ""
    return f"{NOT_REACHED if found.speedup is None else f'{mark}{found.speedup:.2f}x'} [{low}, {high}]"


def p_value(p: float) -> str:
    """
    >>> p_value(0.0004), p_value(0.21)
    ('4.0e-04', '0.21')
    """
    if p < 1e-12:
        return "< 1e-12"
    return f"{p:.1e}" if p < 0.001 else f"{p:.2g}"


def listed(names: Sequence[str]) -> str:
    """
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
