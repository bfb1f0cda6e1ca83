"""Anderson acceleration against a plain implementation, and its independence of neighbours."""

from typing import NamedTuple

import pytest
import torch

import looptaps as lt
from looptaps.loop import Readout, StepStats, begin_memory


class Carry(NamedTuple):
    z_L: torch.Tensor  # noqa: N815
    start: torch.Tensor


class Linear:
    """z <- A z + start: a contraction whose fixed point is known; row r's scale is scales[inputs[r, 0]]."""

    def __init__(self, size=6, dtype=torch.float64, scales=(1.0, 0.5, float("nan"), 1e15)):
        g = torch.Generator().manual_seed(0)
        q, _ = torch.linalg.qr(torch.randn(size, size, generator=g, dtype=torch.float64))
        self.A = (q * torch.linspace(0.1, 0.97, size, dtype=torch.float64)) @ q.T
        self.b = torch.randn(64, 1, size, generator=g, dtype=torch.float64)
        self.dtype, self.scales = dtype, torch.tensor(scales, dtype=torch.float64)

    def begin(self, batch):
        rows = batch["inputs"]
        start = (self.b[rows[:, 1]] * self.scales[rows[:, 0]].reshape(-1, 1, 1)).to(self.dtype)
        return Carry(torch.zeros_like(start), start)

    def image(self, z, start):
        # Elementwise, so that a row's sum does not depend on how many rows there are.
        return (z.double().unsqueeze(-2) * self.A).sum(-1).to(self.dtype) + start

    def advance(self, carry, control, memory=None, *, trace=False, moves=None):
        z = self.image(carry.z_L, carry.start)
        memory = begin_memory(control.rule(), z) if memory is None else memory
        ones = torch.ones(len(z))
        finite = z.isfinite().flatten(1).all(1)
        return carry._replace(z_L=z), memory, StepStats(torch.stack((ones, ones)), ones, ones, finite, 1, 0, None)

    def readout(self, carry):
        return Readout(carry.z_L, carry.z_L.flatten(1).sum(1))

    def error(self, result_z, start):
        exact = torch.linalg.solve(torch.eye(len(self.A), dtype=torch.float64) - self.A, start[:, 0].double().T).T
        return (result_z[:, 0].double() - exact).norm(dim=1) / exact.norm(dim=1)


def rows(*pairs):
    return {"inputs": torch.tensor(pairs)}


def last_states(model, strategy, batch):
    """The carry that each sample's answer was read from."""
    read = []
    plain = model.readout
    model.readout = lambda carry: read.append(carry) or plain(carry)
    result = strategy.run(model, batch, lt.Standard())
    del model.readout
    return result, read


def by_hand(model, start, loops, m, beta=1.0, lam=1e-4):
    """One sample, the constrained least squares by the normal equations, no clever updating."""
    x, xs, gs = torch.zeros_like(start), [], []
    for _ in range(loops):
        image = model.image(x, start)
        xs, gs = [*xs, x][-m:], [*gs, image - x][-m:]
        if len(gs) == 1:
            x = image
            continue
        g = torch.stack([v.flatten() for v in gs])
        gram = g @ g.T
        gram = gram + lam * gram.diagonal().mean() * torch.eye(len(g), dtype=gram.dtype)
        alpha = torch.linalg.solve(gram, torch.ones(len(g), dtype=gram.dtype))
        alpha = alpha / alpha.sum()
        x = sum(a * (xi + beta * gi) for a, xi, gi in zip(alpha, xs, gs, strict=True))
    return image


@pytest.mark.parametrize(("m", "beta"), [(1, 1.0), (2, 1.0), (3, 1.0), (5, 1.0), (3, 0.7)])
def test_against_a_plain_implementation(m, beta):
    model = Linear()
    strategy = lt.Anderson(max_loops=9, m=m, beta=beta, eps=0.0)
    _, read = last_states(model, strategy, rows((0, 0), (1, 1)))
    carry = read[-1]
    for row in range(2):
        expected = by_hand(model, carry.start[row : row + 1], 9, m, beta)
        # Solving for weights that are nearly dependent loses about half of float64's digits.
        torch.testing.assert_close(carry.z_L[row : row + 1], expected, rtol=1e-7, atol=1e-9)


def test_one_place_is_the_plain_loop_bit_for_bit(make, batch):
    model = make("trm")
    plain = lt.FixedDepth(4).run(model, batch(3), lt.TapsGD())
    anderson = lt.Anderson(max_loops=4, m=1, eps=0.0).run(model, batch(3), lt.TapsGD())
    assert torch.equal(plain.score, anderson.score)
    assert torch.equal(plain.output, anderson.output)


def test_it_is_faster_than_the_plain_loop_and_exits_when_converged():
    model = Linear()
    result, read = last_states(model, lt.Anderson(max_loops=500, m=5, eps=1e-8), rows((0, 0)))
    assert result.counts() == {"CONVERGED": 1}
    plain = lt.Anderson(max_loops=500, m=1, eps=1e-8).run(model, rows((0, 0)), lt.Standard())
    assert result.loops[0] * 5 < plain.loops[0]
    assert model.error(read[-1].z_L, read[-1].start) < 1e-6


def test_neighbours_however_bad_change_nothing():
    model, strategy = Linear(), lt.Anderson(max_loops=60, m=4, eps=1e-9)
    alone = strategy.run(model, rows((0, 0)), lt.Standard())
    among = strategy.run(model, rows((2, 3), (0, 0), (3, 1), (2, 2), (1, 5)), lt.Standard())
    assert among.status.tolist()[0] == lt.Status.NONFINITE
    assert among.loops[1] == alone.loops[0]
    assert torch.equal(among.score[1:2], alone.score)


def test_a_standing_still_sample_needs_no_least_squares():
    model = Linear(scales=(0.0,))
    result = lt.Anderson(max_loops=5, m=3, eps=0.0).run(model, rows((0, 0), (0, 1)), lt.Standard())
    assert result.counts() == {"CONVERGED": 2}
    assert result.score.tolist() == [0.0, 0.0]


def test_half_precision_states_are_mixed_in_single():
    model = Linear(dtype=torch.bfloat16)
    result = lt.Anderson(max_loops=40, m=4, eps=0.02).run(model, rows((0, 0), (1, 1)), lt.Standard())
    assert result.counts() == {"CONVERGED": 2}
