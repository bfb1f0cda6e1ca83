"""Strategies that look at the state: until it stands still, and FPRM's own rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from looptaps.controllers.base import number
from looptaps.errors import InvalidUse, invalid
from looptaps.strategies.base import Status, Verdict, View
from looptaps.strategies.rule import StoppingRule, check_whole, stop_where


@dataclass(frozen=True)
class FixedPoint(StoppingRule):
    """Stop when the state stands still: one z_L update moved it by at most eps, relative to its size.

        |z_{i+1} - z_i| / |z_{i+1}| <= eps       after any z_L update i of the outer loop

    Every z_L update is tested; an outer loop that has begun is finished, and counted, before its samples leave, since
    only its end has an answer. In traces `signal` is the loop's smallest move.

    Args:
        eps: how small a move must be; 0 waits until nothing moves at all.
        norm: `rms`, the root mean square over the sample, or `max`, the largest element.
        max_updates: layer applications on z_L at most, as `Result.updates` counts them. An outer loop that would go
            beyond is not begun. TRM's outer loop has 36.

    >>> import looptaps as lt, torch
    >>> from looptaps.models import LoopedConfig, LoopedTransformer
    >>> model = LoopedTransformer(LoopedConfig(vocab_size=7, seq_len=16, hidden_size=32, num_heads=2)).eval()
    >>> batch = {"inputs": torch.randint(7, (3, 16))}
    >>> FixedPoint(eps=0.0, max_updates=50).run(model, batch, lt.Standard()).updates
    tensor([50, 50, 50])
    """

    eps: float = 0.01
    norm: Literal["rms", "max"] = "rms"
    max_updates: int = 1152

    def __post_init__(self) -> None:
        object.__setattr__(self, "eps", number("FixedPoint", "eps", self.eps, lambda v: v >= 0,
                                               "a finite number >= 0", "The default is 0.01."))
        if self.norm not in ("rms", "max"):
            raise invalid("FixedPoint", "norm", "'rms' or 'max'", self.norm, "The default is 'rms'.")
        check_whole("FixedPoint", "max_updates", self.max_updates, 1, "1152 is TRM at 32 loops.")

    @property
    def limit(self) -> int:
        return self.max_updates

    @property
    def moves(self) -> Literal["rms", "max"]:
        return self.norm

    def look(self, view: View, state: None) -> Verdict:
        moves, per_loop = view.stats.moves, view.stats.updates
        if moves is None:
            raise InvalidUse(f"FixedPoint needs the moves of every update, but {type(view.model).__name__}.advance "
                             "reports none. Return them in StepStats.moves when `moves` is given.")
        if per_loop > self.max_updates:
            raise invalid("FixedPoint", "max_updates", f">= {per_loop}, one outer loop of this model",
                          self.max_updates, "Only whole outer loops have an answer.")
        nearest = moves.amin(0)
        codes = stop_where(nearest <= self.eps, Status.CONVERGED)
        codes = stop_where(view.updates + per_loop > self.max_updates, Status.RAN_ALL, codes)
        return Verdict(codes, state, nearest)


@dataclass(frozen=True)
class FPRMRule(StoppingRule):
    """FPRM's own rule for its own model: the residue is below its threshold, or its step has shrunk to nothing.

    The threshold, the smallest step and the cap are the model's (`fp_thresh`, `max_iter_eval`). A sample is CONVERGED
    below the threshold, EXITED with a step too small to move on, and RAN_ALL at the cap. In traces `signal` is the
    residue.

    Args:
        max_loops: iterations at the latest, if the model's cap does not come first.
        batch_max: stop all samples when the worst would, as the released code does; counts then depend on the batch.

    >>> import looptaps as lt, torch
    >>> from looptaps.models import FPRM, FPRMConfig
    >>> model = FPRM(FPRMConfig(vocab_size=7, seq_len=16, hidden_size=32, num_heads=2)).eval()
    >>> result = FPRMRule().run(model, {"inputs": torch.randint(7, (2, 16))}, lt.Standard())
    >>> bool((result.loops <= 1000).all())
    True
    """

    max_loops: int = 1000
    batch_max: bool = False

    def __post_init__(self) -> None:
        check_whole("FPRMRule", "max_loops", self.max_loops, 1, "The released cap is 1000.")
        if not isinstance(self.batch_max, bool):
            raise invalid("FPRMRule", "batch_max", "True or False", self.batch_max, "The default is False.")

    @property
    def limit(self) -> int:
        return self.max_loops

    def check(self, model: Any) -> None:
        if not callable(getattr(model, "stopped", None)):
            raise InvalidUse(f"FPRMRule runs FPRM models, but {type(model).__name__} has no rule of its own. "
                             "Use FixedPoint, which runs any model.")
        if getattr(model, "training", False):
            raise InvalidUse("FPRM stops by other numbers while training. Call model.eval() first.")

    def look(self, view: View, state: None) -> Verdict:
        carry = view.carry
        stopped: Tensor = view.model.stopped(carry, batch_max=self.batch_max)
        config = view.model.config
        codes = stop_where(stopped & (carry.residue < config.fp_thresh), Status.CONVERGED)
        codes = stop_where(stopped & (carry.iterations < config.max_iter_eval), Status.EXITED, codes)
        codes = stop_where(stopped, Status.RAN_ALL, codes)
        return Verdict(codes, state, carry.residue)


def state_names(carry: Any) -> list[str]:
    """The loop states of a carry: z_L, and z_H where there is one."""
    names = [name for name in ("z_L", "z_H") if name in getattr(carry, "_fields", ())]
    if not names:
        raise InvalidUse(f"This needs a carry with the fields z_L (and z_H), but {type(carry).__name__} has neither.")
    return names


def flat_states(carry: Any) -> Tensor:
    """(b, D) all loop states of each sample, as float32 at least."""
    parts = [getattr(carry, name).flatten(1) for name in state_names(carry)]
    return torch.cat([part.to(torch.promote_types(part.dtype, torch.float32)) for part in parts], dim=1)


def with_states(carry: Any, flat: Tensor) -> Any:
    """The carry with its loop states taken from (b, D)."""
    names = state_names(carry)
    sizes = [getattr(carry, name)[0].numel() for name in names]
    parts = torch.split(flat, sizes, dim=1)
    return carry._replace(**{
        name: part.reshape(getattr(carry, name).shape).to(getattr(carry, name).dtype)
        for name, part in zip(names, parts, strict=True)
    })


__all__ = ["FPRMRule", "FixedPoint"]
