"""The paper's identities, held numerically in double precision."""

import itertools
import math

import pytest
import torch

import looptaps as lt
from looptaps.controllers import energies as E
from looptaps.controllers.base import Sample
from looptaps.testing import AffineCore, WaveCore, updates
from looptaps.theory import Modes, TwoModes, decompose, ema_weights, observable_energies, sensitivities


def terminal(x):
    target = torch.linspace(-1, 1, x.shape[-1], dtype=x.dtype)
    return (x - target).square().mean(1).sum(-1) + torch.cos(x).sum((1, 2)) / 7


def problem(K=6, B=3, seed=0):
    core = WaveCore(8, seed=seed, dtype=torch.float64)
    x = updates(1, B, 4, 8, seed=seed, dtype=torch.float64)[0]
    etas = 1 + 0.3 * torch.rand(K, B, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 0.15
    return core, x, etas


# --- proposition "exact sensitivity" ---


@pytest.mark.parametrize("seed", range(3))
def test_sensitivities_are_autograd_through_the_whole_rollout(seed):
    core, x, etas = problem(seed=seed)
    etas.requires_grad_()
    terminal(lt.iterate(core, x, etas=etas).x).sum().backward()
    found = sensitivities(core, x, terminal, etas)
    assert torch.allclose(found.gradient, etas.grad, rtol=1e-12, atol=1e-14)
    assert torch.equal(found.advantage, -found.gradient)


def test_sensitivities_are_central_finite_differences():
    core, x, etas = problem()
    found = sensitivities(core, x, terminal, etas)
    h = 1e-5
    for k in range(len(etas)):
        with torch.no_grad():
            moved = []
            for sign in (1, -1):
                bent = etas.clone()
                bent[k] += sign * h
                moved.append(terminal(lt.iterate(core, x, etas=bent).x))
        numeric = (moved[0] - moved[1]) / (2 * h)
        assert ((found.gradient[k] - numeric).abs() <= 1e-6 * numeric.abs()).all()  # measured: 3.4e-8


def test_sensitivities_at_the_unit_step_are_not_cut():
    """The unit step is special-cased by value; its gradient must not be."""
    core, x, _ = problem()
    ones = torch.ones(5, dtype=torch.float64, requires_grad=True)
    terminal(lt.iterate(core, x, etas=ones).x).sum().backward()
    found = sensitivities(core, x, terminal, torch.ones(5, dtype=torch.float64))
    assert torch.allclose(found.gradient.sum(1), ones.grad, rtol=1e-12, atol=1e-14)
    assert (ones.grad != 0).all()


def test_sensitivities_record_the_rollout():
    core, x, etas = problem()
    found = sensitivities(core, x, terminal, etas)
    with torch.no_grad():
        assert torch.equal(found.states[-1], lt.iterate(core, x, etas=etas).x)
        assert torch.equal(found.loss, terminal(found.states[-1]))
        assert torch.equal(found.deltas[0], core(x) - x)
    assert found.adjoints.shape == found.deltas.shape == (6, 3, 4, 8)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_sensitivities_of_narrow_states_follow_the_rollout_of_iterate(dtype):
    core, x, etas = WaveCore(8, dtype=dtype), updates(1, 3, 4, 8, dtype=dtype)[0], problem()[2].float()
    found = sensitivities(core, x, lambda x: terminal(x.float()), etas)
    with torch.no_grad():
        for k in range(1, len(etas) + 1):
            assert torch.equal(found.states[k], lt.iterate(core, x, etas=etas[:k]).x)
    etas.requires_grad_()
    terminal(lt.iterate(core, x, etas=etas).x.float()).sum().backward()
    assert torch.allclose(found.gradient, etas.grad, rtol=0.05, atol=0.05 * float(etas.grad.abs().max()))


# --- proposition "temporal decomposition" and remark "sensitivity interpretation" ---


@pytest.mark.parametrize("weights", ["ema", "uniform", "random", "last"])
def test_the_advantage_is_progress_minus_fluctuation(weights):
    core, x, etas = problem()
    found = sensitivities(core, x, terminal, etas)
    K = len(etas)
    w = {
        "ema": ema_weights(0.8, K),
        "uniform": torch.full((K,), 1 / K, dtype=torch.float64),
        "random": torch.softmax(torch.randn(K, generator=torch.Generator().manual_seed(1), dtype=torch.float64), 0),
        "last": torch.eye(K, dtype=torch.float64)[-1],
    }[weights]
    parts = decompose(found.deltas, found.adjoints, w)
    assert torch.allclose(parts.advantage, parts.progress - parts.fluctuation, rtol=0, atol=1e-13)
    assert torch.allclose(parts.advantage, (w[:, None] * found.advantage).sum(0), rtol=0, atol=1e-13)
    if weights == "last":
        assert torch.allclose(parts.fluctuation, torch.zeros(3, dtype=torch.float64), atol=1e-14)


def test_the_advantage_is_the_slope_of_the_loss_along_the_weights():
    core, x, etas = problem()
    found = sensitivities(core, x, terminal, etas)
    w, h = ema_weights(0.8, len(etas)), 1e-5
    with torch.no_grad():
        up, down = (terminal(lt.iterate(core, x, etas=etas + s * h * w[:, None]).x) for s in (1, -1))
    slope = -(up - down) / (2 * h)
    parts = decompose(found.deltas, found.adjoints, w)
    assert torch.allclose(parts.advantage, slope, rtol=1e-6, atol=1e-9)


# --- lemma "EMA mean-variance" and the adjacent scores ---


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.8, 0.99])
def test_adam_tracks_the_weighted_mean_and_variance(beta):
    deltas = updates(9, 3, 4, 8, dtype=torch.float64)
    rule = lt.TapsAdam(beta=beta)
    memory = rule.init(deltas[0])
    for k, delta in enumerate(deltas):
        decision, memory = rule.update(delta, memory)
        w = ema_weights(beta, k + 1)
        lemma = observable_energies(deltas[: k + 1], w)
        mean = (w[:, None, None, None] * deltas[: k + 1]).sum(0)
        assert torch.allclose(memory.mean, mean, rtol=1e-12, atol=1e-14)
        assert torch.allclose(decision.progress, lemma.progress, rtol=1e-12, atol=1e-14)
        assert torch.allclose(decision.fluctuation, lemma.fluctuation, rtol=1e-12, atol=1e-14)


