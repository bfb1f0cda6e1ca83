"""A sample's answer is its own: whoever its neighbours are, however many, and whoever has left."""

import functools
import itertools

import pytest
import torch
import torch.nn.functional as F

import looptaps as lt
from looptaps import state

KINDS = [("trm", {}), ("trm", {"mlp_t": True}), ("hrm", {}), ("fprm", {}), ("looped", {"L_cycles": 3})]
CONTROLS = [lt.Control(lt.Standard()), lt.Control(lt.TapsGD()), lt.Control(lt.TapsAdam(), every=2)]


@functools.cache
def batch_invariant(dtype):
    """Whether this backend's products of a row do not depend on how many rows there are."""
    generator = torch.Generator().manual_seed(0)
    for inner, outer in itertools.permutations((16, 32, 48, 64, 96), 2):
        x = torch.randn(8, 32, inner, generator=generator).to(getattr(torch, dtype))
        weight = torch.randn(outer, inner, generator=generator).to(x.dtype)
        if any(not torch.equal(F.linear(x[:size], weight), F.linear(x, weight)[:size]) for size in (1, 3, 4, 5)):
            return False
    return True


def assert_same(part, whole, dtype):
    """In every bit; where a matrix kernel picks its blocks by the number of rows, sums are reordered: to rounding."""
    if batch_invariant(dtype):
        assert torch.equal(part, whole)
    else:
        rounding = 1e-4 if dtype == "float32" else 0.5
        torch.testing.assert_close(part, whole, rtol=0, atol=rounding)


@pytest.mark.parametrize(("kind", "config"), KINDS)
@pytest.mark.parametrize("control", CONTROLS, ids=["unit", "gd", "adam"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_neighbours_change_nothing(make, batch, run, kind, config, control, dtype):
    model = make(kind, **config, forward_dtype=dtype)
    puzzles = batch(6)["inputs"]
    one, _, _ = run(model, {"inputs": puzzles}, control)
    others = torch.cat((puzzles[:2], puzzles[2:].flip(0).roll(1, 1)))
    two, _, _ = run(model, {"inputs": others}, control)
    assert torch.equal(one.z_L[:2], two.z_L[:2])
    assert torch.equal(model.readout(one).logits[:2], model.readout(two).logits[:2])


@pytest.mark.parametrize(("kind", "config"), KINDS)
@pytest.mark.parametrize("control", CONTROLS, ids=["unit", "gd", "adam"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_batch_size_changes_nothing(make, batch, run, kind, config, control, dtype):
    model = make(kind, **config, forward_dtype=dtype)
    whole, _, _ = run(model, batch(8), control)
    for size in (1, 3, 5):
        part, _, _ = run(model, batch(size), control)
        assert_same(part.z_L, whole.z_L[:size], dtype)


@pytest.mark.parametrize(("kind", "config"), KINDS)
@pytest.mark.parametrize("control", CONTROLS, ids=["unit", "gd", "adam"])
def test_compaction_goes_on_where_the_samples_were(make, batch, kind, config, control):
    model = make(kind, **config)
    rows = torch.tensor([True, False, True, True, False, True])
    with torch.no_grad():
        carry, memory, _ = model.advance(model.begin(batch(6)), control)
        kept = state.select(carry, rows), state.select(memory, rows)
        for _ in range(2):
            carry, memory, _ = model.advance(carry, control, memory)
        left, left_memory, _ = model.advance(kept[0], control, kept[1])
        left, left_memory, _ = model.advance(left, control, left_memory)
    assert_same(left.z_L, carry.z_L[rows], "float32")
    assert_same(left_memory.eta, memory.eta[rows], "float32")


@pytest.mark.parametrize(("kind", "config"), KINDS)
@pytest.mark.parametrize("control", [*CONTROLS, lt.Control(lt.Constant(0.9))], ids=["unit", "gd", "adam", "constant"])
def test_a_sample_gone_bad_harms_only_itself(make, batch, kind, config, control):
    model = make(kind, **config)
    with torch.no_grad():
        carry, memory, _ = model.advance(model.begin(batch(4)), control)
        bad = carry._replace(z_L=carry.z_L.clone())
        bad.z_L[1, 3, 5] = torch.nan
        sane, _, _ = model.advance(carry, control, memory)
        sick, _, stats = model.advance(bad, control, memory)
    others = torch.tensor([0, 2, 3])
    assert torch.equal(sick.z_L[others], sane.z_L[others])
    assert stats.finite.tolist() == [True, False, True, True]
    assert stats.eta[others].isfinite().all()


@pytest.mark.parametrize(("kind", "config"), KINDS)
def test_rollouts_of_one_sample_agree(make, batch, kind, config):
    model, control = make(kind, **config), lt.Control(lt.TapsGD())
    with torch.no_grad():
        carry = state.repeat(model.begin(batch(3)), 2)
        carry, _, _ = model.advance(carry, control)
    assert torch.equal(carry.z_L[0::2], carry.z_L[1::2])
