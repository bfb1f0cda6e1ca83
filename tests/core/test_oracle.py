"""The algorithm boxes in plain Python floats, on trajectories that hypothesis invents.

Each box is written here a second time, from the paper, with lists and loops. The library runs in float32; the boxes
in double precision. Measured on 2,500 seeded trajectories, the worst differences are 4.1e-7 of P + S in the energies
and 1.9e-7 in eta; the bounds below are 2.5 and 5 times that.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import looptaps as lt

GAMMA, RHO, BETA, LOW, HIGH, EPS = 1.5, 0.275, 0.8, 0.8, 1.2, 1e-12


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def clip(x):
    return min(HIGH, max(LOW, x))


def balance(P, S):
    return (P - GAMMA * S) / (P + GAMMA * S + EPS)


def adjacent(last, delta):
    nd = len(delta)
    total = [a + b for a, b in zip(last, delta, strict=True)]
    away = [b - a for a, b in zip(last, delta, strict=True)]
    return dot(total, total) / (4 * nd), dot(away, away) / (4 * nd)


def box_gd(deltas, warmup):
    for k, delta in enumerate(deltas):
        if k == 0:
            yield 1.0, 0.0, 0.0
            continue
        P, S = adjacent(deltas[k - 1], delta)
        yield (1.0 if k < warmup else clip(1 + RHO * balance(P, S))), P, S


def box_sign(deltas, warmup):
    for k, delta in enumerate(deltas):
        if k == 0:
            yield 1.0, 0.0, 0.0
            continue
        P, S = adjacent(deltas[k - 1], delta)
        sign = (P > GAMMA * S) - (P < GAMMA * S)
        yield (1.0 if k < warmup else clip(1 + RHO * sign)), P, S


def box_momentum(deltas, warmup):
    mu = 0.0
    for k, delta in enumerate(deltas):
        if k == 0:
            yield 1.0, 0.0, 0.0
            continue
        P, S = adjacent(deltas[k - 1], delta)
        mu = BETA * mu + (1 - BETA) * balance(P, S)
        yield (1.0 if k < warmup else clip(1 + RHO * mu)), P, S


def box_rmsprop(deltas, warmup):
    r = 0.0
    for k, delta in enumerate(deltas):
        if k == 0:
            yield 1.0, 0.0, 0.0
            continue
        P, S = adjacent(deltas[k - 1], delta)
        B = balance(P, S)
        r = BETA * r + (1 - BETA) * B**2
        r_hat = r / (1 - BETA**k)
        yield (1.0 if k < warmup else clip(1 + RHO * B / math.sqrt(r_hat + EPS))), P, S


def box_adam(deltas, warmup):
    M, v = [0.0] * len(deltas[0]), 0.0
    for k, delta in enumerate(deltas):
        old = (BETA - BETA ** (k + 1)) / (1 - BETA ** (k + 1))
        new = (1 - BETA) / (1 - BETA ** (k + 1))
        M = [old * m + new * d for m, d in zip(M, delta, strict=True)]
        v = old * v + new * dot(delta, delta) / len(delta)
        P = dot(M, M) / len(delta)
        S = max(0.0, v - P)
        yield (1.0 if k < warmup else clip(1 + RHO * balance(P, S))), P, S


def box_bb(deltas, warmup, gain=1.0):
    s = None
    for k, delta in enumerate(deltas):
        if k == 0:
            eta, P, S = 1.0, 0.0, 0.0
        else:
            D = [b - a for a, b in zip(deltas[k - 1], delta, strict=True)]
            kappa = abs(dot(s, D)) / (dot(s, s) + EPS)
            P = dot(delta, delta) / len(delta)
            S = kappa**2 * P
            eta = 1.0 if k < warmup else clip(1 + RHO * balance(P, S))
        yield eta, P, S
        s = [gain * eta * d for d in delta]


BOXES = {
    "taps-gd": box_gd, "taps-sign": box_sign, "taps-momentum": box_momentum,
    "taps-rmsprop": box_rmsprop, "taps-adam": box_adam, "taps-bb": box_bb,
}


@st.composite
def trajectories(draw):
    """Trajectories of one sample, float32 values: each update keeps a share of the last one and adds its own."""
    n, d, steps = draw(st.integers(1, 4)), draw(st.integers(1, 8)), draw(st.integers(1, 10))
    seed, scale = draw(st.integers(0, 2**32 - 1)), 10.0 ** draw(st.integers(-3, 3))
    shares = draw(st.lists(st.floats(-1, 1, width=32), min_size=steps, max_size=steps))
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randn(n, d, generator=generator)]
    for share in shares[1:]:
        rows.append(share * rows[-1] + (1 - abs(share)) * torch.randn(n, d, generator=generator))
    return (scale * torch.stack(rows)).unsqueeze(1)


@pytest.mark.parametrize("warmup", [0, 1, 2, 5])
@pytest.mark.parametrize("name", BOXES)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(deltas=trajectories())
def test_rule_is_its_algorithm_box(name, warmup, deltas):
    rule = lt.spec(f"{name}:warmup={warmup}")
    memory = rule.init(deltas[0])
    expected = list(BOXES[name]([d.flatten().tolist() for d in deltas], warmup))
    for delta, (eta, P, S) in zip(deltas, expected, strict=True):
        decision, memory = rule.update(delta, memory)
        assert decision.progress.item() == pytest.approx(P, abs=1e-6 * (P + S))
        assert decision.fluctuation.item() == pytest.approx(S, abs=1e-6 * (P + S))
        tolerance = 1e-6
        if name == "taps-sign" and abs(P - GAMMA * S) <= 1e-5 * (P + S):
            continue  # sign() jumps here
        if name == "taps-rmsprop" and P + S > 0:
            B = abs(balance(P, S))
            if B <= 1e-4:
                continue  # B / sqrt(r-hat) jumps here
            tolerance *= 1 + 1 / B  # sqrt(r-hat) is at least 0.4 B: what rounding does to B is divided by it
        assert decision.eta.item() == pytest.approx(eta, abs=tolerance)


@pytest.mark.parametrize("gain", [1 / 3, 1.0, 4.0])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(deltas=trajectories())
def test_bb_measures_the_true_displacement(gain, deltas):
    rule = lt.TapsBB(gain=gain, warmup=1)
    memory = rule.init(deltas[0])
    for delta, (eta, _, _) in zip(deltas, box_bb([d.flatten().tolist() for d in deltas], 1, gain), strict=True):
        decision, memory = rule.update(delta, memory)
        assert decision.eta.item() == pytest.approx(eta, abs=1e-6)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(deltas=trajectories())
def test_rmsprop_is_sign_at_its_first_score(deltas):
    """At k = 1, B / sqrt(r-hat) = B / |B|: the first adaptive step of RMSProp is that of P/S-Sign."""
    etas = []
    for rule in (lt.TapsRMSProp(warmup=1), lt.TapsSign(warmup=1)):
        memory = rule.init(deltas[0])
        for delta in deltas[:2]:
            decision, memory = rule.update(delta, memory)
        etas.append(decision.eta.item())
    P, S = decision.progress.item(), decision.fluctuation.item()
    if abs(P - GAMMA * S) > 1e-3 * (P + S):
        assert etas[0] == pytest.approx(etas[1], abs=1e-6)