def test_adjacent_scores_are_the_lemma_with_equal_weights_over_two_updates():
    deltas = updates(2, 3, 4, 8, dtype=torch.float64)
    scores = E.adjacent_energies_direct(deltas[1], deltas[0], Sample())
    lemma = observable_energies(deltas, torch.tensor([0.5, 0.5], dtype=torch.float64))
    assert torch.allclose(scores.progress, lemma.progress, rtol=1e-13)
    assert torch.allclose(scores.fluctuation, lemma.fluctuation, rtol=1e-13)


def test_adjacent_progress_and_fluctuation_add_up_to_the_mean_energy():
    deltas = updates(2, 3, 4, 8, dtype=torch.float64)
    scores = E.adjacent_energies_direct(deltas[1], deltas[0], Sample())
    mean = deltas.square().mean((2, 3)).mean(0)
    assert torch.allclose(scores.progress + scores.fluctuation, mean, rtol=1e-13)


def test_ema_weights_sum_to_one():
    for beta, steps in itertools.product((0.0, 0.3, 0.8, 0.999), (1, 2, 50)):
        assert float(ema_weights(beta, steps).sum()) == pytest.approx(1, abs=1e-12)
    assert ema_weights(0.0, 3).tolist() == [0, 0, 1]


# --- the toy models ---

MODES = Modes(lambdas=(0.85, 1.0, 1.2), q=(1.0, 0.5, 2.0), e0=(1.0, -0.7, 0.4))


def test_a_schedule_removes_every_mode_where_no_constant_can():
    for steps in (3, 4, 6):
        assert MODES.error(MODES.zeroing_schedule(steps)) <= 1e-30
        best = min(MODES.error([eta] * steps) for eta in torch.linspace(0.8, 1.2, 2001).tolist())
        assert best >= MODES.constant_bound(steps) > 0


def test_the_modes_are_the_loop_with_an_affine_core():
    core = AffineCore(1 - torch.tensor([MODES.lambdas], dtype=torch.float64))
    x = torch.tensor([[MODES.e0]], dtype=torch.float64)
    etas = [0.9, 1.1, 1.0, 0.8]
    end = lt.iterate(core, x, lt.Schedule(etas), 4).x[0, 0]
    q = torch.tensor(MODES.q, dtype=torch.float64)
    assert float((q * end**2).sum() / 2) == pytest.approx(MODES.error(etas), rel=1e-12)


