"""Schedules that do not look at the trajectory: the baselines of every comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from looptaps.controllers.base import SAMPLE, Decision, Scope, all_finite, fresh_scalars, number, settle, widen
from looptaps.errors import invalid


class CountState(NamedTuple):
    """Fixed schedules remember only how many updates they have seen."""

    k: Tensor


def _decide(eta: Tensor, delta: Tensor, state: CountState, scope: Scope) -> tuple[Decision, CountState]:
    return settle(Decision(eta, all_finite(delta, scope), None, None, None), CountState(state.k + 1))


@dataclass(frozen=True, kw_only=True)
class Standard:
    """eta = 1: the unmodified loop, bit for bit.

    Reference: algorithm "Standard and constant relaxation factors".
    """

    def init(self, like: Tensor, scope: Scope = SAMPLE) -> CountState:
        return CountState(*fresh_scalars(like, scope, 0))

    def update(self, delta: Tensor, state: CountState, scope: Scope = SAMPLE) -> tuple[Decision, CountState]:
        delta = widen(delta, state, CountState, scope)
        return _decide(torch.ones_like(state.k, dtype=delta.dtype), delta, state, scope)


@dataclass(frozen=True)
class Constant:
    """eta = the same number at every step.

    Reference: algorithm "Standard and constant relaxation factors".
    """

    eta: float

    def __post_init__(self) -> None:
        eta = number("Constant", "eta", self.eta, lambda v: v > 0, "a finite number > 0",
                     "1 is the unmodified loop.")
        object.__setattr__(self, "eta", eta)

    def init(self, like: Tensor, scope: Scope = SAMPLE) -> CountState:
        return CountState(*fresh_scalars(like, scope, 0))

    def update(self, delta: Tensor, state: CountState, scope: Scope = SAMPLE) -> tuple[Decision, CountState]:
        delta = widen(delta, state, CountState, scope)
        return _decide(torch.full_like(state.k, self.eta, dtype=delta.dtype), delta, state, scope)


@dataclass(frozen=True)
class Schedule:
    """eta_k from a list; its last value holds past the end.

    >>> from looptaps.controllers import Schedule
    >>> Schedule((1, 1.2, 0.9))
    Schedule(etas=(1.0, 1.2, 0.9))
    """

    etas: Sequence[float]

    def __post_init__(self) -> None:
        if isinstance(self.etas, str) or not isinstance(self.etas, Sequence) or len(self.etas) == 0:
            raise invalid("Schedule", "etas", "a non-empty sequence of numbers > 0", self.etas,
                          "For one value use Constant(eta).")
        checked = tuple(
            number("Schedule", f"etas[{i}]", eta, lambda v: v > 0, "a finite number > 0",
                   "1 is the unmodified step.")
            for i, eta in enumerate(self.etas)
        )
        object.__setattr__(self, "etas", checked)

    def init(self, like: Tensor, scope: Scope = SAMPLE) -> CountState:
        return CountState(*fresh_scalars(like, scope, 0))

    def update(self, delta: Tensor, state: CountState, scope: Scope = SAMPLE) -> tuple[Decision, CountState]:
        delta = widen(delta, state, CountState, scope)
        etas = torch.tensor(self.etas, dtype=delta.dtype, device=delta.device)
        return _decide(etas[state.k.clamp(max=len(self.etas) - 1)], delta, state, scope)
