"""The algebraic energies against the direct ones, at every size, at zero, and where they overflow."""

from dataclasses import replace

import pytest
import torch

import looptaps as lt
from looptaps.controllers import energies as E
from looptaps.controllers.base import Sample, Segments, Token
from looptaps.testing import updates

SCOPES = {"sample": Sample(), "token": Token(), "masked": Sample(torch.tensor([[True] * 3 + [False] * 2] * 4))}
SIZES = [1.0, 1e-6, 1e6]
# Each inner product is off by a few float32 roundings; the differences below are against P + S.
CLOSE = 1e-6


def _last_two(size, seed=0):
    return size * updates(2, 4, 5, 32, seed=seed)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
def test_adjacent_energies_are_those_of_sum_and_difference(scope, size):
    for seed in range(20):
        previous, delta = _last_two(size, seed)
        seen = torch.ones(scope.shape(delta), dtype=torch.bool)
        energy = scope.inner(previous, previous) / scope.count(delta)
        fast = E.adjacent_energies(delta, previous, energy, seen, scope)
        direct = E.adjacent_energies_direct(delta, previous, scope)
        whole = direct.progress + direct.fluctuation
        assert ((fast.progress - direct.progress).abs() <= CLOSE * whole).all()
        assert ((fast.fluctuation - direct.fluctuation).abs() <= CLOSE * whole).all()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
@pytest.mark.parametrize("beta", [0.0, 0.8, 0.99])
def test_moment_energies_are_those_of_the_centred_updates(beta, scope, size):
    deltas = size * updates(12, 4, 5, 32)
    shape = scope.shape(deltas[0])
    k = torch.zeros(shape, dtype=torch.int64)
    mean = mean_direct = torch.zeros_like(deltas[0])
    energy_mean = fluctuation = torch.zeros(shape)
    for delta in deltas:
        weights = E.moment_weights(beta, k, delta.dtype)
        fast, mean = E.moment_energies(delta, mean, energy_mean, weights, scope)
        direct, mean_direct = E.moment_energies_direct(delta, mean_direct, fluctuation, weights, scope)
        energy_mean, fluctuation, k = fast.energy, direct.fluctuation, k + 1
        assert torch.equal(mean, mean_direct)
        assert torch.equal(fast.progress, direct.progress)
        assert ((fast.fluctuation - direct.fluctuation).abs() <= CLOSE * direct.energy).all()


@pytest.mark.parametrize("size", [1.0, 1e-3, 1e3])
@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
def test_curvature_energies_are_those_of_difference_and_displacement(scope, size):
    for seed in range(20):
        previous, delta = _last_two(size, seed)
        shape = scope.shape(delta)
        scale = torch.linspace(0.3, 1.2, shape[0]).reshape(-1, *(1,) * (len(shape) - 1)).expand(shape)
        seen = torch.ones(shape, dtype=torch.bool)
        square = scope.inner(previous, previous)
        fast = E.curvature_energies(delta, previous, square, scale, seen, 1e-12, scope)
        direct = E.curvature_energies_direct(delta, previous, scope.expand(scale, delta) * previous, 1e-12, scope)
        assert torch.equal(fast.progress, direct.progress)
        whole = direct.progress + direct.fluctuation
        assert ((fast.fluctuation - direct.fluctuation).abs() <= 4 * CLOSE * whole).all()


@pytest.mark.parametrize("scope", [*SCOPES.values(), Segments(torch.tensor([0, 0, 1, 1]))], ids=[*SCOPES, "segments"])
def test_how_an_update_lies_in_memory_does_not_change_its_energies(scope):
    for features in (16, 97, 128):
        a, b = updates(2, 4, 5, features)
        if isinstance(scope, Segments):
            a, b = a[:, 0], b[:, 0]
        plain = scope.inner(a, b)
        for axis in range(a.ndim):  # each axis innermost in turn
            laid = [t.movedim(axis, -1).contiguous().movedim(-1, axis) for t in (a, b)]
            assert torch.equal(scope.inner(*laid), plain)
            assert torch.equal(scope.inner(laid[0], b), plain)


def test_segments_measure_each_request_as_if_it_were_alone():
    deltas = updates(2, 4, 5, 32)
    lengths = torch.tensor([5, 2, 4, 1])
    ids = torch.arange(4).repeat_interleave(lengths)
    rows = [deltas[:, i, :n] for i, n in enumerate(lengths.tolist())]
    previous, delta = torch.cat(rows, dim=1)
    found = E.adjacent_energies_direct(delta, previous, Segments(ids))
    for i, (row, n) in enumerate(zip(rows, lengths.tolist(), strict=True)):
        alone = E.adjacent_energies_direct(row[1][None], row[0][None], Sample())
        assert torch.allclose(found.progress[ids == i], alone.progress.expand(n), rtol=1e-6)
        assert torch.allclose(found.fluctuation[ids == i], alone.fluctuation.expand(n), rtol=1e-6)