@pytest.mark.parametrize(("r", "x0", "z0", "K"), [(0.5, 1.0, 0.2, 2), (0.8, 0.3, 1.0, 5), (0.1, 1.0, 1.0, 3)])
def test_two_modes_have_the_closed_forms_of_the_proposition(r, x0, z0, K):
    toy = TwoModes(r=r, x0=x0, z0=z0, horizon=K)
    H = torch.tensor([1 - r, 1 + r], dtype=torch.float64)
    core = AffineCore(1 - H)
    x = torch.tensor([[[x0, z0]]], dtype=torch.float64)
    found = sensitivities(core, x, lambda e: (H * e.square()).sum((1, 2)) / 2, torch.ones(K, dtype=torch.float64))
    w = ema_weights(r, 2)
    hat = observable_energies(found.deltas[:2], w)
    oracle = decompose(found.deltas[:2], found.adjoints[:2], w)
    assert hat.progress.item() == pytest.approx(toy.progress_hat, rel=1e-12)
    assert hat.fluctuation.item() == pytest.approx(toy.fluctuation_hat, rel=1e-12)
    assert oracle.progress.item() == pytest.approx(toy.progress, rel=1e-10)
    assert oracle.fluctuation.item() == pytest.approx(toy.fluctuation, rel=1e-10)
    assert toy.progress == pytest.approx(toy.a * toy.progress_hat, rel=1e-12)
    assert toy.fluctuation == pytest.approx(toy.b * toy.fluctuation_hat, rel=1e-12)
    assert toy.gamma == pytest.approx(toy.b / toy.a, rel=1e-12)
    assert found.advantage[:, 0].tolist() == pytest.approx([toy.advantage] * K, rel=1e-10)
    assert oracle.advantage.item() == pytest.approx(toy.advantage, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(("x0", "z0"), [(1.0, 0.05), (0.05, 1.0), (0.7, 0.3)])
@pytest.mark.parametrize("r", [0.2, 0.6])
def test_adam_lowers_the_loss_of_the_two_modes(r, x0, z0):
    """With gamma = b/a and rho below its limit, eta_1 - 1 has the sign of A_1 and the terminal loss falls."""
    K = 4
    toy = TwoModes(r=r, x0=x0, z0=z0, horizon=K)
    rule = lt.TapsAdam(beta=r, gamma=toy.gamma, rho=0.9 * toy.rho_limit, warmup=1, eta_min=0.5, eta_max=2.0)
    H = torch.tensor([1 - r, 1 + r], dtype=torch.float64)
    core, x = AffineCore(1 - H), torch.tensor([[[x0, z0]]], dtype=torch.float64)
    eta = lt.iterate(core, x, rule, 2, trace=True).trace.eta[1].item()
    assert math.copysign(1, eta - 1) == math.copysign(1, toy.advantage)
    assert toy.terminal_loss(eta) < toy.terminal_loss(1)
    assert toy.terminal_loss(1) - toy.terminal_loss(eta) == pytest.approx(toy.gain(eta), rel=1e-9)
    end = lt.iterate(core, x, lt.Schedule((1, eta, 1)), K).x
    assert float((H * end.square()).sum() / 2) == pytest.approx(toy.terminal_loss(eta), rel=1e-12)


# --- bad input ---


def test_theory_says_what_is_wrong():
    core, x, etas = problem()
    bad = lt.errors.LooptapsError
    with pytest.raises(bad, match="one number per sample"):
        sensitivities(core, x, lambda x: x.sum(), etas)
    with pytest.raises(bad, match="floating point"):
        sensitivities(core, x, terminal, torch.ones(3, dtype=torch.int64))
    with pytest.raises(bad, match="finite"):
        sensitivities(core, x, terminal, etas * torch.nan)
    found = sensitivities(core, x, terminal, etas)
    with pytest.raises(bad, match="sum to 1"):
        decompose(found.deltas, found.adjoints, torch.ones(6))
    for weights in (torch.full((6,), torch.nan), torch.tensor([0.5, 0.5, torch.nan, 0, 0, 0])):
        with pytest.raises(bad, match="sum to nan"):
            decompose(found.deltas, found.adjoints, weights)
    for wrong in ([1 / 6] * 6, None, torch.ones(6, dtype=torch.int64)):
        with pytest.raises(bad, match="needs weights as a floating point tensor"):
            decompose(found.deltas, found.adjoints, wrong)
        with pytest.raises(bad, match="needs weights as a floating point tensor"):
            observable_energies(found.deltas, wrong)
    with pytest.raises(bad, match="needs deltas as a floating point tensor, but got list"):
        observable_energies([1.0], torch.ones(6) / 6)
    with pytest.raises(bad, match="needs adjoints as a floating point tensor, but got NoneType"):
        decompose(found.deltas, None, torch.ones(6) / 6)
    with pytest.raises(bad, match="Weights must be"):
        observable_energies(found.deltas, torch.ones(2) / 2)
    with pytest.raises(bad, match="differ"):
        decompose(found.deltas, found.adjoints[:3], torch.ones(6) / 6)
    with pytest.raises(bad, match=r"ema_weights\.beta must be a number in \[0, 1\)"):
        ema_weights(1.0, 3)
    for steps in (0, 2.5, True):
        with pytest.raises(bad, match=r"ema_weights\.steps must be a whole number >= 1"):
            ema_weights(0.5, steps)
    with pytest.raises(bad, match=r"ema_weights\.beta"):
        ema_weights("0.5", 3)
    with pytest.raises(bad, match="must be a tensor, but are list"):
        sensitivities(core, x, terminal, [1.0])
    with pytest.raises(bad, match="but gave float"):
        sensitivities(core, x, lambda x: 1.0, etas)
    with pytest.raises(bad, match="does not depend on the terminal state"):
        sensitivities(core, x, lambda x: x.detach().sum((1, 2)), etas)
    with pytest.raises(bad, match="floating point"):
        sensitivities(core, x, terminal, torch.ones(0))
    for wrong, message in (([1.0], "must be a tensor, but is list"), (x.sum(), r"but got \(\)"),
                           (x[0, 0], r"but got \(8,\)"), (x.long(), "must be floating point")):
        with pytest.raises(bad, match=message):
            sensitivities(core, wrong, terminal, etas)
    with pytest.raises(bad, match="core must be callable on a state, but is NoneType"):
        sensitivities(None, x, terminal, etas)
    with pytest.raises(bad, match="loss must be callable on a state, but is NoneType"):
        sensitivities(core, x, None, etas)
    with pytest.raises(bad, match="at least two"):
        Modes(lambdas=(1.0,), q=(1.0,), e0=(1.0,))
    with pytest.raises(bad, match="different from 0"):
        Modes(lambdas=(1.0, 2.0), q=(1.0, 1.0), e0=(1.0, 0.0))
    with pytest.raises(bad, match="pairwise distinct"):
        Modes(lambdas=(1.0, 1.0), q=(1.0, 1.0), e0=(1.0, 1.0))
    for steps in (2, 2.5, 3.0, True, "3"):
        with pytest.raises(bad, match="one per mode"):
            MODES.zeroing_schedule(steps)
    for wrong in ("ab", 1.0, None):
        with pytest.raises(bad, match=r"Modes\.lambdas must be a tuple of numbers, but is"):
            Modes(lambdas=wrong, q=(1.0, 1.0), e0=(1.0, 1.0))
    for field, wrong in (("lambdas", math.nan), ("q", math.inf), ("e0", "1")):
        fields = {"lambdas": (1.0, 2.0), "q": (1.0, 1.0), "e0": (1.0, 1.0), field: (1.0, wrong)}
        with pytest.raises(bad, match=rf"Modes\.{field}\[1\] must be a finite number, but is"):
            Modes(**fields)
    for field, wrong in (("r", "a"), ("r", math.nan), ("x0", math.nan), ("z0", None), ("z0", math.inf)):
        with pytest.raises(bad, match=rf"TwoModes\.{field} must be a"):
            TwoModes(**{"r": 0.5, "x0": 1, "z0": 1, "horizon": 3, field: wrong})
    with pytest.raises(bad, match=r"TwoModes\.r"):
        TwoModes(r=1.0, x0=1, z0=1, horizon=3)
    for horizon in (1, 2.5):
        with pytest.raises(bad, match="horizon must be a whole number >= 2"):
            TwoModes(r=0.5, x0=1, z0=1, horizon=horizon)
