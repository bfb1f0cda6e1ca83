"""Numbers as text, the same everywhere."""

from __future__ import annotations

from collections.abc import Sequence

from looptaps.evaluation.statistics import Interval, Paired


def percent(share: float) -> str:
    """
    >>> percent(0.1234)
    '12.3'
    """
    return f"{100 * share:.1f}"


def share(found: Interval) -> str:
    """A share in percent, with its interval."""
    return f"{percent(found.value)} [{percent(found.low)}, {percent(found.high)}]"


def points(found: Paired) -> str:
    """A difference in percentage points, with its interval."""
    return f"{100 * found.difference:+.2f} [{100 * found.low:+.2f}, {100 * found.high:+.2f}]"


def listed(names: Sequence[str]) -> str:
    """
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
