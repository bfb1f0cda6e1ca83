"""What the recurrent language models share: a settable control, its trace, and one controlled step of the loop."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from looptaps.controllers.base import Scope
from looptaps.errors import InvalidUse
from looptaps.hf.attachment import Handle, check_control
from looptaps.hf.masks import recomputing, scope_for, trace_mask
from looptaps.hf.trace import EtaTrace
from looptaps.loop import Control
from looptaps.loop.step import Memory, begin_memory, controlled_step


class LoopRun:
    """The loop of one forward: a fresh memory, one `step` per update; without control a step is the update itself."""

    def __init__(self, control: Control | None, attention_mask: Any) -> None:
        self.control, self.attention_mask = control, attention_mask
        self.rule = None if control is None else control.rule()
        self.memory: Memory | None = None
        self.scope: Scope | None = None
        self.mask: Tensor | None = None
        self.etas: list[Tensor] = []

    def step(self, x: Tensor, proposal: Tensor) -> Tensor:
        """x + eta (proposal - x)."""
        proposal = proposal.to(x.device)
        control = self.control
        if control is None:
            return proposal
        if self.scope is None or self.memory is None:
            name = "token" if control.scope == "token" else "sequence"
            self.scope, self.mask = scope_for(name, self.attention_mask, x)
            self.memory = begin_memory(self.rule, x, self.scope)
        done = controlled_step(self.rule, x, proposal, self.memory, self.scope,
                               refresh=control.refreshes(len(self.etas)), grad_through_eta=control.grad_through_eta)
        self.memory = done.memory
        self.etas.append(done.memory.eta)
        return done.x

    def record(self, trace: EtaTrace) -> None:
        if self.etas and self.scope is not None and not recomputing():
            trace.record(self.etas, trace_mask(self.scope, self.mask))


class Controlled:
    """Mixed into a model with a loop of its own: `set_control`, `control`, `trace`. `config.taps` records the control.

    The control travels with the configuration, so that a saved model comes back with it.
    """

    config: Any

    def init_control(self) -> None:
        """To be called once by `__init__`, after the configuration is there."""
        taps = getattr(self.config, "taps", None)
        self._control: Control | None = None if taps is None else check_control(Control.from_dict(dict(taps)))
        self.trace = EtaTrace()

    @property
    def control(self) -> Control | None:
        """The control of the recurrent steps, or None for the model as it was released."""
        return self._control

    def set_control(self, control: Any) -> None:
        """Schedule the recurrent steps by a controller or `Control`; None gives the model as it was released."""
        if "_looptaps_handle" in self.__dict__:
            raise InvalidUse("This model is under an attached control, which set_control would lose. Detach that one "
                             "first (handle.detach()).")
        self._control = None if control is None else check_control(control).resolved(gain=1.0)
        self.config.taps = None if self._control is None else self._control.to_dict()
        self.trace.clear()


def attach_recurrent(model: Any, control: Control, scope: str) -> Handle:
    """`attach` for models that bring their own loop: their control is replaced, and restored on detach.

    `config.taps` stays, so that a model saved meanwhile is the one that `set_control` left.
    """
    looped: Any = next(module for module in model.modules() if isinstance(module, Controlled))
    handle = Handle(model, Control.from_dict({**control.to_dict(), "scope": scope}).resolved(gain=1.0), None)
    handle.replace(looped, "_control", handle.control)
    handle.replace(looped, "trace", handle.trace)
    for module in {id(part): part for part in (model, looped)}.values():
        handle.replace(module, "_looptaps_handle", handle)
    return handle


def no_grad_if(condition: bool) -> Any:
    """`torch.no_grad()` where the condition holds."""
    return torch.set_grad_enabled(torch.is_grad_enabled() and not condition)
