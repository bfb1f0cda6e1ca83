"""P-hat and S-hat of the six rules, their balance, and the step it leads to.

Every rule needs two inner products per step. The *algebraic* route used here expands the squared norms; beside it
stands the *direct* route, as written in the paper, which the tests hold it against. Both are clamped at 0, because
`v - P` and the expanded form can round below it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from looptaps.controllers.base import Scope


class Energies(NamedTuple):
    """P-hat, S-hat, and the mean square that the next step needs again."""

    progress: Tensor
    fluctuation: Tensor
    energy: Tensor


def adjacent_energies(
    delta: Tensor, previous: Tensor, previous_energy: Tensor, seen: Tensor, scope: Scope
) -> Energies:
    """P = |D' + D|^2 / 4nd and S = |D - D'|^2 / 4nd, from |D|^2, |D'|^2 and <D, D'>.

    `seen` is False where there is no previous update: both are 0 there, and so is the balance.
    """
    nd = scope.count(delta)
    energy = scope.inner(delta, delta) / nd
    cross = scope.inner(delta, previous) / nd
    both = energy + previous_energy
    progress = torch.where(seen, (both + 2 * cross) / 4, 0).clamp(min=0)
    fluctuation = torch.where(seen, (both - 2 * cross) / 4, 0).clamp(min=0)
    return Energies(progress, fluctuation, energy)


def adjacent_energies_direct(delta: Tensor, previous: Tensor, scope: Scope) -> Energies:
    """The same by forming the sum and the difference (equation of the adjacent-update scores)."""
    nd = scope.count(delta)
    total, difference = previous + delta, delta - previous
    return Energies(
        scope.inner(total, total) / (4 * nd),
        scope.inner(difference, difference) / (4 * nd),
        scope.inner(delta, delta) / nd,
    )


def moment_weights(beta: float, k: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The two coefficients of the normalised moving average at count k; they sum to 1 (0^0 = 1)."""
    wide = torch.float32 if k.device.type == "mps" else torch.float64
    power = beta ** (k + 1).to(wide)
    return ((beta - power) / (1 - power)).to(dtype), ((1 - beta) / (1 - power)).to(dtype)


def moment_energies(
    delta: Tensor, mean: Tensor, energy_mean: Tensor, weights: tuple[Tensor, Tensor], scope: Scope
) -> tuple[Energies, Tensor]:
    """P = |M|^2 / nd and S = v - P, with M and v moved on by one update; also returns M."""
    old, new = weights
    nd = scope.count(delta)
    mean = scope.expand(old, delta) * mean + scope.expand(new, delta) * delta
    energy_mean = old * energy_mean + new * (scope.inner(delta, delta) / nd)
    progress = scope.inner(mean, mean) / nd
    return Energies(progress, (energy_mean - progress).clamp(min=0), energy_mean), mean


def moment_energies_direct(
    delta: Tensor, mean: Tensor, fluctuation: Tensor, weights: tuple[Tensor, Tensor], scope: Scope
) -> tuple[Energies, Tensor]:
    """The same with S moved on by itself: S' = old * (S + new * |Delta - M|^2 / nd), which never cancels."""
    old, new = weights
    nd = scope.count(delta)
    away = delta - mean
    fluctuation = old * (fluctuation + new * scope.inner(away, away) / nd)
    mean = scope.expand(old, delta) * mean + scope.expand(new, delta) * delta
    progress = scope.inner(mean, mean) / nd
    return Energies(progress, fluctuation, progress + fluctuation), mean


def curvature_energies(
    delta: Tensor,
    previous: Tensor,
    previous_square: Tensor,
    scale: Tensor,
    seen: Tensor,
    eps: float,
    scope: Scope,
) -> Energies:
    """P = |D|^2 / nd and S = kappa^2 P, kappa = |<s, D - D'>| / (|s|^2 + eps) with s = scale * D'.

    `scale` is gain * eta of the last step. <s, D - D'> = scale * (<D, D'> - |D'|^2). `previous_square` and the
    returned energy are sums of squares, not means: the paper adds eps to the sum.
    """
    largest = torch.finfo(delta.dtype).max
    square = scope.inner(delta, delta)
    # A product with an infinite factor has no gradient, not even where it is multiplied by 0: squares near the
    # largest float count as overflown, and kappa stays below the root of it, so that the products below are finite.
    known = square < largest / 16
    square = torch.where(known, square, torch.inf)
    known = known & seen
    bend = torch.where(known, scope.inner(delta, previous) - previous_square, 0)
    kappa = (scale * bend).abs() / (scale**2 * previous_square + eps)
    progress = torch.where(known, square / scope.count(delta), 0)
    return Energies(progress, kappa.clamp(max=largest**0.5 / 2) ** 2 * progress, square)


def curvature_energies_direct(
    delta: Tensor, previous: Tensor, displacement: Tensor, eps: float, scope: Scope
) -> Energies:
    """The same by forming the difference and the displacement, as in the algorithm box."""
    square = scope.inner(delta, delta)
    bend = scope.inner(displacement, delta - previous)
    kappa = bend.abs() / (scope.inner(displacement, displacement) + eps)
    progress = square / scope.count(delta)
    return Energies(progress, kappa**2 * progress, square)


def measured(energies: Energies, gamma: float) -> tuple[Tensor, Tensor, Tensor]:
    """P and S, and where they are finite, their energy and weighed sum too; both are 0 elsewhere.

    So nothing of a row that overflowed goes on, neither into a value nor, as NaN, into a gradient.
    """
    P, S = energies.progress, energies.fluctuation
    finite = energies.energy.isfinite() & (P + gamma * S).isfinite()
    return torch.where(finite, P, 0), torch.where(finite, S, 0), finite


def balance(progress: Tensor, fluctuation: Tensor, gamma: float, eps: float) -> Tensor:
    """B = (P - gamma S) / (P + gamma S + eps), in [-1, 1]."""
    weighed = gamma * fluctuation
    return (progress - weighed) / (progress + weighed + eps)


def relax(
    score: Tensor, k: Tensor, *, rho: float, eta_min: float, eta_max: float, warmup: int
) -> Tensor:
    """eta = clip(1 + rho * score, eta_min, eta_max), held at 1 while k < warmup."""
    eta = (1 + rho * score).clamp(eta_min, eta_max)
    return torch.where(k < warmup, 1, eta)
