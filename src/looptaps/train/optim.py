"""Optimizers, learning-rate schedule and averaged weights, by torch's own classes wherever it has one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from looptaps.train.recipe import OptimizerRecipe, ScheduleRecipe


class AdamAtan2(torch.optim.Optimizer):
    """Adam whose step is lr * atan2(m, sqrt(v)): no epsilon, bounded steps, decoupled weight decay.

    Reference: Everett et al. 2024, "Scaling exponents across parameterizations and optimizers".
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.95),
        weight_decay: float = 0.1,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = torch.zeros(())
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
                state["step"] += 1
                k = float(state["step"])
                m = state["exp_avg"].lerp_(p.grad, 1 - beta1)
                v = state["exp_avg_sq"].lerp_(p.grad.square(), 1 - beta2)
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(torch.atan2(m / (1 - beta1**k), (v / (1 - beta2**k)).sqrt()), alpha=-group["lr"])
        return loss


def make_optimizer(recipe: OptimizerRecipe, model: nn.Module) -> torch.optim.Optimizer:
    """The recipe's optimizer over all parameters."""
    options: dict[str, Any] = {"lr": recipe.lr, "betas": recipe.betas, "weight_decay": recipe.weight_decay}
    if recipe.kind == "adam-atan2":
        return AdamAtan2(model.parameters(), **options)
    return torch.optim.AdamW(model.parameters(), fused=True, **options)


def lr_factor(recipe: ScheduleRecipe, step: int, progress: float) -> float:
    """The share of the full learning rate at a step, `progress` being the part (0..1) of the run that is done.

    Linear warmup; then `cosine` from 1 to `final`, or `constant` until `decay_from`, from where it goes linearly to
    `final`.
    """
    warmup = min(1.0, (step + 1) / recipe.warmup) if recipe.warmup else 1.0
    progress = min(max(progress, 0.0), 1.0)
    if recipe.kind == "cosine":
        done = 0.5 * (1 - math.cos(math.pi * progress))
    else:
        done = max(0.0, progress - recipe.decay_from) / max(1 - recipe.decay_from, 1e-9)
    return warmup * (1 - (1 - recipe.final) * done)


def make_scheduler(
    recipe: ScheduleRecipe, optimizer: torch.optim.Optimizer, progress: Callable[[int], float]
) -> torch.optim.lr_scheduler.LambdaLR:
    """torch's LambdaLR over `lr_factor`; `progress(step)` is asked once per step."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: lr_factor(recipe, step, progress(step)))


def make_ema(model: nn.Module, decay: float) -> AveragedModel:
    """torch's averaged model: ema <- decay * ema + (1 - decay) * weights, beginning with the first weights."""
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))  # type: ignore[no-untyped-call]
