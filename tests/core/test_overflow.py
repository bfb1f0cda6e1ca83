"""A sample that overflows leaves the gradients of its neighbours alone, whatever the rule and whoever asks for them."""

import pytest
import torch

import looptaps as lt
from looptaps.loop import scaled_step
from looptaps.loop.step import difference
from looptaps.testing import WaveCore, updates

B, BAD, AT, STEPS = 4, 1, 3, 7
OTHERS = [b for b in range(B) if b != BAD]
# 1e17 overflows kappa^2 alone, 1.6e19 the sums of energies alone; 3e38 is nearly the largest float32.
POISON = [1e17, 1e18, 5e18, 1.2e19, 1.6e19, 1e20, 1e25, 3e38]


def gradient(rule, poison, *, through, penalty=0.0):
    """The core's gradients of the other samples' loss, where sample 1 is poisoned at one step."""
    core, calls = WaveCore(8), []
    with torch.no_grad():
        core.weight.mul_(0.3)  # the core itself stays finite at 3e38

    def f(x):
        calls.append(x)
        if poison is None or len(calls) != AT + 1:
            return core(x)
        return torch.where((torch.arange(B) == BAD)[:, None, None], poison, core(x))

    control = lt.Control(rule, grad_through_eta=through)
    run = lt.iterate(f, updates(1, B, 5, 8)[0], control, STEPS, trace=True)
    loss = run.x[OTHERS].square().sum()
    if penalty:
        loss = loss + lt.BalancePenalty(mu=penalty, kappa=0.1)(run.trace)
    loss.backward()
    return torch.cat([core.weight.grad, core.shift.grad])


@pytest.mark.parametrize("through", [False, True], ids=["constant eta", "through eta"])
@pytest.mark.parametrize("poison", POISON)
def test_an_overflow_in_one_sample_leaves_the_gradients_of_the_others_alone(rule, poison, through):
    clean = gradient(rule, None, through=through)
    assert torch.allclose(gradient(rule, poison, through=through), clean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("through", [False, True], ids=["constant eta", "through eta"])
@pytest.mark.parametrize("poison", [1e20, 1e25, 3e38])
def test_a_penalty_trains_beside_a_sample_that_overflows(rule, poison, through):
    found = gradient(rule, poison, through=through, penalty=1.0)
    assert found.isfinite().all()
    assert (found != 0).any()


@pytest.mark.parametrize("poison", [1e12, 1e15, 1e17])
def test_a_jump_out_of_rest_overflows_the_curvature_and_nothing_else(poison):
    """kappa is about |D| / |D'|: its square leaves float32 long before the energies do."""
    rest, jump = 1e-4 * torch.ones(2, 3, 4), torch.ones(2, 3, 4)
    jump[BAD] = poison
    jump.requires_grad_()
    rule = lt.TapsBB(warmup=0)
    _, memory = rule.update(rest, rule.init(rest))
    decision, _ = rule.update(jump, memory)
    (decision.progress + decision.fluctuation).where(decision.finite, 0)[0].backward()
    assert jump.grad.isfinite().all()
    assert (decision.eta[decision.finite] == 0.8).all()


def test_squares_near_the_largest_float_are_flagged_by_bb():
    """BB multiplies and doubles them; from 1/16 of the largest float32 on they count as overflown."""
    rule = lt.TapsBB()
    delta = torch.tensor([[[4.5e18]], [[4.7e18]]])
    decision, _ = rule.update(delta, rule.init(delta))
    assert decision.finite.tolist() == [True, False]


def test_where_eta_carries_a_gradient_a_sample_that_is_not_finite_keeps_f_and_harms_no_gradient():
    x, fx = updates(2, 3, 5, 8)
    fx[1] = torch.inf
    fx[2, 0, 0] = torch.nan
    eta = torch.tensor([0.9, 1.0, 1.0], requires_grad=True)
    moved = scaled_step(fx, difference(fx, x), eta)
    assert torch.equal(moved[1:].nan_to_num(7.0), fx[1:].nan_to_num(7.0))
    moved[0].sum().backward()
    assert eta.grad.isfinite().all()
    assert torch.allclose(eta.grad[0], (fx[0] - x[0]).sum())
