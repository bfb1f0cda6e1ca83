"""The balance penalty: training that makes a model easier to control."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from looptaps.errors import InvalidUse, InvalidValue, invalid
from looptaps.loop.trace import Trace


@dataclass(frozen=True, kw_only=True)
class BalancePenalty:
    """mu * mean over the batch of sum_k relu(S_k - kappa P_k): fluctuation beyond kappa times progress costs.

    P_k and S_k are the progress and fluctuation of a trace. Updates where nothing was measured (held between
    refreshes, stopped, or not finite) contribute nothing, to the value and to the gradient. Only updates that were
    run with gradients can be trained by it.

    Args:
        mu: the weight. Compare it with the task loss: a penalty of a thousandth of it changes nothing.
        kappa: how many times the progress the fluctuation may be.

    >>> import looptaps as lt, torch
    >>> run = lt.iterate(lambda x: -0.5 * x, torch.ones(1, 2, 4), lt.TapsGD(), 3, trace=True)
    >>> BalancePenalty(mu=1.0, kappa=4.0)(run.trace)
    tensor(0.8789)

    Reference: the paper's co-design objective.
    """

    mu: float = 1e-3
    kappa: float = 4.0

    def __post_init__(self) -> None:
        for field, value in (("mu", self.mu), ("kappa", self.kappa)):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not math.isfinite(value) or value < 0:
                default = {"mu": 1e-3, "kappa": 4.0}[field]
                raise invalid("BalancePenalty", field, "a finite number >= 0", value, f"The default is {default}.")
            object.__setattr__(self, field, float(value))

    def __call__(self, trace: Trace | None) -> Tensor:
        if trace is None:
            raise InvalidUse("BalancePenalty needs a trace, but got None. Run the loop with trace=True.")
        progress, fluctuation = trace.progress, trace.fluctuation
        if progress is None or fluctuation is None:
            raise InvalidValue("BalancePenalty needs the progress and fluctuation of an adaptive rule, but this trace "
                               "is of a fixed schedule. Use a TAPS rule, such as lt.TapsGD(rho=1e-9) for unit steps.")
        counts = trace.finite & progress.isfinite() & fluctuation.isfinite()
        # Both are replaced before the difference, so that no NaN meets a zero gradient.
        excess = torch.where(counts, fluctuation, 0) - self.kappa * torch.where(counts, progress, 0)
        return self.mu * torch.relu(excess).sum(0).mean()
