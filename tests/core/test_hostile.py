"""Any shape, any size, any poison: a controller answers with one sentence or with etas in range, flags and all."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import looptaps as lt
from looptaps.controllers.base import Sample, Token

RULES = ["taps-gd", "taps-sign", "taps-momentum", "taps-rmsprop", "taps-adam", "taps-bb"]
POISON = [0.0, -0.0, 1e-45, 1e-30, 1e-6, 1.0, 1e6, 1e15, 1.7e19, 1e20, 3e38, float("inf"), float("nan")]


@st.composite
def runs(draw):
    """Updates (K, B, ..., D), some axes empty, each sample of a step at its own size and some poisoned."""
    shape = draw(st.lists(st.integers(0, 3), min_size=2, max_size=4))
    steps, seed = draw(st.integers(1, 6)), draw(st.integers(0, 2**32 - 1))
    sizes = draw(st.lists(st.sampled_from(POISON), min_size=steps * shape[0], max_size=steps * shape[0]))
    generator = torch.Generator().manual_seed(seed)
    scale = torch.tensor(sizes).reshape(steps, shape[0], *(1,) * (len(shape) - 1))
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float64]))
    return (torch.randn(steps, *shape, generator=generator) * scale).to(dtype)


@pytest.mark.parametrize("warmup", [0, 2])
@pytest.mark.parametrize("name", RULES)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(deltas=runs(), token=st.booleans())
def test_whatever_the_updates_eta_is_in_range_and_what_is_flagged_has_eta_one(name, warmup, deltas, token):
    rule = lt.spec(f"{name}:warmup={warmup}")
    scope = Token() if token else Sample()
    memory, shape = rule.init(deltas[0], scope), scope.shape(deltas[0])
    for delta in deltas:
        decision, memory = rule.update(delta, memory, scope)
        low, high = (torch.tensor(bound, dtype=decision.eta.dtype) for bound in (rule.eta_min, rule.eta_max))
        assert decision.eta.shape == decision.finite.shape == shape
        assert ((decision.eta >= low) & (decision.eta <= high)).all()
        assert (decision.eta[~decision.finite] == 1).all()
        assert (memory.k[~decision.finite] == 0).all()
        assert decision.progress.isfinite().all()
        assert (decision.fluctuation >= 0).all()
        assert (decision.balance.abs() <= 1 / 0.2**0.5 + 1e-5).all()  # RMSProp's |B| / sqrt(r-hat) at most
        rows = delta if token else delta.flatten(1)
        assert not decision.finite[~rows.isfinite().all(-1)].any()


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(deltas=runs())
def test_samples_do_not_see_each_others_poison(name, deltas):
    rule, alone, together = lt.spec(name), [], []
    memory = rule.init(deltas[0])
    for delta in deltas:
        decision, memory = rule.update(delta, memory)
        together.append(decision.eta)
    for b in range(deltas.shape[1]):
        memory = rule.init(deltas[0, b : b + 1])
        etas = []
        for delta in deltas[:, b : b + 1]:
            decision, memory = rule.update(delta, memory)
            etas.append(decision.eta)
        alone.append(torch.stack(etas))
    if alone:
        assert torch.equal(torch.cat(alone, dim=1), torch.stack(together))


@pytest.mark.parametrize("shape", [(3, 0), (2, 0, 4), (0, 4), (0, 2, 4)], ids=str)
def test_samples_without_numbers_make_unit_steps(rule, shape):
    """No numbers have no energy: nothing is divided by their count, and nothing is flagged."""
    run = lt.iterate(lambda x: 0.5 * x, torch.zeros(shape), rule, 4, trace=True)
    assert run.x.shape == shape
    assert run.trace.finite.all()
    assert (run.trace.eta == 1).all()


@pytest.mark.parametrize("shape", [(), (3,)], ids=str)
def test_a_state_without_features_is_refused(controller, shape):
    with pytest.raises(lt.errors.InvalidShape, match=r"needs a state of shape \(B, \.\.\., D\)"):
        controller.init(torch.zeros(shape))
