"""`serve_loop`: a stream of puzzles solved at full batch, like continuous batching in a language-model server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from looptaps.errors import InvalidShape, InvalidType, InvalidUse
from looptaps.loop import as_control
from looptaps.loop.model import AnyLoopModel
from looptaps.strategies.base import Result, View
from looptaps.strategies.driver import Fresh, drive
from looptaps.strategies.rule import StoppingRule, check_ids, check_model, check_seed, check_whole


class Served(NamedTuple):
    """Samples that are done: their ids (b,), and what came out, row for row."""

    ids: Tensor
    result: Result


def serve_loop(
    strategy: StoppingRule,
    model: AnyLoopModel,
    stream: Iterable[Any],
    control: Any,
    *,
    batch_size: int,
    seed: int = 0,
    watch: Callable[[list[int], View], None] | None = None,
) -> Iterator[Served]:
    """Solve a stream: as soon as samples are done, waiting ones take their places. Yields samples as they are done.

    Args:
        strategy: any stopping rule (not `Rollouts`).
        model: a `LoopModel`.
        stream: batches of any size, as pairs `(ids, batch)` (what `task.batches(...)` gives) or as plain batches,
            whose samples are then numbered on. It is read only as far as there is room.
        control: a controller, or a `Control` around one.
        batch_size: how many samples run at a time.
        seed: of random initial states, drawn per (seed, sample id).
        watch: told the ids of those who are running and what a rule sees of them (answers too), after every loop.

    The answers are those of `strategy.run`; only the order in which they come differs.

    >>> import looptaps as lt, torch
    >>> from looptaps.models import LoopedConfig, LoopedTransformer
    >>> model = LoopedTransformer(LoopedConfig(vocab_size=7, seq_len=16, hidden_size=32, num_heads=2)).eval()
    >>> stream = [{"inputs": torch.randint(7, (5, 16))} for _ in range(3)]
    >>> sorted(i for done in serve_loop(lt.FixedDepth(4), model, stream, lt.TapsGD(), batch_size=4)
    ...        for i in done.ids.tolist())
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
    """
    if not isinstance(strategy, StoppingRule):
        raise InvalidUse(f"serve_loop runs stopping rules, not {type(strategy).__name__}. Call its run() on batches.")
    if getattr(strategy, "batch_max", False):
        raise InvalidUse("With batch_max a sample's end depends on its batch, and a stream has none. "
                         "Use batch_max=False.")
    check_whole("serve_loop", "batch_size", batch_size, 1, "Use 256, for instance.")
    if not isinstance(stream, Iterable) or isinstance(stream, dict | str):
        raise InvalidType("serve_loop needs a stream, an iterable of batches or of pairs (ids, batch), but got "
                          f"{type(stream).__name__}. Wrap one batch in a list.")
    check_model(model)
    strategy.check(model)
    done = drive(strategy, model, as_control(control), _Stream(stream), seed=check_seed(seed), capacity=batch_size,
                 recorder=None if watch is None else _Watch(watch))
    return (Served(torch.tensor(part.ids), part.result) for part in done)


class _Watch:
    """A function as what the driver tells; a stream's places are its ids."""

    steps = False

    def __init__(self, watch: Callable[[list[int], View], None]) -> None:
        self._watch = watch

    def note(self, places: list[int], view: View, signal: Tensor | None) -> None:
        self._watch(places, view)


_END = object()  # no item of a stream


class _Stream:
    """A stream of batches, taken in pieces. Its puzzles run side by side, so all have one size."""

    def __init__(self, stream: Iterable[Any]) -> None:
        self._items = iter(stream)
        self._batch: dict[str, Tensor] = {}
        self._ids: list[int] = []
        self._used = 0
        self._numbered = 0
        self._shapes: dict[str, torch.Size] | None = None

    def take(self, most: int | None) -> Fresh | None:
        if self._used == len(self._ids):
            item = next(self._items, _END)
            if item is _END:
                return None
            self._open(item)
        end = len(self._ids) if most is None else min(len(self._ids), self._used + most)
        rows, self._used = slice(self._used, end), end
        batch = {key: value[rows] for key, value in self._batch.items()}
        ids = self._ids[rows]
        return Fresh(batch, list(ids), ids, [0] * len(ids))

    def _open(self, item: Any) -> None:
        ids: Any = None
        batch = item
        if not isinstance(item, dict):
            if not isinstance(item, tuple) or len(item) != 2:
                raise InvalidType("serve_loop needs a stream of batches or of pairs (ids, batch), but it holds "
                                  f"{type(item).__name__}.")
            ids, batch = item
        numbers = check_ids(batch, ids)
        shapes = {key: value.shape[1:] for key, value in batch.items()}
        self._shapes = self._shapes or shapes
        if shapes != self._shapes:
            raise InvalidShape(f"serve_loop runs samples of one shape side by side: this stream began with "
                               f"{_words(self._shapes)} and goes on with {_words(shapes)}. Make a stream for each.")
        if ids is None:
            numbers = [self._numbered + i for i in numbers]
            self._numbered += len(numbers)
        self._batch, self._ids, self._used = batch, numbers, 0


def _words(shapes: dict[str, torch.Size]) -> str:
    return ", ".join(f"{key} {tuple(shape)}" for key, shape in shapes.items())


__all__ = ["Served", "serve_loop"]
