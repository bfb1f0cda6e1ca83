"""Training streams: endless samples, each a pure function of the seed and its position.

A stream's only state is its position, so it resumes exactly, whatever the batch sizes were before. `take(n)` is the
one way to draw, because training with a carry replaces only the samples that halted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from looptaps.errors import InvalidFile, InvalidShape, InvalidValue, invalid
from looptaps.tasks.base import Batch, Tokens, check_count, check_seed, check_tokens, make_batch
from looptaps.tasks.random64 import EPOCH, MIX, U8, below, start


class Stream(Protocol):
    """What training draws from."""

    @property
    def seq_len(self) -> int:
        """Cells of one puzzle."""
        ...

    @property
    def vocab_size(self) -> int:
        """Tokens that may occur are 0..vocab_size-1."""
        ...

    @property
    def position(self) -> int:
        """Samples drawn so far."""
        ...

    def take(self, n: int) -> Batch:
        """The next n samples."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands (plain numbers, texts and lists)."""
        ...

    def state_at(self, position: int) -> dict[str, Any]:
        """What `state_dict` was when `position` samples had been drawn."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on exactly there. The stream must have been made with the same settings."""
        ...


class BaseStream(ABC):
    """The bookkeeping of a stream; a subclass makes the samples from a position on."""

    def __init__(self) -> None:
        self._position = 0

    @property
    def position(self) -> int:
        """Samples drawn so far."""
        return self._position

    @property
    @abstractmethod
    def seq_len(self) -> int:
        """Cells of one puzzle."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Tokens that may occur are 0..vocab_size-1."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """All that the samples depend on besides the position."""

    @abstractmethod
    def _make(self, position: int, n: int) -> tuple[Tokens, Tokens]:
        """Inputs and labels of the samples position..position+n-1."""

    def _moved(self) -> None:  # noqa: B027 (a hook: most streams keep nothing to renew)
        """The position was set from outside."""

    def take(self, n: int) -> Batch:
        """The next n samples."""
        check_count(type(self).__name__, "n", n, 0)
        batch = make_batch(*self._make(self._position, n))
        self._position += n
        return batch

    def batches(self, batch_size: int) -> Iterator[Batch]:
        """Endless batches."""
        while True:
            yield self.take(batch_size)

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands (plain numbers, texts and lists)."""
        return self.state_at(self._position)

    def state_at(self, position: int) -> dict[str, Any]:
        """What `state_dict` was (or will be) when `position` samples had been drawn."""
        return {"settings": self.settings(), "position": check_count(type(self).__name__, "position", position, 0)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on exactly there; a state saved under other settings is an error."""
        mine, theirs = self.settings(), state["settings"]
        different = sorted(key for key in {*mine, *theirs} if mine.get(key) != theirs.get(key))
        if different:
            key = different[0]
            raise InvalidFile(
                f"{type(self).__name__}: the saved stream has {key} = {theirs.get(key)!r}, but this one "
                f"{mine.get(key)!r}. Resume with the settings it was started with."
            )
        self._position = check_count(type(self).__name__, "position", state["position"], 0)
        self._moved()


class RowStream(BaseStream):
    """Fixed puzzles in a new random order each epoch, augmented by the subclass.

    With several processes, process `rank` of `world_size` sees every `world_size`-th sample of the common order.
    """

    def __init__(
        self,
        inputs: Tokens,
        labels: Tokens,
        *,
        vocab_size: int,
        augment: bool = True,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if inputs.ndim != 2 or inputs.shape != labels.shape or not len(inputs):
            raise InvalidShape(
                f"{name}: inputs and labels must both be (rows, cells) with at least one row, but are {inputs.shape} "
                f"and {labels.shape}. Flatten each puzzle to one row."
            )
        check_tokens(name, inputs, labels, vocab_size)
        self.inputs: U8 = np.ascontiguousarray(inputs, dtype=np.uint8)
        self.labels: U8 = np.ascontiguousarray(labels, dtype=np.uint8)
        self.augment = augment
        self.seed = check_seed(name, seed)
        self.rank, self.world_size = check_rank(name, rank, world_size)
        self._vocab_size = vocab_size
        self._order: tuple[int, npt.NDArray[np.int64]] | None = None

    @property
    def seq_len(self) -> int:
        """Cells of one puzzle."""
        return int(self.inputs.shape[1])

    @property
    def vocab_size(self) -> int:
        """Tokens that may occur are 0..vocab_size-1."""
        return self._vocab_size

    def settings(self) -> dict[str, Any]:
        """All that the samples depend on besides the position; the rows by a checksum."""
        import zlib

        crc = zlib.crc32(self.labels.tobytes(), zlib.crc32(self.inputs.tobytes()))
        return {
            "kind": type(self).__name__, "rows": len(self.inputs), "crc32": crc, "augment": self.augment,
            "seed": self.seed, "rank": self.rank, "world_size": self.world_size,
        }  # fmt: skip

    @abstractmethod
    def _augmented(self, positions: npt.NDArray[np.int64], inputs: U8, labels: U8) -> tuple[U8, U8]:
        """Random copies of the rows, each a function of the seed and its position in the common order."""

    def _rows(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        epochs, places = np.divmod(positions, len(self.inputs))
        rows = np.empty_like(positions)
        for epoch in np.unique(epochs):
            if self._order is None or self._order[0] != epoch:
                # Philox is counter-based: an epoch's order needs no order before it.
                generator = np.random.Generator(np.random.Philox(key=[self.seed, EPOCH + 16 * int(epoch)]))
                self._order = int(epoch), generator.permutation(len(self.inputs))
            here = epochs == epoch
            rows[here] = self._order[1][places[here]]
        return rows

    def _make(self, position: int, n: int) -> tuple[Tokens, Tokens]:
        positions = (position + np.arange(n, dtype=np.int64)) * self.world_size + self.rank
        rows = self._rows(positions)
        inputs, labels = self.inputs[rows], self.labels[rows]
        return self._augmented(positions, inputs, labels) if self.augment else (inputs, labels)


class MixedStream:
    """Several streams of one task, each sample from one of them at random, by weight.

    >>> from looptaps.tasks import SudokuStream, SudokuStreamConfig
    >>> easy, hard = (SudokuStream(SudokuStreamConfig(box=(2, 2), seed=s, extra=e)) for s, e in ((0, 6), (1, 0)))
    >>> stream = MixedStream([(0.3, easy), (0.7, hard)])
    >>> stream.take(100)["inputs"].shape, easy.position + hard.position
    (torch.Size([100, 16]), 100)
    """

    def __init__(self, parts: Sequence[tuple[float, Stream]], *, seed: int = 0, rank: int = 0) -> None:
        weights = [weight for weight, _ in parts]
        if not parts or not all(weight >= 0 for weight in weights) or not 0 < sum(weights) < float("inf"):
            raise invalid("MixedStream", "parts", "(weight >= 0, stream) pairs, some weight > 0", weights,
                          "Give each stream a weight, such as 0.5.")  # fmt: skip
        self.streams: list[Stream] = [stream for _, stream in parts]
        sizes = {(stream.seq_len, stream.vocab_size) for stream in self.streams}
        if len(sizes) > 1:
            raise InvalidValue(
                f"MixedStream takes streams of one puzzle size, but these have (seq_len, vocab_size) {sorted(sizes)}. "
                "Train one model per size."
            )
        self.weights = [weight / sum(weights) for weight in weights]
        self.seed = check_seed("MixedStream", seed)
        self.rank = check_count("MixedStream", "rank", rank, 0)
        self._edges = np.cumsum(self.weights)[:-1]
        self._position = 0

    @property
    def seq_len(self) -> int:
        """Cells of one puzzle."""
        return self.streams[0].seq_len

    @property
    def vocab_size(self) -> int:
        """Tokens that may occur are 0..vocab_size-1."""
        return self.streams[0].vocab_size

    @property
    def position(self) -> int:
        """Samples drawn so far."""
        return self._position

    def take(self, n: int) -> Batch:
        """The next n samples, drawn from the parts in order and put in their places."""
        check_count("MixedStream", "n", n, 0)
        source = self._sources(self._position, n)
        parts = [stream.take(int((source == k).sum())) for k, stream in enumerate(self.streams)]
        # Rows of the concatenated parts, put back in the order of drawing.
        order = torch.from_numpy(np.argsort(np.argsort(source, kind="stable"), kind="stable"))
        self._position += n
        return {key: torch.cat([part[key] for part in parts])[order] for key in parts[0]}

    def _sources(self, position: int, n: int) -> npt.NDArray[np.int64]:
        # Which part each of the n samples from a position on comes from.
        draws = [below(start(MIX + 16 * self.rank, self.seed, position + i), 1 << 30) for i in range(n)]
        return np.searchsorted(self._edges, np.array(draws, np.float64) / (1 << 30), side="right")

    def batches(self, batch_size: int) -> Iterator[Batch]:
        """Endless batches."""
        while True:
            yield self.take(batch_size)

    def state_dict(self) -> dict[str, Any]:
        """Where this stream and its parts stand."""
        return self.state_at(self._position)

    def state_at(self, position: int) -> dict[str, Any]:
        """What `state_dict` was when `position` samples, at most as many as now, had been drawn."""
        if not 0 <= position <= self._position:
            raise invalid("MixedStream", "position", f"in 0..{self._position}", position, "It cannot look ahead.")
        since = self._sources(position, self._position - position)
        return {
            "settings": {"kind": "MixedStream", "weights": self.weights, "seed": self.seed, "rank": self.rank},
            "position": position,
            "parts": [s.state_at(s.position - int((since == k).sum())) for k, s in enumerate(self.streams)],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on exactly there."""
        mine = self.state_dict()["settings"]
        if state["settings"] != mine or len(state["parts"]) != len(self.streams):
            raise InvalidFile(
                f"MixedStream: the saved stream is {state['settings']}, but this one {mine}. "
                "Resume with the settings it was started with."
            )
        for stream, part in zip(self.streams, state["parts"], strict=True):
            stream.load_state_dict(part)
        self._position = int(state["position"])


def check_rank(owner: str, rank: int, world_size: int) -> tuple[int, int]:
    """A process's place among all."""
    check_count(owner, "world_size", world_size)
    if not 0 <= rank < world_size:
        raise invalid(owner, "rank", f"in 0..{world_size - 1} (world_size {world_size})", rank,
                      "Pass the process index and the number of processes.")  # fmt: skip
    return rank, world_size
