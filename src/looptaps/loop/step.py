"""One controlled step: the only place where an eta is applied to a state."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from looptaps import state as trees
from looptaps.controllers.base import (
    SAMPLE,
    Decision,
    Scope,
    check_controller_type,
    check_scope,
    check_state,
    expand,
    resolve_gain,
    wide_dtype,
)
from looptaps.errors import InvalidShape, InvalidType, InvalidUse


class Memory(NamedTuple):
    """What a loop keeps for its controller: the rule's own memory, and eta as it is held between refreshes."""

    rule: Any
    eta: Tensor


def begin_memory(rule: Any, x: Tensor, scope: Scope = SAMPLE) -> Memory:
    """A fresh memory: nothing seen, eta = 1."""
    memory = rule.init(x, scope)
    return Memory(memory, torch.ones(scope.shape(x), dtype=wide_dtype(x.dtype), device=x.device))


def difference(proposal: Tensor, x: Tensor) -> Tensor:
    """Delta = f(x) - x in the dtype of statistics, after checking that f kept shape and dtype."""
    if not isinstance(proposal, Tensor):
        raise InvalidType(f"A core must return a tensor, but returned {type(proposal).__name__}. Return f(x) alone.")
    if proposal.shape != x.shape:
        raise InvalidShape(f"A core must keep the shape of its state: {tuple(x.shape)} became "
                           f"{tuple(proposal.shape)}. Return f(x) for every sample and position of x.")
    check_state(x)
    if proposal.dtype != x.dtype:
        raise InvalidType(f"A core must keep the dtype of its state: {x.dtype} became {proposal.dtype}. "
                          "Cast inside the core, so that the loop's dtype stays one.")
    wide = wide_dtype(x.dtype)
    return proposal.to(wide) - x.to(wide)


def scaled_step(proposal: Tensor, delta: Tensor, eta: Tensor) -> Tensor:
    """x + eta * Delta, written as f(x) + (eta - 1) * Delta so that eta = 1 gives f(x) itself, bit for bit.

    `x + 1 * (f(x) - x)` would differ from f(x) in a fifth of the elements. Computed in the dtype of statistics, cast
    once. Where eta == 1, f(x) is taken as it is (inf + 0 * inf would be NaN). Where eta carries a gradient, which
    that choice would cut, only the elements of Delta that are not finite are left out.
    """
    scale = expand(eta, delta)
    if eta.requires_grad:
        delta = torch.where((scale != 1) | delta.isfinite(), delta, 0)
    moved = torch.addcmul(proposal.to(delta.dtype), scale - 1, delta).to(proposal.dtype)
    return moved if eta.requires_grad else torch.where(scale == 1, proposal, moved)


class Step(NamedTuple):
    """The next state, the memory after it, and what was decided (None between refreshes)."""

    x: Tensor
    memory: Memory
    decision: Decision | None
    delta: Tensor


def controlled_step(
    rule: Any,
    x: Tensor,
    proposal: Tensor,
    memory: Memory,
    scope: Scope = SAMPLE,
    *,
    refresh: bool = True,
    grad_through_eta: bool = False,
    keep_graph: bool = False,
) -> Step:
    """x -> x + eta (f(x) - x), with eta from the rule, or held where `refresh` is False.

    Eta and memory are constants to autograd unless `grad_through_eta`; `keep_graph` lets progress and fluctuation
    keep the graph of this update, so that a penalty on them can train.
    """
    delta = difference(proposal, x)
    decision = None
    if refresh:
        seen = delta if grad_through_eta or keep_graph else delta.detach()
        decision, own = rule.update(seen, memory.rule, scope)
        memory = Memory(own, decision.eta)
        if not grad_through_eta:
            memory = trees.detach(memory)
            decision = decision._replace(eta=memory.eta)
    return Step(scaled_step(proposal, delta, memory.eta), memory, decision, delta)


class Stepper:
    """One line in anybody's loop: `x = step(x, core(x))`.

    >>> import looptaps as lt, torch
    >>> step = lt.Stepper(lt.TapsAdam())
    >>> x = torch.zeros(2, 3, 4)
    >>> for _ in range(4):
    ...     x = step(x, 0.5 * x + 1)
    >>> step.decision.eta
    tensor([1.0026, 1.0026])

    It holds its memory: make one per rollout, or call `reset()`. It cannot run under activation checkpointing, where
    every step is run twice; there use `iterate`, or `controlled_step` with the memory passed along.
    """

    def __init__(self, controller: Any, *, scope: Scope = SAMPLE, grad_through_eta: bool = False) -> None:
        check_controller_type("Stepper", controller)
        check_scope("Stepper", scope)
        self.rule = resolve_gain(controller, 1.0)
        self.scope = scope
        self.grad_through_eta = grad_through_eta
        self.reset()

    def reset(self) -> None:
        """Forget the trajectory: the next call is the first update of a new rollout."""
        self.memory: Memory | None = None
        self.decision: Decision | None = None

    def __call__(self, x: Tensor, proposal: Tensor) -> Tensor:
        if _recomputing():
            raise InvalidUse("Stepper cannot run under activation checkpointing: the recomputation would move its "
                             "memory on twice. Use lt.iterate, whose memory is passed along.")
        check_state(x)
        memory = self.memory if self.memory is not None else begin_memory(self.rule, x, self.scope)
        step = controlled_step(
            self.rule, x, proposal, memory, self.scope, grad_through_eta=self.grad_through_eta
        )
        self.memory, self.decision = step.memory, step.decision
        return step.x


def _recomputing() -> bool:
    # Inside a backward pass a forward can only be a recomputation.
    return torch._C._current_graph_task_id() != -1
