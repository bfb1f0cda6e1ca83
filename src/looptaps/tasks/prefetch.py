"""Samples made ahead by a thread while the device computes. Which samples come, and in which order, stays the same."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from looptaps.tasks.base import Batch, check_count
from looptaps.tasks.stream import Stream


class Prefetched:
    """A stream whose next `block` samples are being made while the last ones are used.

    Its saved state is that of the stream it wraps, at the last sample that was handed out, so that a run may go on
    with or without it. The wrapped stream must not be used by anybody else.

    >>> from looptaps.tasks import SudokuStream, SudokuStreamConfig
    >>> config = SudokuStreamConfig(box=(2, 2), pool=16)
    >>> plain, ahead = SudokuStream(config), Prefetched(SudokuStream(config), block=4)
    >>> torch.equal(plain.take(7)["inputs"], ahead.take(7)["inputs"]), ahead.state_dict() == plain.state_dict()
    (True, True)
    """

    def __init__(self, stream: Stream, block: int = 1024) -> None:
        self.stream = stream
        self.block = check_count("Prefetched", "block", block)
        self._position = stream.position
        self._ready: Batch | None = None
        self._used = 0
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="looptaps-samples")
        self._next: Future[Batch] | None = None

    @property
    def seq_len(self) -> int:
        """Cells of one puzzle."""
        return self.stream.seq_len

    @property
    def vocab_size(self) -> int:
        """Tokens that may occur are 0..vocab_size-1."""
        return self.stream.vocab_size

    @property
    def position(self) -> int:
        """Samples handed out so far."""
        return self._position

    def take(self, n: int) -> Batch:
        """The next n samples; waits where they are not made yet."""
        missing = check_count("Prefetched", "n", n, 0)
        parts: list[Batch] = []
        while missing or not parts:
            ready = self._block()
            part = {key: rows[self._used : self._used + missing] for key, rows in ready.items()}
            count = len(part["inputs"])
            self._used, missing = self._used + count, missing - count
            parts.append(part)
        self._position += n
        return {key: torch.cat([part[key] for part in parts]) for key in parts[0]}

    def _block(self) -> Batch:
        if self._ready is None or self._used == len(self._ready["inputs"]):
            pending = self._next or self._worker.submit(self.stream.take, self.block)
            self._next = None
            self._ready, self._used = pending.result(), 0
            self._next = self._worker.submit(self.stream.take, self.block)
        return self._ready

    def _pause(self) -> None:
        # What is being made stays the next block; the wrapped stream stands still after this.
        if self._next is not None:
            self._next.exception()

    def state_at(self, position: int) -> dict[str, Any]:
        """The state in which `position` samples had been handed out."""
        self._pause()
        return self.stream.state_at(position)

    def state_dict(self) -> dict[str, Any]:
        """Where the samples handed out end, as the wrapped stream says it."""
        return self.state_at(self._position)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on exactly there; what was made ahead is dropped."""
        self._pause()
        self._next, self._ready, self._used = None, None, 0
        self.stream.load_state_dict(state)
        self._position = self.stream.position