def test_expanded_squares_that_round_below_zero_are_clamped():
    """Equal updates have S = 0 and opposite ones P = 0; expanded in float32 both come out negative somewhere."""
    below = 0
    for seed in range(200):
        delta = updates(1, 4, 5, 33, seed=seed)[0]
        scope, seen = Sample(), torch.ones(4, dtype=torch.bool)
        nd = scope.count(delta)
        close = delta * (1 + 1e-7)
        energy = scope.inner(close, close) / nd
        raw = energy + scope.inner(delta, delta) / nd - 2 * scope.inner(delta, close) / nd
        below += int((raw < 0).sum())
        same = E.adjacent_energies(delta, close, energy, seen, scope)
        opposite = E.adjacent_energies(delta, -close, energy, seen, scope)
        assert (same.fluctuation >= 0).all()
        assert (opposite.progress >= 0).all()
        assert (same.fluctuation <= 1e-6 * same.progress).all()
    assert below > 0, "the clamp is not exercised"


def test_zero_updates_have_zero_energies_and_the_unit_step(rule):
    memory = rule.init(torch.zeros(2, 3, 4))
    for _ in range(5):
        decision, memory = rule.update(torch.zeros(2, 3, 4), memory)
        assert (decision.eta == 1).all()
        assert decision.finite.all()
        assert (decision.progress == 0).all()
        assert (decision.fluctuation == 0).all()


def test_energies_at_1e_6_are_relative_to_eps(rule):
    """Equal updates of 1e-6 have P = 1e-12 = eps, so the balance is P / (P + eps) = 1/2 and not 1."""
    rule = lt.spec(lt.spec_text(rule) + ":rho=0.1:warmup=0")
    step = torch.full((1, 3, 4), 1e-6)
    memory = rule.init(step)
    for _ in range(2):
        decision, memory = rule.update(step, memory)
    assert decision.progress.item() == pytest.approx(1e-12, rel=1e-5)
    assert decision.fluctuation.item() <= 1e-18
    if isinstance(rule, lt.TapsGD | lt.TapsAdam | lt.TapsBB):
        assert decision.balance.item() == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize("poison", [1e20, 3e38])
def test_an_energy_that_overflows_is_flagged_and_harms_no_neighbour(rule, poison):
    deltas = updates(6, 3, 4, 8)
    clean, dirty = [], []
    for source, out in ((deltas, clean), (deltas.clone(), dirty)):
        if out is dirty:
            source[3, 1, 0, 0] = poison
        memory = rule.init(source[0])
        for delta in source:
            decision, memory = rule.update(delta, memory)
            out.append(decision)
    assert not dirty[3].finite[1]
    assert dirty[3].eta[1] == 1
    fresh = rule.init(deltas[0])
    for k in (4, 5):
        decision, fresh = rule.update(deltas[k], fresh)
        assert dirty[k].eta[1] == decision.eta[1]
        assert dirty[k].finite[1]
    for a, b in zip(clean, dirty, strict=True):
        assert torch.equal(a.eta[[0, 2]], b.eta[[0, 2]])
        assert b.finite[[0, 2]].all()


@pytest.mark.parametrize("warmup", [0, 2, 4])
def test_energies_whose_weighed_sum_overflows_are_flagged(rule, warmup):
    """At |Delta| = 1.6e19 the energies fit into float32, and P + gamma S does not: the balance would be NaN."""
    rule = replace(rule, warmup=warmup, gamma=3.0)
    calm, wild = updates(1, 2, 1, 1)[0], torch.tensor([[[1.6e19]], [[1.0]]])
    memory, found = rule.init(calm), []
    for delta in (wild, -wild, wild, calm, calm, calm, calm, calm):
        decision, memory = rule.update(delta, memory)
        assert decision.eta.isfinite().all()
        assert decision.balance.isfinite().all()
        assert decision.finite[1]
        found.append(bool(decision.finite[0]))
    assert not all(found[:3])
    assert all(found[3 + 1 :]), "a score that was not finite stayed in the memory"


def test_fixed_schedules_flag_only_updates_that_are_not_finite():
    """They measure no energy, so 1e20 is just a long step."""
    rule = lt.Constant(0.9)
    delta = torch.ones(3, 2, 4)
    delta[1] = 1e20
    delta[2, 0, 0] = torch.nan
    decision, _ = rule.update(delta, rule.init(delta))
    assert decision.finite.tolist() == [True, True, False]
    assert decision.eta.tolist() == pytest.approx([0.9, 0.9, 1.0])


def test_double_states_are_measured_in_double(rule):
    deltas = updates(4, 2, 3, 8, dtype=torch.float64)
    memory = rule.init(deltas[0])
    for delta in deltas:
        decision, memory = rule.update(delta, memory)
    assert decision.eta.dtype == decision.progress.dtype == torch.float64


def test_a_sample_that_is_all_padding_keeps_the_unit_step(rule):
    mask = torch.tensor([[True, True, True], [False, False, False]])
    deltas = updates(4, 2, 3, 8)
    memory = rule.init(deltas[0], Sample(mask))
    for delta in deltas:
        decision, memory = rule.update(delta, memory, Sample(mask))
    assert decision.eta[1] == 1
    assert decision.finite.all()
