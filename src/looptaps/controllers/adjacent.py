"""The four rules that compare two adjacent updates: GD, P/S-Sign, Momentum, RMSProp.

Each `update` reads like its algorithm box in the paper. k counts updates; the first score there is belongs to k = 1.
"""

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
from looptaps.controllers.energies import Energies, adjacent_energies, balance, measured, relax


class AdjacentState(NamedTuple):
    """Memory of GD and Sign: the count, the last update and its mean square."""

    k: Tensor
    energy: Tensor
    previous: Tensor


class ScoredState(NamedTuple):
    """Memory of Momentum (`score` is mu) and RMSProp (`score` is r): one more scalar."""

    k: Tensor
    energy: Tensor
    score: Tensor
    previous: Tensor


def _energies(delta: Tensor, state: AdjacentState | ScoredState, scope: Scope) -> Energies:
    return adjacent_energies(delta, state.previous, state.energy, state.k > 0, scope)


@dataclass(frozen=True, kw_only=True)
class TapsGD:
    """eta = clip(1 + rho B): the balance of the last two updates, as it is.

    >>> from looptaps.controllers import TapsGD
    >>> import torch
    >>> rule, step = TapsGD(), torch.ones(1, 4, 8)
    >>> memory = rule.init(step)
    >>> for _ in range(3):
    ...     decision, memory = rule.update(step, memory)
    >>> decision.eta  # equal updates: all progress
    tensor([1.2000])

    Reference: algorithm "TAPS (GD)".
    """

    gamma: float = 1.5
    rho: float = 0.275
    eta_min: float = 0.8
    eta_max: float = 1.2
    warmup: int = 2
    eps: float = 1e-12

    def __post_init__(self) -> None:
        check_hyperparameters(self)

    def init(self, like: Tensor, scope: Scope = SAMPLE) -> AdjacentState:
        k, energy = fresh_scalars(like, scope, 1)
        return AdjacentState(k, energy, fresh_latent(like))

    def update(
        self, delta: Tensor, state: AdjacentState, scope: Scope = SAMPLE
    ) -> tuple[Decision, AdjacentState]:
        delta = widen(delta, state, AdjacentState, scope)
        energies = _energies(delta, state, scope)
        P, S, finite = measured(energies, self.gamma)
        B = balance(P, S, self.gamma, self.eps)
        eta = relax(B, state.k, rho=self.rho, eta_min=self.eta_min, eta_max=self.eta_max, warmup=self.warmup)
        memory = AdjacentState(state.k + 1, energies.energy, delta)
        return settle(Decision(eta, finite, P, S, B), memory)


@dataclass(frozen=True, kw_only=True)
class TapsSign:
    """eta = clip(1 + rho sign(P - gamma S)): only which of the two prevails.

    Reference: algorithm "TAPS (P/S-Sign)".
    """

    gamma: float = 1.5
    rho: float = 0.275
    eta_min: float = 0.8
    eta_max: float = 1.2
    warmup: int = 2

    def __post_init__(self) -> None:
        check_hyperparameters(self)

    def init(self, like: Tensor, scope: Scope = SAMPLE) -> AdjacentState:
        k, energy = fresh_scalars(like, scope, 1)
        return AdjacentState(k, energy, fresh_latent(like))

    def update(
        self, delta: Tensor, state: AdjacentState, scope: Scope = SAMPLE
    ) -> tuple[Decision, AdjacentState]:
        delta = widen(delta, state, AdjacentState, scope)
        energies = _energies(delta, state, scope)
        P, S, finite = measured(energies, self.gamma)
        sigma = torch.sign(P - self.gamma * S)
        eta = relax(
            sigma, state.k, rho=self.rho, eta_min=self.eta_min, eta_max=self.eta_max, warmup=self.warmup
        )
        memory = AdjacentState(state.k + 1, energies.energy, delta)
        return settle(Decision(eta, finite, P, S, sigma), memory)


@dataclass(frozen=True, kw_only=True)
class TapsMomentum:
    """eta = clip(1 + rho mu), mu a moving average of the balance.

    mu accumulates from the first score (k = 1), warmup or not, as the algorithm box says.

    Reference: algorithm "TAPS (Momentum)".
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

    def init(self, like: Tensor, scope: Scope = SAMPLE) -> ScoredState:
        k, energy, score = fresh_scalars(like, scope, 2)
        return ScoredState(k, energy, score, fresh_latent(like))

    def update(
        self, delta: Tensor, state: ScoredState, scope: Scope = SAMPLE
    ) -> tuple[Decision, ScoredState]:
        delta = widen(delta, state, ScoredState, scope)
        energies = _energies(delta, state, scope)
        P, S, finite = measured(energies, self.gamma)
        B = balance(P, S, self.gamma, self.eps)
        mu = self.beta * state.score + (1 - self.beta) * B
        eta = relax(
            mu, state.k, rho=self.rho, eta_min=self.eta_min, eta_max=self.eta_max, warmup=self.warmup
        )
        memory = ScoredState(state.k + 1, energies.energy, mu, delta)
        return settle(Decision(eta, finite, P, S, mu), memory)


@dataclass(frozen=True, kw_only=True)
class TapsRMSProp:
    """eta = clip(1 + rho B / sqrt(r-hat + eps)), r a moving average of B^2.

    r accumulates from the first score (k = 1), so that the bias correction is the box's 1 - beta^k.

    Reference: algorithm "TAPS (RMSProp)".
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

    def init(self, like: Tensor, scope: Scope = SAMPLE) -> ScoredState:
        k, energy, score = fresh_scalars(like, scope, 2)
        return ScoredState(k, energy, score, fresh_latent(like))

    def update(
        self, delta: Tensor, state: ScoredState, scope: Scope = SAMPLE
    ) -> tuple[Decision, ScoredState]:
        delta = widen(delta, state, ScoredState, scope)
        energies = _energies(delta, state, scope)
        P, S, finite = measured(energies, self.gamma)
        B = balance(P, S, self.gamma, self.eps)
        r = self.beta * state.score + (1 - self.beta) * B**2
        # At k = 0 there is no score, and 1 - beta^0 = 0: any other divisor leaves B / ... = 0.
        wide = torch.float32 if delta.device.type == "mps" else torch.float64
        seen = 1 - self.beta ** state.k.clamp(min=1).to(wide)
        score = B / torch.sqrt(r / seen.to(r.dtype) + self.eps)
        eta = relax(
            score, state.k, rho=self.rho, eta_min=self.eta_min, eta_max=self.eta_max, warmup=self.warmup
        )
        memory = ScoredState(state.k + 1, energies.energy, r, delta)
        return settle(Decision(eta, finite, P, S, score), memory)
