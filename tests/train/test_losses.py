"""Losses and the balance penalty, by hand."""

from __future__ import annotations

import math

import pytest
import torch

import looptaps as lt
from looptaps.errors import InvalidUse, InvalidValue
from looptaps.loop import Trace
from looptaps.train.losses import exact_match, halting_bce, softmax_ce, stablemax_ce, supervised


def test_stablemax_by_hand() -> None:
    # s(3) = 4, s(0) = 1, s(-3) = 1/4: the share of the first is 4 / 5.25
    logits = torch.tensor([[[3.0, 0.0, -3.0], [-3.0, 0.0, 3.0]]])
    by_cell = [-math.log(4 / 5.25), -math.log(0.25 / 5.25)]
    loss = stablemax_ce(logits, torch.tensor([[0, 0]]))
    assert loss.dtype == torch.float64
    assert loss.item() == pytest.approx(sum(by_cell) / 2, rel=1e-12)


def test_softmax_by_hand() -> None:
    logits = torch.tensor([[[math.log(3.0), 0.0]]])
    assert softmax_ce(logits, torch.tensor([[0]])).item() == pytest.approx(-math.log(0.75), rel=1e-6)


@pytest.mark.parametrize("loss", [softmax_ce, stablemax_ce])
def test_a_loss_is_the_mean_over_scored_cells_of_each_sample(loss) -> None:
    logits = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[0, 1, 2, 3, 0], [1, 1, -100, -100, -100], [-100] * 5])
    cells = torch.stack([torch.stack([loss(logits[b : b + 1, i : i + 1], labels[b : b + 1, i : i + 1])[0]
                                      for i in range(5)]) for b in range(3)])
    assert loss(logits, labels)[0].item() == pytest.approx(cells[0].mean().item(), rel=1e-6)
    assert loss(logits, labels)[1].item() == pytest.approx(cells[1, :2].mean().item(), rel=1e-6)
    assert loss(logits, labels)[2].item() == 0


def test_stablemax_has_finite_gradients_everywhere() -> None:
    logits = torch.tensor([[[1.0, 0.0, -1.0, 1e4, -1e4]]], requires_grad=True)
    stablemax_ce(logits, torch.tensor([[0]])).sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_the_halting_loss_learns_exactness() -> None:
    q = torch.tensor([2.0, 2.0])
    expected = [math.log1p(math.exp(-2.0)), 2.0 + math.log1p(math.exp(-2.0))]
    assert halting_bce(q, torch.tensor([True, False])).tolist() == pytest.approx(expected)


def test_the_total_is_answer_plus_weighted_halting() -> None:
    logits = torch.tensor([[[5.0, 0.0]], [[0.0, 5.0]]])
    labels = torch.tensor([[0], [0]])
    losses = supervised("softmax", logits, torch.tensor([1.0, -1.0]), labels, 0.25)
    assert losses.exact.tolist() == [True, False] == exact_match(logits, labels).tolist()
    assert torch.allclose(losses.total, losses.answer + 0.25 * losses.halting)
    assert supervised("softmax", logits, None, labels).halting.tolist() == [0, 0]


def trace(progress, fluctuation, finite=None) -> Trace:
    p, s = torch.as_tensor(progress, dtype=torch.float32), torch.as_tensor(fluctuation, dtype=torch.float32)
    seen = torch.ones_like(p, dtype=torch.bool) if finite is None else torch.as_tensor(finite)
    return Trace(torch.ones_like(p), seen, p, s, torch.zeros_like(p))


def test_the_penalty_by_hand() -> None:
    # Two updates of two samples: relu(9 - 4) = 5 and relu(1 - 8) = 0; relu(2 - 0) = 2 and relu(6 - 4) = 2.
    run = trace([[1.0, 2.0], [0.0, 1.0]], [[9.0, 1.0], [2.0, 6.0]])
    penalty = lt.BalancePenalty(mu=0.1, kappa=4.0)
    assert penalty(run).item() == pytest.approx(0.1 * (5 + 0 + 2 + 2) / 2)
    assert lt.BalancePenalty() == lt.BalancePenalty(mu=1e-3, kappa=4.0)


def test_held_and_bad_updates_cost_nothing_and_gradients_stay_finite() -> None:
    nan, inf = math.nan, math.inf
    p = torch.tensor([[1.0, nan, 1.0], [1.0, 1.0, inf]], requires_grad=True)
    s = torch.tensor([[9.0, nan, 9.0], [nan, inf, 9.0]], requires_grad=True)
    finite = torch.tensor([[True, True, False], [True, True, True]])
    value = lt.BalancePenalty(mu=1.0)(Trace(torch.ones(2, 3), finite, p, s, None))
    assert value.item() == pytest.approx(5 / 3)
    value.backward()
    assert p.grad is not None
    assert s.grad is not None
    assert torch.allclose(s.grad, torch.tensor([[1 / 3, 0, 0], [0, 0, 0]]))
    assert torch.allclose(p.grad, torch.tensor([[-4 / 3, 0, 0], [0, 0, 0]]))


def test_the_penalty_trains_a_core() -> None:
    weight = torch.tensor(-0.9, requires_grad=True)
    run = lt.iterate(lambda x: weight * x, torch.ones(1, 2, 4), lt.TapsGD(), 4, trace=True)
    lt.BalancePenalty(mu=1.0)(run.trace).backward()
    assert weight.grad is not None
    assert weight.grad.item() < 0  # fluctuation falls when the core oscillates less


def test_the_penalty_says_what_it_needs() -> None:
    with pytest.raises(InvalidUse, match="trace=True"):
        lt.BalancePenalty()(None)
    fixed = lt.iterate(lambda x: 0.5 * x, torch.ones(1, 2, 4), lt.Standard(), 2, trace=True).trace
    with pytest.raises(InvalidValue, match="TAPS rule"):
        lt.BalancePenalty()(fixed)
    for field in ("mu", "kappa"):
        with pytest.raises(InvalidValue, match=field):
            lt.BalancePenalty(**{field: -1.0})
