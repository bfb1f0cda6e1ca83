"""How the terminal loss feels each scale: dL/d eta_k = <G_{k+1}, Delta_k> (proposition "exact sensitivity").

The states of a rollout are computed once without a graph; then one backward sweep carries G_j = D_j^* G_{j+1}, where
D_j = I + eta_j D Delta(X_j), recomputing each core call. Memory is one state per step, whatever the core holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from looptaps.controllers.base import SAMPLE, check_state, expand, wide_dtype
from looptaps.errors import InvalidShape, InvalidType, InvalidUse
from looptaps.loop.step import difference, scaled_step


class Sensitivities(NamedTuple):
    """Along one rollout of K steps over B samples.

    `gradient` (K, B) is dL_b/d eta_{k,b}; the paper's advantage is A = -gradient. `deltas` (K, B, ...) are the updates
    Delta_k, `adjoints` (K, B, ...) the G_{k+1} beside them, `states` (K + 1, B, ...) the trajectory, `loss` (B,).
    """

    gradient: Tensor
    deltas: Tensor
    adjoints: Tensor
    states: Tensor
    loss: Tensor

    @property
    def advantage(self) -> Tensor:
        """A_k = -dL/d eta_k: positive where a larger step would have lowered the loss."""
        return -self.gradient


def sensitivities(
    core: Callable[[Tensor], Tensor], x: Tensor, loss: Callable[[Tensor], Tensor], etas: Tensor
) -> Sensitivities:
    """dL/d eta_k for every step and sample, in one backward sweep.

    Args:
        core: the update f, independent between samples.
        x: the initial state (B, ..., D).
        loss: terminal state -> one loss per sample (B,).
        etas: the schedule, (K,) or (K, B).

    >>> import torch
    >>> from looptaps.theory import sensitivities
    >>> found = sensitivities(lambda x: 0.5 * x, torch.ones(1, 1), lambda x: 0.5 * x.square().sum(-1), torch.ones(2))
    >>> found.gradient  # x_2 = (1 - eta_0 / 2) (1 - eta_1 / 2), so dL/d eta = 1/4 * (-1/4) at the unit step
    tensor([[-0.0625],
            [-0.0625]])
    """
    for name, given in (("core", core), ("loss", loss)):
        if not callable(given):
            raise InvalidType(f"sensitivities: {name} must be callable on a state, but is {type(given).__name__}. Pass "
                              "a module or a function.")
    check_state(x)
    SAMPLE.check(x)
    if not isinstance(etas, Tensor):
        raise InvalidType(f"sensitivities: etas must be a tensor, but are {type(etas).__name__}. "
                          "Use torch.tensor(etas).")
    shaped = etas.ndim in (1, 2) and len(etas) > 0 and etas.shape[1:] in ((), (x.shape[0],))
    if not etas.is_floating_point() or not shaped:
        raise InvalidShape(f"sensitivities: etas must be floating point, (K,) or (K, {x.shape[0]}), but are "
                           f"{etas.dtype} {tuple(etas.shape)}. Give one number per step, or one per step and sample.")
    if not etas.isfinite().all():
        raise InvalidType("sensitivities: etas must be finite; a trace holds NaN after a sample has stopped. Cut the "
                          "schedule where it ends.")
    scales = etas.detach().to(wide_dtype(x.dtype)).reshape(len(etas), -1).expand(-1, x.shape[0])
    states, deltas = [x.detach()], []
    with torch.no_grad():
        for eta in scales:
            proposal = core(states[-1])
            deltas.append(difference(proposal, states[-1]))
            states.append(scaled_step(proposal, deltas[-1], eta))

    with torch.enable_grad():
        last = states[-1].requires_grad_()
        losses = loss(last)
        if not isinstance(losses, Tensor) or losses.shape != x.shape[:1]:
            found = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
            raise InvalidShape(f"sensitivities: the loss must give one number per sample, ({x.shape[0]},), but gave "
                               f"{found}. Reduce over all axes but the first.")
        if not losses.requires_grad:
            raise InvalidUse("sensitivities: the loss does not depend on the terminal state, so no scale matters to "
                             "it. Compute it from its argument, without detach().")
        (adjoint,) = torch.autograd.grad(losses.sum(), last)
    adjoints = [adjoint]
    for k in range(len(scales) - 1, 0, -1):
        with torch.enable_grad():
            state = states[k].detach().requires_grad_()
            update = core(state) - state
            scaled = (expand(scales[k], adjoint) * adjoint).to(update.dtype)
            (pulled,) = torch.autograd.grad(update, state, scaled)
        adjoint = adjoint + pulled  # D_k^* G = G + eta_k (D Delta)^* G
        adjoints.append(adjoint)
    G, D = torch.stack(adjoints[::-1]), torch.stack(deltas)
    gradient = (G.to(D.dtype) * D).flatten(2).sum(-1)
    return Sensitivities(gradient, D, G, torch.stack([s.detach() for s in states]), losses.detach())
