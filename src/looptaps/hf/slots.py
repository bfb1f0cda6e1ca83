"""KV-cache slots: every stage of a loop keeps keys and values of its own.

A decoder with n layers uses slots 0..n-1 of a transformers cache. A loop appends more slots behind them and reads and
writes them through a view, so that neither a layer nor its `layer_idx` is touched. Masks are built from the native
slots, which see every token exactly as before.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor
from transformers.cache_utils import (
    Cache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    StaticLayer,
    StaticSlidingWindowLayer,
)

from looptaps.errors import InvalidUse

_TAG = "_looptaps_setting"  # on the cache: which setting filled it, and with how many tokens


class _NoAnswer(InvalidUse, AttributeError):
    """What a view has no answer to; as an AttributeError it makes `hasattr` False."""


def claim(cache: Any, setting: tuple[Any, ...], native: int, slot: int = 0, *, new: int = 0) -> None:
    """Mark a cache that is empty at `slot` as filled by `setting`, or raise where anything else has filled it.

    Keys and values of a loop belong to its window, stages and rule; going on with other ones would be silently wrong.
    `new` tokens are about to be written.
    """
    if cache is None:
        return
    length = int(cache.get_seq_length(slot))
    if length == 0:
        del cache.layers[native:]  # slots that an earlier setting left behind
        setattr(cache, _TAG, (setting, new))
        return
    found, written = getattr(cache, _TAG, (None, 0))
    if found != setting:
        raise InvalidUse(
            f"This cache already holds {length} tokens from "
            f"{'the plain model' if found is None else 'another setting'}, but the loop's keys and values depend on "
            f"its setting. Start with a fresh cache (the setting now: {setting}; of the cache: {found})."
        )
    # Another model may have gone on with the cache since: then it is longer, or the loop's own slots (the last of which
    # is written last) lag behind. A shorter one was cropped.
    stage = length if len(cache.layers) <= native else int(cache.layers[-1].get_seq_length())
    if length > written or stage != length:
        raise InvalidUse(f"This cache holds {length} tokens, of which the loop has written {min(written, stage)}: the "
                         "model without the loop went on with it. Start with a fresh cache.")
    if new > 0:
        setattr(cache, _TAG, (setting, length + new))


def reserve(cache: Cache, like: list[int], native: int) -> None:
    """Append one slot for each index in `like`, of the kind of that native slot, unless they are there already."""
    replicate = getattr(cache, "layer_class_to_replicate", None)
    while len(cache.layers) < native:
        if replicate is None:
            raise InvalidUse(f"This cache has {len(cache.layers)} slots, but the model has {native} layers. "
                             "Make it with DynamicCache(config=model.config).")
        cache.layers.append(replicate())
    for index in like[len(cache.layers) - native:]:
        cache.layers.append(_empty_like(cache.layers[index]))


def _empty_like(slot: Any) -> Any:
    kind = type(slot)
    if kind is DynamicLayer:
        return DynamicLayer()
    if kind is DynamicSlidingWindowLayer:
        fresh = DynamicSlidingWindowLayer(sliding_window=slot.sliding_window)
        fresh.record_past = slot.record_past  # assisted generation takes tokens back
        return fresh
    if kind is StaticLayer:
        return StaticLayer(max_cache_len=slot.max_cache_len)
    if kind is StaticSlidingWindowLayer:
        return StaticSlidingWindowLayer(max_cache_len=slot.max_cache_len, sliding_window=slot.max_cache_len)
    raise InvalidUse(f"A loop cannot keep its stages in a cache of {kind.__name__}. Use DynamicCache or StaticCache.")


class SlotView:
    """A cache whose slots are shifted by `offset`: what one stage gets to see as `past_key_values`."""

    def __init__(self, cache: Cache, offset: int) -> None:
        self.cache, self.offset = cache, offset

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        return self.cache.update(keys, values, layer_idx + self.offset, *args, **kwargs)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return int(self.cache.get_seq_length(layer_idx + self.offset))

    def __getattr__(self, name: str) -> NoReturn:
        _refuse(name)


class PeekView:
    """The native slots, read but not written; `seen` collects what would have been written.

    For the single-slot policies: stages attend to the stored past and to their own keys and values of this forward.
    """

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.seen: dict[int, tuple[Tensor, Tensor]] = {}

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        self.seen[layer_idx] = (keys, values)
        slot = self.cache.layers[layer_idx] if layer_idx < len(self.cache.layers) else DynamicLayer()
        if type(slot) not in (DynamicLayer, DynamicSlidingWindowLayer):
            raise InvalidUse(f"kv='first' and kv='last' need a DynamicCache, not slots of {type(slot).__name__}. "
                             "Use kv='stage' or a DynamicCache.")
        if not slot.is_initialized:
            return keys, values
        return torch.cat([slot.keys, keys], dim=-2), torch.cat([slot.values, values], dim=-2)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return int(self.cache.get_seq_length(layer_idx))

    def __getattr__(self, name: str) -> NoReturn:
        _refuse(name)


def _refuse(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(name)
    raise _NoAnswer(f"The attention of this model asks its cache for {name!r}, which a looped window cannot answer. "
                    "Loop other layers, or run with use_cache=False.")


def swap_cache(
    args: tuple[Any, ...], kwargs: dict[str, Any], view: Any, cache: Cache
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a layer with its cache replaced by a view."""
    return (tuple(view if value is cache else value for value in args),
            {name: view if value is cache else value for name, value in kwargs.items()})


def find_cache(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Cache | None:
    """The cache among the arguments of a layer or decoder."""
    return next((value for value in (*args, *kwargs.values()) if isinstance(value, Cache)), None)
