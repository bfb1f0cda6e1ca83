"""Every error looptaps raises on purpose.

Each class is also the builtin a caller would catch (`ValueError`, `TypeError`, ...), and each message names the
owner, the field, what is accepted, what was given, and what to do.

>>> raise invalid("TapsGD", "rho", "a number > 0", -1, "Use 0.275, the default.")
Traceback (most recent call last):
looptaps.errors.InvalidValue: TapsGD.rho must be a number > 0, but is -1. Use 0.275, the default.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LooptapsError(Exception):
    """Base of all errors that looptaps raises on purpose."""


class InvalidValue(LooptapsError, ValueError):
    """A field holds a value outside its accepted range."""


class InvalidType(LooptapsError, TypeError):
    """A field holds a value of the wrong type or dtype."""


class InvalidShape(LooptapsError, ValueError):
    """A tensor has a shape that does not fit its use."""


class UnknownName(LooptapsError, KeyError):
    """A name that no registry, preset or field list knows."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0])


class InvalidUse(LooptapsError, RuntimeError):
    """Something was used in a situation where it cannot work."""


class InvalidFile(LooptapsError, ValueError):
    """A file is damaged, of another kind, or does not fit what it is loaded into."""


class MissingExtra(LooptapsError, ImportError):
    """An optional dependency is needed and not installed."""


def invalid(owner: str, field: str, accepted: str, value: object, fix: str) -> InvalidValue:
    """The one sentence for a value outside its range."""
    return InvalidValue(f"{owner}.{field} must be {accepted}, but is {value!r}. {fix}")


def unknown(kind: str, name: str, known: Iterable[str]) -> UnknownName:
    """The one sentence for an unknown name: the closest match and the whole list."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return UnknownName(f"Unknown {kind} {name!r}.{hint} Known: {', '.join(names) or '(none)'}.")
