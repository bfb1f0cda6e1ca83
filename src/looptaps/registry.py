"""Named things, loaded on first use, open to other packages.

A registry maps a name to `"package.module:attribute"`. Nothing is imported until the name is asked for, so listing is
cheap. Another package adds its own by an entry point in the group `looptaps.<kind>`; no edit here is needed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from looptaps.errors import InvalidValue, unknown


class Registry:
    """Lazy names of one kind: `controllers`, `strategies`, `models` or `tasks`.

    >>> cores = Registry("cores", {"sqrt": "math:sqrt"})
    >>> cores["sqrt"](9.0)
    3.0
    """

    def __init__(self, kind: str, builtin: dict[str, str]) -> None:
        self.kind = kind
        self._one = "strategy" if kind == "strategies" else kind.removesuffix("s")
        self._targets = dict(builtin)
        self._plugins_read = False

    def add(self, name: str, target: str) -> None:
        """Register `target` ("package.module:attribute") under a name that is still free."""
        taken = self._targets.get(name)
        if taken is not None and taken != target:
            raise InvalidValue(
                f"{self.kind} already has {name!r} ({taken}), so {target} cannot take it. Choose another name."
            )
        if target.count(":") != 1:
            raise InvalidValue(f"{self.kind}: the target of {name!r} must read 'package.module:attribute', "
                               f"but is {target!r}.")
        self._targets[name] = target

    def _all(self) -> dict[str, str]:
        if not self._plugins_read:
            for point in entry_points(group=f"looptaps.{self.kind}"):
                self.add(point.name, point.value)
            self._plugins_read = True
        return self._targets

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._all()))

    def __contains__(self, name: object) -> bool:
        return name in self._all()

    def __getitem__(self, name: str) -> Any:
        return _resolve(self.target(name))

    def target(self, name: str) -> str:
        """Where the name points, without importing it."""
        targets = self._all()
        if name not in targets:
            raise unknown(self._one, name, targets)
        return targets[name]

    def name_of(self, thing: Any) -> str:
        """The name under which a class or function is registered."""
        for name, target in self._all().items():
            # What exists was imported, so a target that was not is something else.
            if target.split(":")[0] in sys.modules and _resolve(target) is thing:
                return name
        raise unknown(self._one, thing.__qualname__, self._all())


def _resolve(target: str) -> Any:
    module, attribute = target.split(":")
    return getattr(import_module(module), attribute)
