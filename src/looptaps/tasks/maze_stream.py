"""Endless maze training samples: generated mazes, or fixed rows, in all orientations.

A maze costs many times what a copy does (benchmarks/results/generators.json); so a pool rolls along as for Sudoku,
each base being used about `copies` times in 16 versions (8 orientations, start and goal exchanged). The pool is filled
at the first sample, and again on resuming.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from looptaps.tasks.base import Tokens, check_count, check_phases, check_seed
from looptaps.tasks.maze import VOCAB, check_size, maze_size, too_rare
from looptaps.tasks.maze_kernel import copy_mazes, label_mazes, stream_mazes
from looptaps.tasks.random64 import U8
from looptaps.tasks.stream import BaseStream, RowStream

Phases = tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class MazeStreamConfig:
    """Which samples a `MazeStream` makes.

    `shortest`: where given, a sample's goal is moved nearer so that path lengths are uniform from there up to the
    base's own (at least `min_path`). Short paths first help training: `((0, 4), (40_000, 50), (80_000, 109))`.
    """

    size: int = 30
    min_path: int | None = None
    shortest: int | Phases | None = None
    seed: int = 0
    pool: int = 256
    copies: int = 16

    def __post_init__(self) -> None:
        name = type(self).__name__
        _, least = check_size(name, self.size, self.min_path)
        object.__setattr__(self, "min_path", least)
        check_seed(name, self.seed)
        check_count(name, "pool", self.pool)
        check_count(name, "copies", self.copies)
        if self.shortest is None or isinstance(self.shortest, int):
            if self.shortest is not None:
                check_count(name, "shortest", self.shortest)
            return
        fix = "Use ((0, 4), (40000, 109)), for instance."
        object.__setattr__(self, "shortest", check_phases(name, "shortest", self.shortest, 1, "moves", fix))

    @property
    def phases(self) -> Phases:
        """`shortest` in its long form; longer than any path where nothing is to be shortened."""
        if self.shortest is None:
            return ((0, self.size**2),)
        return ((0, self.shortest),) if isinstance(self.shortest, int) else self.shortest


class MazeStream(BaseStream):
    """Generated training mazes. Never one that a generated test set could contain.

    Sample i of process `rank` is a function of (config, rank, i) alone.

    >>> stream = MazeStream(MazeStreamConfig(size=8, pool=8))
    >>> stream.take(4)["labels"].shape, stream.vocab_size
    (torch.Size([4, 64]), 6)
    """

    def __init__(self, config: MazeStreamConfig | None = None, *, rank: int = 0) -> None:
        super().__init__()
        self.config = config or MazeStreamConfig()
        self.rank = check_count(type(self).__name__, "rank", rank, 0)
        self._mazes = np.zeros((self.config.pool, self.seq_len), np.uint8)
        self._filled = 0

    @property
    def seq_len(self) -> int:
        """Cells of one maze."""
        return self.config.size**2

    @property
    def vocab_size(self) -> int:
        """Pad, wall, free, start, goal, path."""
        return VOCAB

    def settings(self) -> dict[str, Any]:
        """All that the samples depend on besides the position."""
        config = asdict(self.config)
        config["shortest"] = [list(phase) for phase in self.config.phases]
        return {"kind": type(self).__name__, "rank": self.rank, **config}

    def _moved(self) -> None:
        self._filled = self._position // self.config.copies

    def _make(self, position: int, n: int) -> tuple[Tokens, Tokens]:
        config = self.config
        assert config.min_path is not None  # set on construction
        begins = np.array([begin for begin, _ in config.phases])
        moves = np.array([least for _, least in config.phases])
        shortest = moves[np.searchsorted(begins, position + np.arange(n), side="right") - 1]
        inputs = np.empty((n, self.seq_len), np.uint8)
        filled = stream_mazes(
            config.seed, self.rank, position, self._filled, config.copies, config.size, config.min_path, shortest,
            self._mazes, inputs,
        )  # fmt: skip
        if filled < 0:
            raise too_rare(config.size, config.min_path)
        self._filled = filled
        labels = np.empty_like(inputs)
        label_mazes(inputs, labels, np.zeros(n, np.int64))
        return inputs, labels


class MazeRows(RowStream):
    """Fixed mazes (Maze-Hard's training rows, say) in random orientations.

    A released label is the one shortest path that prefers down, left, right, up in this order. Turned along with its
    maze it would prefer something else, and the same question would have different answers; so the answer is drawn
    anew after turning. `redraw=False` turns it along, as the released builder does.
    """

    def __init__(
        self,
        inputs: Tokens,
        labels: Tokens,
        *,
        augment: bool = True,
        redraw: bool = True,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(
            inputs, labels, vocab_size=VOCAB, augment=augment, seed=seed, rank=rank, world_size=world_size
        )
        maze_size(self.seq_len)
        self.redraw = redraw

    def settings(self) -> dict[str, Any]:
        """All that the samples depend on besides the position."""
        return {**super().settings(), "redraw": self.redraw}

    def _augmented(self, positions: npt.NDArray[np.int64], inputs: U8, labels: U8) -> tuple[U8, U8]:
        out, out_labels = np.empty_like(inputs), np.empty_like(labels)
        copy_mazes(self.seed, positions, inputs, labels, out, out_labels)
        if self.redraw:
            label_mazes(out, out_labels, np.zeros(len(out), np.int64))
        return out, out_labels
