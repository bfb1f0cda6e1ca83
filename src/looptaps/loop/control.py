"""`Control`: where, how often and over what a controller acts."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, get_args

from torch import Tensor

from looptaps.controllers.base import Sample, Scope, Token, check_controller_type, resolve_gain
from looptaps.errors import InvalidType, invalid, unknown
from looptaps.specs import spec, spec_text

Site = Literal["inner", "outer"]
OuterAt = Literal["cycle", "loop"]
ScopeName = Literal["sample", "sequence", "token"]
MemorySpan = Literal["rollout", "loop", "cycle"]


@dataclass(frozen=True, kw_only=True)
class _ControlFields:
    site: Site = "inner"
    outer_at: OuterAt = "cycle"
    every: int = 1
    scope: ScopeName = "sample"
    memory: MemorySpan = "rollout"
    grad_through_eta: bool = False


@dataclass(frozen=True)
class Control(_ControlFields):
    """The policy around a controller.

    Args:
        controller: the rule that chooses eta.
        site: `inner` scales every z_L update; `outer` measures z_H and scales the z_L move of a cycle.
        outer_at: where outer control is refreshed: at every `cycle` or once per outer `loop`.
        every: the refresh interval q. In between eta is held and the controller sees nothing.
        scope: what one eta covers: a `sample` (in language models also called `sequence`) or a `token`.
        memory: when a sample's memory starts afresh: never within a `rollout`, at each outer `loop`, or `cycle`.
        grad_through_eta: let gradients flow through eta and the memory; off, they are constants.

    >>> from looptaps.controllers import TapsGD
    >>> control = Control(TapsGD(rho=0.2), every=2)
    >>> Control.from_dict(control.to_dict()) == control
    True
    """

    controller: Any

    def __post_init__(self) -> None:
        check_controller_type("Control", self.controller)
        for field, choices in (("site", Site), ("outer_at", OuterAt), ("scope", ScopeName),
                               ("memory", MemorySpan)):
            value, allowed = getattr(self, field), get_args(choices)
            if value not in allowed:
                raise invalid("Control", field, f"one of {', '.join(allowed)}", value,
                              f"The default is {allowed[0]!r}.")
        if isinstance(self.every, bool) or not isinstance(self.every, int) or self.every < 1:
            raise invalid("Control", "every", "a whole number >= 1", self.every, "1 refreshes at each update.")
        if not isinstance(self.grad_through_eta, bool):
            raise invalid("Control", "grad_through_eta", "True or False", self.grad_through_eta,
                          "The default is False.")

    def scope_over(self, mask: Tensor | None = None) -> Scope:
        """The scope object; `mask` (B, N) leaves padding out of a per-sample eta."""
        return Token() if self.scope == "token" else Sample(mask)

    def resolved(self, gain: float = 1.0) -> Control:
        """This control with an open `gain` of its rule filled in: what a record stores."""
        return dataclasses.replace(self, controller=resolve_gain(self.controller, gain))

    def rule(self, gain: float = 1.0) -> Any:
        """The controller as the loop runs it.

        Between refreshes eta is held, so the displacement since the last look is `every` times as long: a rule with
        a `gain` gets it times `every`.
        """
        rule = resolve_gain(self.controller, gain)
        own = getattr(rule, "gain", None)
        if own is None or self.every == 1:
            return rule
        return dataclasses.replace(rule, gain=own * self.every)

    def refreshes(self, index: int) -> bool:
        """Whether the update at this index (within the outer loop; in `iterate`, the step) asks the controller."""
        return index % self.every == 0

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; `from_dict` gives the equal object back."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**values, "controller": spec_text(self.controller)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Control:
        if not isinstance(values, dict):
            raise InvalidType(f"Control.from_dict needs a dict as to_dict() gives it, but got {values!r}. For a "
                              "controller itself use Control(controller).")
        known = {field.name for field in dataclasses.fields(cls)}
        for key in values:
            if key not in known:
                raise unknown("field of Control", key, known)
        if not isinstance(values.get("controller"), str):
            raise InvalidType("A recorded Control needs 'controller' as a spec, such as 'taps-gd'.")
        return cls(**{**values, "controller": spec(values["controller"])})


def as_control(control: Any) -> Control:
    """A `Control` as it is, or one with all defaults around a bare controller."""
    return control if isinstance(control, Control) else Control(control)
