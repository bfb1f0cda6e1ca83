"""TAPS (Adam): progress and fluctuation from a moving mean of the updates and of their energy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from looptaps.controllers.base import (
    SAMPLE,
    Decision,
    Scope,
    check_hyperparameters,
    fresh_latent,
    fresh_scalars,
    settle,
    widen,
)
from looptaps.controllers.energies import balance, measured, moment_energies, moment_weights, relax


class MomentState(NamedTuple):
    """The count, the energy mean v, and the update mean M."""

    k: Tensor
    energy_mean: Tensor
    mean: Tensor


@dataclass(frozen=True, kw_only=True)
class TapsAdam:
    """eta = clip(1 + rho B) with P = |M|^2 / nd and S = v - P, M and v normalised moving averages.

    One update is all progress, so with `warmup=0` the first step is already 1 + rho (clipped).

    >>> from looptaps.controllers import TapsAdam
    >>> import torch
    >>> rule, step = TapsAdam(), torch.ones(1, 4, 8)
    >>> memory = rule.init(step)
    >>> for sign in (1, -1, 1, -1):
    ...     decision, memory = rule.update(sign * step, memory)
    >>> decision.eta < 1  # updates that alternate: all fluctuation
    tensor([True])

    Reference: algorithm "TAPS (Adam)" and the method section.
    """

    gamma: float = 1.5
    rho: float = 0.275
    beta: float = 0.8
    eta_min: float = 0.8
    eta_max: float = 1.2
    warmup: int = 2
    eps: float = 1e-12

    def __post_init__(self) -> None:
        check_hyperparameters(self)

    def init(self, like: Tensor, scope: Scope = SAMPLE) -> MomentState:
        k, energy_mean = fresh_scalars(like, scope, 1)
        return MomentState(k, energy_mean, fresh_latent(like))

    def update(
        self, delta: Tensor, state: MomentState, scope: Scope = SAMPLE
    ) -> tuple[Decision, MomentState]:
        delta = widen(delta, state, MomentState, scope)
        weights = moment_weights(self.beta, state.k, delta.dtype)
        energies, mean = moment_energies(delta, state.mean, state.energy_mean, weights, scope)
        P, S, finite = measured(energies, self.gamma)
        B = balance(P, S, self.gamma, self.eps)
        eta = relax(B, state.k, rho=self.rho, eta_min=self.eta_min, eta_max=self.eta_max, warmup=self.warmup)
        # Weight 0 does not hide a NaN, so this latent starts afresh itself.
        memory = MomentState(state.k + 1, energies.energy, torch.where(scope.expand(finite, mean), mean, 0))
        return settle(Decision(eta, finite, P, S, B), memory)
