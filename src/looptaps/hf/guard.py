"""Guards around an attached loop: against copies of it, and against caches of another setting."""

from __future__ import annotations

from typing import Any, NoReturn

from looptaps.errors import InvalidUse
from looptaps.hf.slots import claim, find_cache


class NotCopied:
    """Something that belongs to one model instance: a copy would run the original's layers."""

    def __deepcopy__(self, memo: Any) -> NoReturn:
        self.__reduce__()

    def __reduce__(self) -> NoReturn:
        raise InvalidUse("A model with an attached loop cannot be copied or pickled: the copy would run the original's "
                         "layers. Detach first.")


class CacheGuard(NotCopied):
    """A forward pre-hook on a decoder that refuses a cache of another setting before anything is written to it."""

    def __init__(self, setting: tuple[Any, ...], native: int) -> None:
        self.setting, self.native = setting, native

    def __call__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        claim(find_cache(args, kwargs), self.setting, self.native)
