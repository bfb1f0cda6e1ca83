"""Progress and fluctuation: the oracle's, A-bar = P - S, and the observable ones, as exact identities.

Both are the same algebra: for weights w that sum to 1, the weighted mean of inner products is the inner product of
the weighted means plus the centred cross term.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from looptaps.controllers.base import number
from looptaps.errors import InvalidShape, InvalidType, InvalidValue, invalid


class Decomposition(NamedTuple):
    """A-bar = progress - fluctuation, each (B,)."""

    advantage: Tensor
    progress: Tensor
    fluctuation: Tensor


def ema_weights(beta: float, steps: int, *, dtype: torch.dtype = torch.float64) -> Tensor:
    """w_{k,j} = (1 - beta) beta^{k-j} / (1 - beta^{k+1}) for j = 0..k, k = steps - 1 (0^0 = 1).

    >>> ema_weights(0.5, 3)
    tensor([0.1429, 0.2857, 0.5714], dtype=torch.float64)
    """
    beta = number("ema_weights", "beta", beta, lambda v: 0 <= v < 1, "a number in [0, 1)", "The rules' default is 0.8.")
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise invalid("ema_weights", "steps", "a whole number >= 1", steps, "It is how many updates are weighed.")
    powers = beta ** torch.arange(steps - 1, -1, -1, dtype=dtype)
    return (1 - beta) * powers / (1 - beta**steps)


def decompose(deltas: Tensor, adjoints: Tensor, weights: Tensor) -> Decomposition:
    """The oracle's decomposition over a window (proposition "temporal decomposition").

    A-bar = sum_j w_j A_j, P = -<G-bar, Delta-bar>, S = sum_j w_j <G_{j+1} - G-bar, Delta_j - Delta-bar>;
    A-bar = P - S exactly, for any non-negative weights that sum to 1.

    Args:
        deltas, adjoints: (K, B, ...), as `sensitivities` returns them.
        weights: (K,).
    """
    w = _checked(weights, deltas)
    _tensor("adjoints", adjoints)
    if adjoints.shape != deltas.shape:
        raise InvalidShape(f"decompose: adjoints {tuple(adjoints.shape)} and deltas {tuple(deltas.shape)} differ. Pass "
                           "both as sensitivities() returned them.")
    D, G = deltas.flatten(2).to(w.dtype), adjoints.flatten(2).to(w.dtype)  # (K, B, n d)
    wide = w[:, None, None]
    mean_D, mean_G = (wide * D).sum(0), (wide * G).sum(0)
    advantage = -(wide * G * D).sum((0, 2))
    progress = -(mean_G * mean_D).sum(-1)
    fluctuation = (wide * (G - mean_G) * (D - mean_D)).sum((0, 2))
    return Decomposition(advantage, progress, fluctuation)


class Energies(NamedTuple):
    """The observable energies P-hat and S-hat over a window, each (B,)."""

    progress: Tensor
    fluctuation: Tensor


def observable_energies(deltas: Tensor, weights: Tensor) -> Energies:
    """P-hat = |M|^2 / nd and S-hat = sum_j w_j |Delta_j - M|^2 / nd with M = sum_j w_j Delta_j (the EMA lemma).

    With `ema_weights` these are what TAPS (Adam) tracks online; with weights (1/2, 1/2) over two updates they are the
    adjacent scores of the other rules.
    """
    w = _checked(weights, deltas)
    D = deltas.flatten(2).to(w.dtype)
    wide = w[:, None, None]
    mean = (wide * D).sum(0)
    nd = D.shape[-1]
    return Energies(mean.square().sum(-1) / nd, (wide * (D - mean).square()).sum((0, 2)) / nd)


def _tensor(name: str, value: Tensor) -> None:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        found = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise InvalidType(f"A decomposition needs {name} as a floating point tensor, but got {found}. Use "
                          "torch.tensor(values, dtype=torch.float64).")


def _checked(weights: Tensor, deltas: Tensor) -> Tensor:
    _tensor("deltas", deltas)
    _tensor("weights", weights)
    if deltas.ndim < 3 or weights.shape != deltas.shape[:1]:
        raise InvalidShape(f"Weights must be (K,) for deltas (K, B, ...), but are {tuple(weights.shape)} for "
                           f"{tuple(deltas.shape)}. Give one weight per update, such as ema_weights(beta, K).")
    if not ((weights >= 0).all() and abs(float(weights.sum()) - 1) <= 1e-6):
        raise InvalidValue(f"Weights must be non-negative and sum to 1, but sum to {float(weights.sum()):.8g}, the "
                           f"smallest being {float(weights.min()):.8g}. Divide them by their sum.")
    return weights.to(torch.promote_types(weights.dtype, deltas.dtype))
