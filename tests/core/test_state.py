"""The four generic functions are exact on every tree, and refuse what is none."""

from typing import NamedTuple

import pytest
import torch

import looptaps as lt
from looptaps import state as trees
from looptaps.controllers.base import Sample, Token


class Inner(NamedTuple):
    latent: torch.Tensor
    none: None


class Outer(NamedTuple):
    k: torch.Tensor
    inner: Inner


def tree():
    return Outer(torch.arange(3), Inner(torch.arange(12.0).reshape(3, 2, 2), None))


def test_select_keeps_rows_by_index_or_mask():
    for rows in (torch.tensor([2, 0]), torch.tensor([True, False, True])):
        kept = trees.select(tree(), rows)
        assert sorted(kept.k.tolist()) == [0, 2]
        assert kept.inner.latent.shape == (2, 2, 2)
        assert kept.inner.none is None
    assert isinstance(trees.select(tree(), torch.tensor([0])).inner, Inner)


def test_repeat_puts_copies_side_by_side():
    assert trees.repeat(tree(), 2).k.tolist() == [0, 0, 1, 1, 2, 2]
    assert torch.equal(trees.repeat(tree(), 2).inner.latent[1], tree().inner.latent[0])


def test_where_takes_rows_without_touching_the_others():
    other = Outer(torch.full((3,), 9), Inner(torch.full((3, 2, 2), torch.nan), None))
    mixed = trees.where(torch.tensor([True, False, True]), tree(), other)
    assert mixed.k.tolist() == [0, 9, 2]
    assert torch.equal(mixed.inner.latent[0], tree().inner.latent[0])
    assert mixed.inner.latent[1].isnan().all()


def test_where_takes_tokens_too():
    mask = torch.tensor([[True, False], [False, True], [True, True]])
    mixed = trees.where(mask, tree().inner, Inner(-torch.ones(3, 2, 2), None))
    assert torch.equal(mixed.latent[..., 0] >= 0, mask)


def test_put_replaces_rows_and_writes_into_nothing():
    tree = Outer(torch.arange(4), Inner(torch.arange(8.0).reshape(4, 2), None))
    new = Outer(torch.tensor([10, 11]), Inner(torch.full((2, 2), torch.nan), None))
    found = trees.put(tree, torch.tensor([3, 0]), new)
    assert found.k.tolist() == [11, 1, 2, 10]
    assert found.inner.latent.isnan().all(1).tolist() == [True, False, False, True]
    assert torch.equal(found.inner.latent[1:3], tree.inner.latent[1:3])
    assert tree.k.tolist() == [0, 1, 2, 3]


def test_detach_cuts_every_leaf():
    leaf = torch.ones(2, requires_grad=True) * 2
    cut = trees.detach(Outer(leaf, Inner(leaf, None)))
    assert not cut.k.requires_grad
    assert not cut.inner.latent.requires_grad


def test_a_scope_is_a_tree_so_that_its_mask_is_compacted_with_the_rest():
    mask = torch.tensor([[True, False], [True, True], [False, True]])
    assert torch.equal(trees.select(Sample(mask), torch.tensor([2, 1])).mask, mask[[2, 1]])
    assert trees.select(Token(), torch.tensor([0])) == Token()


def test_every_memory_leaf_is_a_tensor_with_the_sample_first(controller):
    memory = controller.init(torch.zeros(4, 3, 8))
    assert all(isinstance(leaf, torch.Tensor) and leaf.shape[0] == 4 for leaf in memory)
    assert memory.k.dtype == torch.int64


def test_a_tree_with_other_leaves_is_refused():
    class Wrong(NamedTuple):
        k: int

    with pytest.raises(lt.errors.InvalidType, match="NamedTuples of them, but here is int"):
        trees.select(Wrong(3), torch.tensor([0]))
    with pytest.raises(lt.errors.InvalidType, match="list"):
        trees.detach([torch.ones(1)])
