"""What every task is: puzzles with their answers, a vocabulary, a difficulty per sample, and how answers are scored.

Shape suffixes: B samples of a batch, n cells of a puzzle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from looptaps.errors import InvalidShape, InvalidType, InvalidValue, invalid

Tokens = npt.NDArray[Any]  # (N, n), any integer type; uint8 in memory, memory-mapped when read from files
Batch = dict[str, Tensor]
SomeTask = TypeVar("SomeTask", bound="Task")

IGNORE = -100  # a label that is not scored


class TaskBatch(NamedTuple):
    """A batch together with which samples of the task it holds."""

    ids: Tensor  # (B,) int64
    batch: Batch


class Scores(NamedTuple):
    """How right each answer is."""

    exact: Tensor  # (B,) bool: every scored cell is right, givens included (the released metric)
    token_accuracy: Tensor  # (B,) fp32: share of scored cells that are right
    open_accuracy: Tensor  # (B,) fp32: the same over cells whose answer is not already in the input (1 where none is)


def score(predictions: Tensor, batch: Batch) -> Scores:
    """Compare (B, n) predicted tokens with a batch's labels; labels of -100 are not scored.

    >>> batch = {"inputs": torch.tensor([[2, 1, 1]]), "labels": torch.tensor([[2, 3, 4]])}
    >>> score(torch.tensor([[2, 3, 3]]), batch)
    Scores(exact=tensor([False]), token_accuracy=tensor([0.6667]), open_accuracy=tensor([0.5000]))
    """
    labels, inputs = batch["labels"], batch["inputs"]
    if predictions.shape != labels.shape:
        raise InvalidShape(
            f"Predictions must be of the labels' shape {tuple(labels.shape)}, but are {tuple(predictions.shape)}. "
            "Pass argmax tokens, not logits."
        )
    scored = labels != IGNORE
    right = (predictions == labels) & scored
    hidden = scored & (inputs != labels)
    n_hidden = hidden.sum(-1)
    return Scores(
        exact=(right == scored).all(-1),
        token_accuracy=right.sum(-1) / scored.sum(-1).clamp(min=1),
        open_accuracy=torch.where(n_hidden > 0, (right & hidden).sum(-1) / n_hidden.clamp(min=1), 1.0),
    )


def make_batch(inputs: Tokens, labels: Tokens) -> Batch:
    """Rows as the int64 tensors every model takes."""
    return {
        "inputs": torch.from_numpy(np.asarray(inputs).astype(np.int64)),
        "labels": torch.from_numpy(np.asarray(labels).astype(np.int64)),
        "puzzle_identifiers": torch.zeros(len(inputs), dtype=torch.int64),
    }


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """A fixed set of puzzles. Subclasses add where they come from (`generated`, `from_csv`, `open`, ...).

    `origin` is a text from which the same set can be had again, and goes into records; `difficulty` holds one number
    per sample and field.
    """

    name: str
    vocab_size: int
    inputs: Tokens
    labels: Tokens
    difficulty: Mapping[str, npt.NDArray[Any]]
    origin: str

    def __post_init__(self) -> None:
        if self.inputs.ndim != 2 or self.inputs.shape != self.labels.shape:
            raise InvalidShape(
                f"{type(self).__name__}: inputs and labels must both be (samples, cells), but are "
                f"{self.inputs.shape} and {self.labels.shape}. Flatten each puzzle to one row."
            )
        for field, values in self.difficulty.items():
            if values.shape != (len(self),):
                raise InvalidShape(
                    f"{type(self).__name__}.difficulty[{field!r}] must have one number for each of the {len(self)} "
                    f"samples, but has shape {values.shape}. Compute it for these samples."
                )
        check_tokens(type(self).__name__, self.inputs, self.labels, self.vocab_size)

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def seq_len(self) -> int:
        """Cells of one puzzle."""
        return int(self.inputs.shape[1])

    @property
    def ids(self) -> Tensor:
        """(N,) int64: a sample's id is its place in the set, whatever the batching."""
        return torch.arange(len(self))

    def batch(self, ids: Tensor | npt.NDArray[np.int64]) -> Batch:
        """The samples of these ids."""
        rows = np.asarray(ids)
        return make_batch(self.inputs[rows], self.labels[rows])

    def batches(self, batch_size: int, *, limit: int | None = None) -> Iterator[TaskBatch]:
        """All samples (or the first `limit`) in order; the last batch may be smaller."""
        if batch_size < 1:
            raise invalid(type(self).__name__, "batch_size", "an integer >= 1", batch_size, "Use 256, for instance.")
        end = len(self) if limit is None else min(limit, len(self))
        for begin in range(0, end, batch_size):
            ids = torch.arange(begin, min(begin + batch_size, end))
            yield TaskBatch(ids, self.batch(ids))

    def select(self: SomeTask, ids: npt.NDArray[np.int64] | slice) -> SomeTask:
        """A part of the set, its samples numbered anew. A slice is written into `origin`.

        Its own `origin` says so, hence two parts of the same size are told apart.
        """
        if isinstance(ids, slice):
            part = f"[{ids.start or 0}:{len(self) if ids.stop is None else ids.stop}:{ids.step or 1}]"
        else:
            part = f"[{len(ids)} rows, sha256 {hashlib.sha256(np.asarray(ids, np.int64).tobytes()).hexdigest()[:12]}]"
        return replace(
            self,
            inputs=self.inputs[ids],
            labels=self.labels[ids],
            difficulty={field: values[ids] for field, values in self.difficulty.items()},
            origin=self.origin + part,
        )

    def valid(self, ids: Tensor, predictions: Tensor) -> Tensor:
        """(B,) bool: whether each answer is right by the rules, whichever of several right answers the label shows."""
        return score(predictions, self.batch(ids)).exact

    def fingerprint(self) -> str:
        """sha256 of all puzzles and answers: equal exactly where the sets are."""
        digest = hashlib.sha256(f"{self.name} {self.inputs.shape}".encode())
        for part in (self.inputs, self.labels):
            digest.update(np.ascontiguousarray(part, dtype=np.uint8).tobytes())
        return digest.hexdigest()


