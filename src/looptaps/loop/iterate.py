"""`iterate`: the controlled loop over any plain core (the paper's unified algorithm)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint as recompute

from looptaps.controllers.base import SAMPLE, Decision, Scope, Token, all_finite, check_scope, check_state
from looptaps.errors import InvalidShape, InvalidType, InvalidUse, invalid
from looptaps.loop.control import Control, as_control
from looptaps.loop.step import Memory, begin_memory, controlled_step, difference, scaled_step
from looptaps.loop.trace import Trace, stack_trace


class Rollout(NamedTuple):
    """The last state, the memory to go on with, and the trace if one was asked for."""

    x: Tensor
    memory: Memory | None
    trace: Trace | None


def iterate(
    core: Callable[[Tensor], Tensor],
    x: Tensor,
    controller: Any = None,
    steps: int | None = None,
    *,
    etas: Tensor | None = None,
    memory: Memory | None = None,
    mask: Tensor | None = None,
    scope: Scope | None = None,
    trace: bool = False,
    checkpoint: bool = False,
) -> Rollout:
    """Run `x <- x + eta (core(x) - x)` for `steps` updates.

    Args:
        core: the learned update f; keeps shape and dtype.
        x: the initial state (B, ..., D).
        controller: a controller, or a `Control` around one (site must be `inner`).
        steps: how many updates; with `etas`, its length is used.
        etas: instead of a controller, the scales themselves, (K,) or (K, B); gradients flow through them.
        memory: go on where another rollout ended.
        mask: (B, N), False at padding. Not with `etas`.
        scope: what one eta covers, instead of the one that `Control.scope` names. Not with `etas`.
        trace: record eta, progress, fluctuation and balance of every update.
        checkpoint: recompute each core call in the backward pass instead of storing its activations.

    >>> import looptaps as lt, torch
    >>> run = lt.iterate(lambda x: 0.5 * x, torch.ones(1, 2, 4), lt.TapsGD(), 4, trace=True)
    >>> run.trace.eta.squeeze(1)
    tensor([1.0000, 1.0000, 1.1964, 1.1570])
    """
    check_state(x)
    if not callable(core):
        raise InvalidType(f"iterate.core must be callable, state -> f(state), but is {type(core).__name__}. "
                          "Pass a module or a function.")
    if memory is not None and not isinstance(memory, Memory):
        raise InvalidType(f"iterate.memory must be the memory that another rollout returned, but is "
                          f"{type(memory).__name__}. Leave it out to start afresh.")
    if (controller is None) == (etas is None):
        raise InvalidUse("iterate needs either a controller or etas, and not both. Leave one out.")
    if etas is not None:
        if mask is not None or scope is not None:
            raise InvalidUse("iterate with etas measures nothing, so it takes no mask and no scope. Leave them out, or "
                             "use lt.Schedule with a scope.")
        return _scheduled(core, x, etas, steps, memory, trace, checkpoint)
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise invalid("iterate", "steps", "a whole number >= 0", steps, "Say how many updates to run.")
    control = as_control(controller)
    if control.site != "inner":
        raise invalid("iterate", "control.site", "'inner'", control.site,
                      "A plain core has no second state to measure; outer control is for models with z_H and z_L.")
    if scope is not None and mask is not None:
        raise InvalidUse("iterate takes mask or scope, and not both: write scope=Sample(mask).")
    over = control.scope_over(mask) if scope is None else scope
    check_scope("iterate", over)
    if isinstance(over, Token) and mask is not None:
        raise InvalidUse("Token scope has one eta per position, so a mask changes nothing. Leave it out.")
    return _controlled(core, x, control, steps, memory, over, trace, checkpoint)


def _controlled(
    core: Callable[[Tensor], Tensor],
    x: Tensor,
    control: Control,
    steps: int,
    memory: Memory | None,
    scope: Scope,
    trace: bool,
    checkpoint: bool,
) -> Rollout:
    rule = control.rule()
    memory = begin_memory(rule, x, scope) if memory is None else memory
    etas: list[Tensor] = []
    decisions: list[Decision | None] = []
    held: list[Tensor] = []
    for k in range(steps):
        step = controlled_step(
            rule,
            x,
            _call(core, x, checkpoint),
            memory,
            scope,
            refresh=control.refreshes(k),
            grad_through_eta=control.grad_through_eta,
            keep_graph=trace and torch.is_grad_enabled(),
        )
        x, memory = step.x, step.memory
        if trace:
            etas.append(memory.eta)
            decisions.append(step.decision)
            if step.decision is None:  # the rule did not look at this update
                held.append(all_finite(step.delta.detach(), scope))
    return Rollout(x, memory, stack_trace(etas, decisions, held) if etas else None)


def _scheduled(
    core: Callable[[Tensor], Tensor],
    x: Tensor,
    etas: Tensor,
    steps: int | None,
    memory: Memory | None,
    trace: bool,
    checkpoint: bool,
) -> Rollout:
    if memory is not None:
        raise InvalidUse("iterate with etas keeps no memory; leave `memory` out.")
    SAMPLE.check(x)
    if not isinstance(etas, Tensor):
        raise InvalidType(f"iterate.etas must be a tensor, but is {type(etas).__name__}. For plain numbers use "
                          "lt.Schedule(etas).")
    if not etas.is_floating_point() or etas.ndim not in (1, 2) or (etas.ndim == 2 and etas.shape[1] != x.shape[0]):
        raise InvalidShape(f"iterate.etas must be floating point of shape (K,) or (K, {x.shape[0]}), but is "
                           f"{etas.dtype} of shape {tuple(etas.shape)}. Give one number per step, or one per step and "
                           "sample.")
    if steps is not None and steps != etas.shape[0]:
        raise invalid("iterate", "steps", f"{etas.shape[0]}, the length of etas, or left out", steps,
                      "Cut etas to the horizon you want.")
    applied: list[Tensor] = []
    finite: list[Tensor] = []
    for eta in etas:
        proposal = _call(core, x, checkpoint)
        delta = difference(proposal, x)
        eta_B = eta.to(delta.dtype).expand(x.shape[0])
        x = scaled_step(proposal, delta, eta_B)
        if trace:
            applied.append(eta_B)
            finite.append(all_finite(delta.detach(), SAMPLE))
    return Rollout(x, None, stack_trace(applied, [None] * len(applied), finite) if applied else None)


def _call(core: Callable[[Tensor], Tensor], x: Tensor, checkpoint: bool) -> Tensor:
    if not checkpoint:
        return core(x)
    proposal: Tensor = recompute(core, x, use_reentrant=False)
    return proposal


__all__ = ["Rollout", "iterate"]
