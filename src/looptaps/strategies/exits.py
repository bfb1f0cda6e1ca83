"""Strategies that look at loops: a fixed number, the paper's adaptive exit, and the model's own score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from looptaps.controllers.base import number
from looptaps.errors import InvalidUse, invalid
from looptaps.strategies.base import Status, Verdict, View
from looptaps.strategies.rule import StoppingRule, check_whole, stop_where

# What is added to the largest activity so far, as everywhere in the paper.
EPS = 1e-12


@dataclass(frozen=True)
class FixedDepth(StoppingRule):
    """The same number of outer loops for every sample.

    Args:
        loops: outer loops, H in the paper.

    >>> import looptaps as lt, torch
    >>> from looptaps.models import LoopedConfig, LoopedTransformer
    >>> model = LoopedTransformer(LoopedConfig(vocab_size=7, seq_len=16, hidden_size=32, num_heads=2)).eval()
    >>> result = FixedDepth(8).run(model, {"inputs": torch.randint(7, (3, 16))}, lt.TapsGD())
    >>> result.output.shape, result.updates, result.counts()
    (torch.Size([3, 16]), tensor([16, 16, 16]), {'RAN_ALL': 3})
    """

    loops: int

    def __post_init__(self) -> None:
        check_whole("FixedDepth", "loops", self.loops, 1, "Released TRM models use 16.")

    @property
    def limit(self) -> int:
        return self.loops


class _Seen(NamedTuple):
    """The adaptive exit's memory: the peak of A, the last answer, the counter, and the last residual."""

    peak: Tensor
    answer: Tensor
    streak: Tensor
    residual: Tensor


@dataclass(frozen=True)
class AdaptiveExit(StoppingRule):
    """Stop when the answer has settled and the state has calmed down: the paper's rule.

        A_t = eta_k^2 (|Delta_{k-1}|^2 + |Delta_k|^2) / (2 n d),     R_t = A_t / (max_{s <= t} A_s + 1e-12)

    at the end of outer loop t, k being its last z_L update. A counter grows while the answer is that of the loop
    before and R_t <= tau, else it returns to 0. A sample leaves when counter >= patience and t >= k_min. In traces
    `signal` is R.

    Args:
        max_loops: outer loops at the latest.
        k_min: outer loops at the earliest.
        patience: p, loops in a row for which the condition must hold.
        tau: what is left of the largest activity when a state counts as calm.

    Where a loop has a single update, Delta_{k-1} is the loop before's; the first loop then has no A.

    >>> import looptaps as lt, torch
    >>> from looptaps.models import LoopedConfig, LoopedTransformer
    >>> model = LoopedTransformer(LoopedConfig(vocab_size=7, seq_len=16, hidden_size=32, num_heads=2)).eval()
    >>> result = AdaptiveExit(max_loops=32).run(model, {"inputs": torch.randint(7, (3, 16))}, lt.TapsGD())
    >>> bool((result.loops >= 4).all() and (result.loops <= 32).all())
    True

    Reference: appendix "Additional Experiments on Adaptive Exit".
    """

    max_loops: int
    k_min: int = 4
    patience: int = 2
    tau: float = 0.15

    reads: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_whole("AdaptiveExit", "k_min", self.k_min, 1, "The default is 4.")
        check_whole("AdaptiveExit", "patience", self.patience, 1, "The default is 2.")
        check_whole("AdaptiveExit", "max_loops", self.max_loops, self.k_min,
                    f"No sample leaves before k_min = {self.k_min} loops.")
        object.__setattr__(self, "tau", number("AdaptiveExit", "tau", self.tau, lambda v: v >= 0,
                                               "a finite number >= 0", "The default is 0.15."))

    @property
    def limit(self) -> int:
        return self.max_loops

    def begin(self, carry: Any, inputs: Tensor) -> _Seen:
        zeros = torch.zeros(len(inputs), device=inputs.device)
        # No answer is -1, so nothing equals "the loop before" of the first loop.
        return _Seen(zeros, torch.full_like(inputs, -1, dtype=torch.int64), zeros.long(), zeros * torch.nan)

    def look(self, view: View, state: _Seen) -> Verdict:
        assert view.answer is not None
        earlier, last = view.stats.residuals
        earlier = torch.where(earlier.isnan(), state.residual, earlier)
        activity = view.stats.eta.square() * (earlier + last) / 2
        peak = torch.fmax(state.peak, activity)
        ratio = activity / (peak + EPS)
        calm = (view.answer == state.answer).all(1) & (ratio <= self.tau)
        streak = torch.where(calm, state.streak + 1, 0)
        codes = stop_where((streak >= self.patience) & (view.loops >= self.k_min), Status.EXITED)
        return Verdict(codes, _Seen(peak, view.answer, streak, last), ratio)


@dataclass(frozen=True)
class QExit(StoppingRule):
    """Stop when the model's own score says so: score > threshold (for TRM and HRM the halting logit).

    Args:
        max_loops: outer loops at the latest.
        threshold: 0 is TRM's own, a probability of one half. (HRM asks for more than its score for going on.)
        k_min: outer loops at the earliest.

    In traces `signal` is the score. Models without a Q head cannot be run by it.

    >>> QExit(max_loops=16, threshold=2.0)
    QExit(max_loops=16, threshold=2.0, k_min=1)
    """

    max_loops: int
    threshold: float = 0.0
    k_min: int = 1

    reads: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_whole("QExit", "k_min", self.k_min, 1, "The default is 1.")
        check_whole("QExit", "max_loops", self.max_loops, self.k_min,
                    f"No sample leaves before k_min = {self.k_min} loops.")
        if isinstance(self.threshold, bool) or not isinstance(self.threshold, int | float) \
                or self.threshold != self.threshold:
            raise invalid("QExit", "threshold", "a number", self.threshold, "The default is 0.")
        object.__setattr__(self, "threshold", float(self.threshold))

    @property
    def limit(self) -> int:
        return self.max_loops

    def look(self, view: View, state: None) -> Verdict:
        assert view.readout is not None
        score = view.readout.score
        if score is None:
            raise InvalidUse(f"QExit needs a model with a score, but {type(view.model).__name__} has none here. "
                             "Use AdaptiveExit, which needs none, or train the model with a Q head.")
        score = score.float()
        codes = stop_where((score > self.threshold) & (view.loops >= self.k_min), Status.EXITED)
        return Verdict(codes, state, score)


__all__ = ["AdaptiveExit", "FixedDepth", "QExit"]
