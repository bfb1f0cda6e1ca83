"""Anderson acceleration of the outer loop: the fixed-point peer that changes direction, where TAPS changes length.

Written per sample throughout: every least-squares problem is its own, none sees a neighbour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from looptaps.controllers.base import number
from looptaps.strategies.base import Status, Verdict, View
from looptaps.strategies.fixed_point import flat_states, with_states
from looptaps.strategies.rule import StoppingRule, check_whole, stop_where


class _History(NamedTuple):
    """The last m images and residuals (b, m, D), the residuals' products (b, m, m), and how many there were (b,)."""

    images: Tensor
    residuals: Tensor
    products: Tensor
    seen: Tensor


@dataclass(frozen=True)
class Anderson(StoppingRule):
    """Anderson acceleration of x = G(x), G being one outer loop and x all its states (z_L, and z_H if there is one).

        g_i = G(x_i) - x_i,     alpha = argmin |sum_i alpha_i g_i|^2 + lam T |alpha|^2  with  sum_i alpha_i = 1
        x_{k+1} = sum_i alpha_i (beta G(x_i) + (1 - beta) x_i)          over the last m of i,  T = mean_i |g_i|^2

    A sample is CONVERGED when |g_k| <= eps |G(x_k)|; the answer is that of G(x_k). In traces `signal` is this ratio.
    States are kept in float32 at least, whatever the model computes in; the first step is the plain one, and so is a
    step whose least squares have no finite solution. Within an outer loop the controller acts as always.

    Args:
        max_loops: outer loops at the latest.
        m: how many of the last loops are mixed; 1 is the plain loop. Memory is 2 m times that of the states.
        beta: how much of the images, as against the points, is taken.
        lam: regularisation, relative to the mean square of the residuals.
        eps: the relative residual at which a sample has converged.

    The outer loop is accelerated, and not each z_L update, because z_L's own map changes with z_H every few updates:
    a history across that change would mix residuals of different maps.

    >>> import looptaps as lt, torch
    >>> from looptaps.models import LoopedConfig, LoopedTransformer
    >>> model = LoopedTransformer(LoopedConfig(vocab_size=7, seq_len=16, hidden_size=32, num_heads=2)).eval()
    >>> batch = {"inputs": torch.randint(7, (3, 16))}
    >>> Anderson(max_loops=10).run(model, batch, lt.Standard()).loops.shape
    torch.Size([3])
    """

    max_loops: int
    m: int = 5
    beta: float = 1.0
    lam: float = 1e-4
    eps: float = 0.01

    def __post_init__(self) -> None:
        check_whole("Anderson", "max_loops", self.max_loops, 1, "Released TRM models use 16.")
        check_whole("Anderson", "m", self.m, 1, "The default is 5.")
        for field, accept, accepted, default in (
            ("beta", lambda v: 0 < v <= 1, "a number in (0, 1]", 1),
            ("lam", lambda v: v >= 0, "a finite number >= 0", 1e-4),
            ("eps", lambda v: v >= 0, "a finite number >= 0", 0.01),
        ):
            value = number("Anderson", field, getattr(self, field), accept, accepted, f"The default is {default}.")
            object.__setattr__(self, field, value)

    @property
    def limit(self) -> int:
        return self.max_loops

    def begin(self, carry: Any, inputs: Tensor) -> _History:
        x = flat_states(carry)
        stored = x.new_zeros(len(x), self.m, x.shape[1])
        products = _inner(stored[:, :, :1].unsqueeze(2), stored[:, :, :1].unsqueeze(1))
        count = torch.zeros(len(x), dtype=torch.int64, device=x.device)
        return _History(stored, stored.clone(), products, count)

    def look(self, view: View, state: _History) -> Verdict:
        x, image = flat_states(view.before), flat_states(view.carry)
        g = image - x
        size = _inner(image, image).clamp(min=torch.finfo(torch.float32).tiny)
        ratio = (_inner(g, g) / size).sqrt().to(x.dtype)
        codes = stop_where(ratio <= self.eps, Status.CONVERGED)
        history = _append(state, image, g, self.m)
        alpha, solved = _weights(history, self.lam)
        alpha = alpha.to(x.dtype).unsqueeze(-1)
        mixed = (alpha * (history.images - (1 - self.beta) * history.residuals)).sum(1)
        usable = solved & mixed.isfinite().all(1)
        # A plain step is taken from the carry itself, so that it is the plain loop bit for bit.
        moved = with_states(view.carry, torch.where(usable.unsqueeze(1), mixed, image))
        return Verdict(codes, history, ratio, moved)



def _inner(a: Tensor, b: Tensor) -> Tensor:
    """<a, b> over the last axis, accumulated wide (MPS has no float64), so that neighbours cannot change a sum."""
    return (a * b).sum(-1, dtype=torch.float32 if a.device.type == "mps" else torch.float64)


def _append(state: _History, image: Tensor, g: Tensor, m: int) -> _History:
    """The history with one more image and residual, in place of the oldest. Writes into the tensors it is given."""
    rows = torch.arange(len(image), device=image.device)
    slot = state.seen % m
    state.images[rows, slot] = image
    state.residuals[rows, slot] = g
    products = _inner(state.residuals, g.unsqueeze(1))
    state.products[rows, slot] = products
    state.products[rows, :, slot] = products
    return state._replace(seen=state.seen + 1)


def _weights(history: _History, lam: float) -> tuple[Tensor, Tensor]:
    """alpha (b, m), zero where nothing is stored yet, and whether there is one (b,)."""
    m = history.products.shape[-1]
    eye = torch.eye(m, dtype=history.products.dtype, device=history.products.device)
    there = torch.arange(m, device=history.seen.device) < history.seen.unsqueeze(1)
    diagonal = torch.where(there, history.products.diagonal(dim1=1, dim2=2), 0)
    scale = (diagonal.sum(1) / there.sum(1)).reshape(-1, 1, 1)
    gram = history.products / scale + lam * eye
    # Empty places are rows of the identity with nothing on the right: their weight is 0.
    gram = torch.where(there.unsqueeze(1) & there.unsqueeze(2), gram, eye)
    sane = gram.isfinite().flatten(1).all(1)
    gram = torch.where(sane.reshape(-1, 1, 1), gram, eye)
    # solve_ex reports a singular problem for its own row, where solve would raise for all.
    gamma, failed = torch.linalg.solve_ex(gram, there.to(gram.dtype))
    alpha = gamma / gamma.sum(1, keepdim=True)
    solved = sane & (failed == 0) & alpha.isfinite().all(1) & (history.seen > 1)
    return torch.where(solved.unsqueeze(1), alpha, 0), solved


__all__ = ["Anderson"]
