"""The unit step is the model's own step, bit for bit: any difference a user sees is the scheduler."""

import pytest
import torch

import looptaps as lt
from looptaps.loop import scaled_step
from looptaps.loop.step import difference
from looptaps.testing import WaveCore, updates

DTYPES = [torch.float32, torch.bfloat16, torch.float64]
UNIT = ["standard", "constant:eta=1.0", "schedule:etas=1/1"]
RULES = ["taps-gd", "taps-sign", "taps-momentum", "taps-rmsprop", "taps-adam", "taps-bb"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("text", UNIT + [f"{rule}:warmup=100" for rule in RULES])
def test_unit_steps_are_the_bare_loop_for_100_steps(text, dtype):
    core, x = WaveCore(16, dtype=dtype), updates(1, 4, 6, 16, dtype=dtype)[0]
    expected = x
    with torch.no_grad():
        for _ in range(100):
            expected = core(expected)
        run = lt.iterate(core, x, lt.spec(text), 100, trace=True)
    assert torch.equal(run.x, expected)
    assert run.x.dtype == dtype
    assert (run.trace.eta == 1).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_stepper_with_standard_is_the_bare_loop(dtype):
    core, x = WaveCore(16, dtype=dtype), updates(1, 4, 6, 16, dtype=dtype)[0]
    step, y = lt.Stepper(lt.Standard()), x
    with torch.no_grad():
        for _ in range(100):
            x, y = core(x), step(y, core(y))
    assert torch.equal(x, y)


def test_the_naive_form_would_not_be_exact():
    """Why the step is written f(x) + (eta - 1) Delta: x + 1 * (f(x) - x) differs in about a fifth of the elements."""
    for dtype in (torch.float32, torch.bfloat16):
        x, fx = updates(2, 8, 16, 64, dtype=dtype)
        naive = x + 1.0 * (fx - x)
        share = (naive != fx).float().mean().item()
        assert 0.05 < share < 0.5
        assert torch.equal(scaled_step(fx, difference(fx, x), torch.ones(8)), fx)


def test_the_unit_step_takes_f_itself_even_where_the_difference_is_not_finite():
    x = torch.zeros(1, 1, 4)
    fx = torch.tensor([[[torch.inf, -torch.inf, torch.nan, -0.0]]])
    moved = scaled_step(fx, difference(fx, x), torch.ones(1))
    assert torch.equal(moved.nan_to_num(7.0), fx.nan_to_num(7.0))
    assert torch.signbit(moved[..., 3]).item()


def test_a_bfloat16_state_stays_bfloat16_and_is_rounded_once():
    """An eta of shape (B, 1, 1) in float32 would promote the state, and the model's weights with it."""
    x, fx = updates(2, 3, 5, 8, dtype=torch.bfloat16)
    eta = torch.tensor([0.85, 1.0, 1.13])
    moved = scaled_step(fx, difference(fx, x), eta)
    exact = x.double() + eta.double().reshape(3, 1, 1) * (fx.double() - x.double())
    assert moved.dtype == torch.bfloat16
    assert torch.equal(moved[1], fx[1])
    # eta is float32, so the exact value is that of the float32 eta; one rounding separates the two
    assert torch.equal(moved, exact.to(torch.float32).to(torch.bfloat16))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_eta_scales_the_update(dtype):
    x, fx = updates(2, 3, 5, 8, dtype=dtype)
    eta = torch.tensor([0.8, 0.9, 1.2], dtype=torch.promote_types(dtype, torch.float32))
    moved = scaled_step(fx, difference(fx, x), eta)
    expected = x.double() + eta.double().reshape(3, 1, 1) * (fx.double() - x.double())
    assert torch.allclose(moved.double(), expected, rtol=4 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)


def test_where_eta_carries_a_gradient_its_value_at_one_is_still_exact():
    x, fx = updates(2, 3, 5, 8)
    eta = torch.ones(3, requires_grad=True)
    moved = scaled_step(fx, difference(fx, x), eta)
    assert torch.equal(moved, fx)
    moved.sum().backward()
    assert torch.allclose(eta.grad, (fx - x).sum((1, 2)), atol=1e-5)
