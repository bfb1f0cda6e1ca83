"""Optimizer, schedule and averaged weights."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from looptaps.train.optim import AdamAtan2, lr_factor, make_ema, make_optimizer, make_scheduler
from looptaps.train.recipe import OptimizerRecipe, ScheduleRecipe


def test_adam_atan2_by_hand() -> None:
    p = nn.Parameter(torch.tensor([1.0, -2.0]))
    optimizer = AdamAtan2([p], lr=0.1, betas=(0.5, 0.75), weight_decay=0.2)
    m = v = torch.zeros(2)
    expected = p.detach().clone()
    for k, grad in enumerate([torch.tensor([1.0, 0.0]), torch.tensor([-3.0, 1e-20])], start=1):
        p.grad = grad
        optimizer.step()
        m, v = 0.5 * m + 0.5 * grad, 0.75 * v + 0.25 * grad**2
        expected = expected * (1 - 0.02) - 0.1 * torch.atan2(m / (1 - 0.5**k), (v / (1 - 0.75**k)).sqrt())
        assert torch.allclose(p.detach(), expected, atol=1e-6)


def test_adam_atan2_ignores_the_scale_of_the_gradient() -> None:
    ends = []
    for scale in (1.0, 1e6):
        p = nn.Parameter(torch.ones(3))
        optimizer = AdamAtan2([p], lr=0.1)
        for k in range(5):
            p.grad = scale * torch.tensor([1.0, -2.0, 0.5]) * (k + 1)
            optimizer.step()
        ends.append(p.detach().clone())
    assert torch.allclose(*ends, rtol=1e-5)


@pytest.mark.parametrize("kind", ["adamw", "adam-atan2"])
def test_an_optimizer_goes_on_exactly_from_its_state(kind: str) -> None:
    def run(split: bool) -> torch.Tensor:
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        optimizer = make_optimizer(OptimizerRecipe(kind=kind), model)  # type: ignore[arg-type]
        for k in range(6):
            if split and k == 3:
                state = optimizer.state_dict()
                optimizer = make_optimizer(OptimizerRecipe(kind=kind), model)  # type: ignore[arg-type]
                optimizer.load_state_dict(state)
            model(torch.full((1, 3), float(k))).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return model.weight.detach()

    assert torch.equal(run(False), run(True))


def test_the_averaged_weights_are_torchs() -> None:
    model = nn.Linear(2, 1, bias=False)
    ema = make_ema(model, 0.9)
    assert type(ema) is AveragedModel
    first = model.weight.detach().clone()
    ema.update_parameters(model)
    with torch.no_grad():
        model.weight += 1
    ema.update_parameters(model)
    assert torch.allclose(ema.module.weight, 0.9 * first + 0.1 * (first + 1))


def test_the_learning_rate_by_hand() -> None:
    cosine = ScheduleRecipe(steps=100, warmup=10, kind="cosine", final=0.1)
    assert lr_factor(cosine, 0, 0.0) == pytest.approx(0.1)
    assert lr_factor(cosine, 49, 0.5) == pytest.approx(0.55)
    assert lr_factor(cosine, 99, 1.0) == pytest.approx(0.1)
    constant = ScheduleRecipe(steps=100, warmup=0, kind="constant", decay_from=0.6, final=0.0)
    assert [lr_factor(constant, 50, done) for done in (0.0, 0.6, 0.8, 1.0)] == pytest.approx([1, 1, 0.5, 0])


def test_the_scheduler_is_torchs_and_asks_for_progress() -> None:
    optimizer = make_optimizer(OptimizerRecipe(lr=2.0), nn.Linear(1, 1))
    recipe = ScheduleRecipe(steps=10, warmup=0, kind="cosine", final=0.0)
    scheduler = make_scheduler(recipe, optimizer, lambda step: step / 10)
    rates = []
    for _ in range(10):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    assert isinstance(scheduler, torch.optim.lr_scheduler.LambdaLR)
    assert rates == pytest.approx([1 + math.cos(math.pi * k / 10) for k in range(10)])