def check_tokens(owner: str, inputs: Tokens, labels: Tokens, vocab_size: int) -> None:
    """Raise where a token is outside the vocabulary, naming the first such row."""
    for kind, tokens in (("inputs", inputs), ("labels", labels)):
        if not np.issubdtype(tokens.dtype, np.integer):
            raise InvalidType(f"{owner}: {kind} must be integers, but are {tokens.dtype}. Save them as uint8.")
        if not tokens.size:
            continue
        if int(tokens.max()) >= vocab_size or int(tokens.min()) < 0:
            row, cell = np.argwhere((tokens >= vocab_size) | (tokens < 0))[0]
            raise InvalidValue(
                f"{owner}: {kind} must be tokens in 0..{vocab_size - 1}, but row {row} has {tokens[row, cell]} at cell "
                f"{cell}. Give the vocabulary these files were made with, or rebuild them."
            )


def overlap(puzzles: Task | Tokens, others: Task | Tokens) -> npt.NDArray[np.int64]:
    """Rows of `puzzles` that occur, token for token, among `others`.

    >>> overlap(np.array([[1, 2], [3, 4]]), np.array([[3, 4], [5, 6]]))
    array([1])
    """
    mine, theirs = (np.asarray(x.inputs if isinstance(x, Task) else x) for x in (puzzles, others))
    if mine.shape[1] != theirs.shape[1]:
        raise InvalidShape(
            f"overlap compares puzzles of one size, but these have {mine.shape[1]} and {theirs.shape[1]} cells. "
            "Compare sets of the same task and size."
        )
    known = {row.tobytes() for row in theirs.astype(np.uint8)}
    return np.array([i for i, row in enumerate(mine.astype(np.uint8)) if row.tobytes() in known], np.int64)


def is_whole(value: Any) -> bool:
    """Whether a value is an integer; True and False are not."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_seed(owner: str, seed: int) -> int:
    """Seeds are integers in 0..2^63-1."""
    if not is_whole(seed) or not 0 <= seed < 2**63:
        raise invalid(owner, "seed", "an integer in 0..2^63-1", seed, "Use 0, for instance.")
    return int(seed)


def check_count(owner: str, field: str, value: int, least: int = 1) -> int:
    """An integer that is at least so large."""
    if not is_whole(value) or value < least:
        raise invalid(owner, field, f"an integer >= {least}", value, f"Use {max(least, 1)} or more.")
    return int(value)


def check_phases(owner: str, field: str, value: Any, least: int, what: str, fix: str) -> tuple[tuple[int, int], ...]:
    """(from sample, value) pairs that rise from sample 0, each value at least so large."""
    pairs = value if isinstance(value, list | tuple) else ()
    if all(isinstance(pair, list | tuple) and len(pair) == 2 and all(map(is_whole, pair)) for pair in pairs):
        begins = [begin for begin, _ in pairs]
        if begins and begins[0] == 0 and begins == sorted(set(begins)) and min(most for _, most in pairs) >= least:
            return tuple((int(begin), int(most)) for begin, most in pairs)
    accepted = f"{what} >= {least}, or (from sample, {what}) pairs rising from sample 0"
    raise invalid(owner, field, accepted, value, fix)


def open_task(text: str) -> Task:
    """The task a text names, as on the command line: `name` or `name:source`.

    `sudoku` is the bundled test set; `sudoku:path.csv` a file of Sudoku-Extreme; `maze:folder` a folder in the
    released npy format; `sudoku:generated:n=4096:seed=1` a generated test set, the same everywhere.

    >>> len(open_task("sudoku:generated:n=3:seed=1"))
    3
    """
    from looptaps.tasks import TASKS

    name, _, source = text.partition(":")
    task: Task = TASKS[name].open(source)
    return task
