"""What happened along a rollout, recorded only when asked."""

from __future__ import annotations

from itertools import repeat
from typing import NamedTuple

import torch
from torch import Tensor

from looptaps.controllers.base import Decision


class Trace(NamedTuple):
    """One row per update: (K, B), or (K, B, N) in token scope.

    `eta` is what was applied. `finite` is False where the update, or an energy of it, was not finite; the loops of
    models do not look between refreshes, and hold True there. The others are what was measured: NaN at updates between
    refreshes and after a sample has stopped, None for fixed schedules.
    """

    eta: Tensor
    finite: Tensor
    progress: Tensor | None
    fluctuation: Tensor | None
    balance: Tensor | None


def stack_trace(
    etas: list[Tensor], decisions: list[Decision | None], held: list[Tensor] | None = None
) -> Trace:
    """The trace of a list of updates; `None` decisions are updates between refreshes.

    `held` has a flag for each update in turn that has no decision: where it was finite. Without it they count as
    finite.
    """
    empty = torch.full_like(etas[0], torch.nan)
    flags = iter(held) if held is not None else repeat(torch.ones_like(etas[0], dtype=torch.bool))

    def column(field: str) -> Tensor | None:
        values = [None if d is None else getattr(d, field) for d in decisions]
        if all(value is None for value in values):
            return None
        return torch.stack([empty if value is None else value for value in values])

    return Trace(
        torch.stack(etas),
        torch.stack([next(flags) if d is None else d.finite for d in decisions]),
        column("progress"),
        column("fluctuation"),
        column("balance"),
    )
