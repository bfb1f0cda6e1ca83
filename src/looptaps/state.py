"""The only code that knows what the leaves of a memory are.

A *tree* is a NamedTuple whose fields are tensors, `None`, or NamedTuples again. Axis 0 of every tensor is the
sample. Because every memory (a controller's, a model's carry) is such a tree, resetting one slot, compacting finished
samples, replicating into rollouts and detaching are four functions, for every controller now and later; a fifth puts
new samples into the places of finished ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from looptaps.errors import InvalidType

Tree = TypeVar("Tree")

# How many rows each sample is copied into, or which rows to keep: (R,) int64 indices or a (B,) bool mask.
Rows = Tensor


def _map(fn: Callable[..., Tensor], tree: Any, *rest: Any) -> Any:
    if tree is None:
        return None
    if isinstance(tree, Tensor):
        return fn(tree, *rest)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(_map(fn, *leaves) for leaves in zip(tree, *rest, strict=True)))
    raise InvalidType(
        f"A state tree holds tensors, None and NamedTuples of them, but here is {type(tree).__name__}. "
        "Make every leaf a tensor whose axis 0 is the sample (a count too)."
    )


def select(tree: Tree, rows: Rows) -> Tree:
    """Keep the given rows of every leaf: compaction of finished samples, or reordering.

    >>> from typing import NamedTuple
    >>> class Memory(NamedTuple):
    ...     k: Tensor
    >>> select(Memory(torch.tensor([3, 4, 5])), torch.tensor([2, 0])).k
    tensor([5, 3])
    """
    result: Tree = _map(lambda leaf: leaf[rows], tree)
    return result


def repeat(tree: Tree, n: int) -> Tree:
    """Copy every row n times, side by side (sample 0's copies first): replication into rollouts."""
    result: Tree = _map(lambda leaf: leaf.repeat_interleave(n, dim=0), tree)
    return result


def where(rows: Tensor, tree: Tree, other: Tree) -> Tree:
    """Row by row `tree` where the (B,) mask is True, else `other`: reset of single slots.

    Nothing is multiplied, so a NaN in the row that is not taken leaves no trace.
    """

    def choose(leaf: Tensor, alternative: Tensor) -> Tensor:
        mask = rows.reshape(rows.shape + (1,) * (leaf.ndim - rows.ndim))
        return torch.where(mask, leaf, alternative)

    result: Tree = _map(choose, tree, other)
    return result


def put(tree: Tree, rows: Tensor, other: Tree) -> Tree:
    """The tree with the given rows (R,) replaced by those of `other`, in order: refilling places that became free.

    One copy of the tree, however many rows are new; nothing is written into. Dtypes are the tree's: a fresh counter
    may still be narrower than one that statistics of float64 have been added to.
    """
    result: Tree = _map(lambda leaf, new: leaf.index_copy(0, rows, new.to(leaf.dtype)), tree, other)
    return result


def detach(tree: Tree) -> Tree:
    """Cut every leaf from the autograd graph."""
    result: Tree = _map(Tensor.detach, tree)
    return result
