"""Endless Sudoku training samples: generated minimal puzzles, or fixed rows, in random symmetric copies.

Generating a puzzle costs many times what a symmetric copy does (benchmarks/results/generators.json). So a pool of
`pool` base puzzles rolls along: after every `copies` samples one new base enters and the oldest leaves, and each
sample is a random symmetric copy (one of 1.2e12 for 9x9) of a random base of the pool. The pool is filled at the first
sample, and again on resuming.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from looptaps.errors import invalid
from looptaps.tasks.base import Tokens, check_count, check_phases, check_seed, is_whole
from looptaps.tasks.random64 import U8
from looptaps.tasks.stream import BaseStream, RowStream
from looptaps.tasks.sudoku_kernel import copy_rows, geometry, stream_samples


@dataclass(frozen=True, kw_only=True)
class SudokuStreamConfig:
    """Which samples a `SudokuStream` makes.

    `extra`: each sample gets 0..extra clues (uniform) beyond a minimal puzzle. Easier puzzles first help training:
    `((0, 16), (40_000, 10), (80_000, 8))` means 0..16 at first, 0..10 from sample 40,000 on, and so on.

    >>> SudokuStreamConfig(extra=[[0, 16], [40000, 10]]).extra
    ((0, 16), (40000, 10))
    """

    box: tuple[int, int] = (3, 3)
    extra: int | tuple[tuple[int, int], ...] = 0
    seed: int = 0
    pool: int = 1024
    copies: int = 32

    def __post_init__(self) -> None:
        name = type(self).__name__
        if not (isinstance(self.box, list | tuple) and len(self.box) == 2 and all(map(is_whole, self.box))):
            raise invalid(name, "box", "two whole numbers, rows and columns", self.box, "Use (3, 3) for 9x9.")
        object.__setattr__(self, "box", tuple(self.box))
        geometry(*self.box)
        check_seed(name, self.seed)
        check_count(name, "pool", self.pool)
        check_count(name, "copies", self.copies)
        if isinstance(self.extra, int):
            check_count(name, "extra", self.extra, 0)
            return
        fix = "Use ((0, 16), (40000, 8)), for instance."
        object.__setattr__(self, "extra", check_phases(name, "extra", self.extra, 0, "clues", fix))

    @property
    def phases(self) -> Sequence[tuple[int, int]]:
        """`extra` in its long form."""
        return ((0, self.extra),) if isinstance(self.extra, int) else self.extra


class SudokuStream(BaseStream):
    """Generated training samples. Never a puzzle that a generated test set could contain.

    Sample i of process `rank` is a function of (config, rank, i) alone.

    >>> stream = SudokuStream(SudokuStreamConfig(box=(2, 2), pool=16))
    >>> batch = stream.take(8)
    >>> batch["inputs"].shape, stream.position, stream.vocab_size
    (torch.Size([8, 16]), 8, 6)
    """

    def __init__(self, config: SudokuStreamConfig | None = None, *, rank: int = 0) -> None:
        super().__init__()
        self.config = config or SudokuStreamConfig()
        self.rank = check_count(type(self).__name__, "rank", rank, 0)
        self._geometry = geometry(*self.config.box)
        cells = self._geometry.n**2
        self._puzzles = np.zeros((self.config.pool, cells), np.uint8)
        self._solutions = np.zeros((self.config.pool, cells), np.uint8)
        self._filled = 0

    @property
    def seq_len(self) -> int:
        """Cells of one puzzle."""
        return self._geometry.n**2

    @property
    def vocab_size(self) -> int:
        """Pad, blank and the digits."""
        return self._geometry.n + 2

    def settings(self) -> dict[str, Any]:
        """All that the samples depend on besides the position."""
        config = asdict(self.config)
        config["box"] = list(self.config.box)
        config["extra"] = [list(phase) for phase in self.config.phases]
        return {"kind": type(self).__name__, "rank": self.rank, **config}

    def _moved(self) -> None:
        # The pool at a position is the bases position // copies onwards; they are generated when next asked for.
        self._filled = self._position // self.config.copies

    def _make(self, position: int, n: int) -> tuple[Tokens, Tokens]:
        begins = np.array([begin for begin, _ in self.config.phases])
        most = np.array([extra for _, extra in self.config.phases])
        extras = most[np.searchsorted(begins, position + np.arange(n), side="right") - 1]
        inputs = np.empty((n, self.seq_len), np.uint8)
        labels = np.empty_like(inputs)
        self._filled = stream_samples(
            self.config.seed, self.rank, position, self._filled, self.config.copies, extras, self._geometry.box,
            self._geometry.units, self._geometry.peers, self._puzzles, self._solutions, inputs, labels,
        )  # fmt: skip
        return inputs, labels


class SudokuRows(RowStream):
    """Fixed puzzles (Sudoku-Extreme's training rows, say) in random symmetric copies, with 0..extra added clues.

    With `augment=False` the rows come as they are, even those that a generated test set could contain.
    """

    def __init__(
        self,
        inputs: Tokens,
        labels: Tokens,
        *,
        box: tuple[int, int] = (3, 3),
        extra: int = 0,
        augment: bool = True,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self._geometry = geometry(*box)
        self.extra = check_count(type(self).__name__, "extra", extra, 0)
        if extra and not augment:
            raise invalid("SudokuRows", "extra", "0 without augment", extra, "Set augment=True to add clues.")
        vocab_size = self._geometry.n + 2
        super().__init__(
            inputs, labels, vocab_size=vocab_size, augment=augment, seed=seed, rank=rank, world_size=world_size
        )
        if self.inputs.min() < 1 or self.labels.min() < 2:
            raise invalid("SudokuRows", "inputs", "tokens without padding, labels without blanks",
                          int(self.labels.min()), "Pass blank = 1 and digit d = d + 1.")  # fmt: skip

    def settings(self) -> dict[str, Any]:
        """All that the samples depend on besides the position."""
        return {**super().settings(), "extra": self.extra, "box": self._geometry.box.tolist()}

    def _augmented(self, positions: npt.NDArray[np.int64], inputs: U8, labels: U8) -> tuple[U8, U8]:
        out, out_labels = np.empty_like(inputs), np.empty_like(labels)
        copy_rows(self.seed, positions, self._geometry.box, self.extra, inputs, labels, out, out_labels)
        return out, out_labels
