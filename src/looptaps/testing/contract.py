"""`check_controller`: one table of promises for every controller, ours and anybody's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from looptaps.controllers.base import check_controller_type
from looptaps.errors import LooptapsError, unknown
from looptaps.testing.promises import PROMISES, Broken


class ContractBroken(LooptapsError, AssertionError):
    """A controller breaks a promise; the message is the table."""


class Row(NamedTuple):
    """One promise over one scope; `problem` is None where it is kept."""

    promise: str
    scope: str
    problem: str | None


class Report(NamedTuple):
    """The whole table."""

    rows: tuple[Row, ...]

    @property
    def broken(self) -> list[Row]:
        return [row for row in self.rows if row.problem is not None]

    def __str__(self) -> str:
        header = ("promise", "scope", "result")
        lines = [header, *((r.promise, r.scope, "kept" if r.problem is None else f"BROKEN: {r.problem}")
                           for r in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(2)]
        return "\n".join(f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}" for a, b, c in lines)


def contract() -> list[tuple[str, str, Callable[[Any], None]]]:
    """Every (promise, scope, check): what a test parametrises over. A check raises where the promise is broken."""
    return [
        (name, scope, partial(_call, promise.check, scope))
        for name, promise in PROMISES.items()
        for scope in promise.scopes
    ]


def _call(check: Callable[[Any, str], None], scope: str, controller: Any) -> None:
    check(controller, scope)


def check_controller(controller: Any, promises: Iterable[str] | None = None) -> Report:
    """Hold a controller against every promise and return the table; raise `ContractBroken` where one is broken.

    Args:
        controller: an instance; of the TAPS rules, ours keep all promises.
        promises: names of the promises to check, if not all.
    """
    check_controller_type("check_controller", controller)
    wanted = set(PROMISES if promises is None else promises)
    for name in wanted:
        if name not in PROMISES:
            raise unknown("promise", name, PROMISES)
    rows = []
    for name, scope, check in contract():
        if name in wanted:
            try:
                check(controller)
            except Broken as broken:
                rows.append(Row(name, scope, str(broken)))
            except Exception as error:  # somebody else's controller may raise anything: it is a row of the table
                rows.append(Row(name, scope, f"{type(error).__name__}: {error}"))
            else:
                rows.append(Row(name, scope, None))
    report = Report(tuple(rows))
    if report.broken:
        raise ContractBroken(f"{controller!r} breaks {len(report.broken)} of {len(rows)} promises:\n{report}")
    return report
