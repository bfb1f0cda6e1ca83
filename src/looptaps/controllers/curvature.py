"""TAPS (BB): fluctuation from a Barzilai-Borwein estimate of the curvature along the last displacement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

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
from looptaps.controllers.energies import balance, curvature_energies, measured, relax


class CurvatureState(NamedTuple):
    """The count, |Delta'|^2, the last eta, and the last update Delta'; s = gain * eta * Delta'."""

    k: Tensor
    square: Tensor
    eta: Tensor
    previous: Tensor


@dataclass(frozen=True, kw_only=True)
class TapsBB:
    """eta = clip(1 + rho B) with P = |Delta|^2 / nd, S = kappa^2 P, kappa = |<s, D>| / (|s|^2 + eps).

    s is the displacement X_k - X_{k-1} = gain * eta_{k-1} * Delta_{k-1}, D the change of the update. `gain` is the
    factor between eta * Delta and that displacement; left None, the owner of the loop fills it (1, or 1/K for the
    stages of a looped block), and whoever calls `update` by hand gets 1.

    Reference: algorithm "TAPS (BB)".
    """

    gamma: float = 1.5
    rho: float = 0.275
    eta_min: float = 0.8
    eta_max: float = 1.2
    warmup: int = 2
    eps: float = 1e-12
    gain: float | None = None

    def __post_init__(self) -> None:
        check_hyperparameters(self)

    def init(self, like: Tensor, scope: Scope = SAMPLE) -> CurvatureState:
        k, square, eta = fresh_scalars(like, scope, 2)
        return CurvatureState(k, square, eta, fresh_latent(like))

    def update(
        self, delta: Tensor, state: CurvatureState, scope: Scope = SAMPLE
    ) -> tuple[Decision, CurvatureState]:
        delta = widen(delta, state, CurvatureState, scope)
        scale = (1.0 if self.gain is None else self.gain) * state.eta
        energies = curvature_energies(
            delta, state.previous, state.square, scale, state.k > 0, self.eps, scope
        )
        P, S, finite = measured(energies, self.gamma)
        B = balance(P, S, self.gamma, self.eps)
        eta = relax(B, state.k, rho=self.rho, eta_min=self.eta_min, eta_max=self.eta_max, warmup=self.warmup)
        memory = CurvatureState(state.k + 1, energies.energy, eta, delta)
        return settle(Decision(eta, finite, P, S, B), memory)
