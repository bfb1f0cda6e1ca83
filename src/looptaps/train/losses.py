"""What training minimises: the answer's cross-entropy, and the halting head's.

Shape suffixes: B samples, n cells, V tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from looptaps.tasks.base import IGNORE

_EPS = 1e-30


def _per_sample(losses_Bn: Tensor, scored_Bn: Tensor) -> Tensor:
    """The mean over each sample's scored cells (0 where it has none)."""
    return torch.where(scored_Bn, losses_Bn, 0).sum(-1) / scored_Bn.sum(-1).clamp(min=1)


def softmax_ce(logits_BnV: Tensor, labels_Bn: Tensor) -> Tensor:
    """Cross-entropy (B,), the mean over scored cells, in float32.

    >>> softmax_ce(torch.zeros(1, 2, 4), torch.tensor([[0, -100]]))
    tensor([1.3863])
    """
    losses = F.cross_entropy(logits_BnV.float().transpose(1, 2), labels_Bn, reduction="none", ignore_index=IGNORE)
    return _per_sample(losses, labels_Bn != IGNORE)


def stablemax_ce(logits_BnV: Tensor, labels_Bn: Tensor) -> Tensor:
    """Cross-entropy (B,) of stablemax: s(x) / sum s(x), s(x) = x + 1 for x >= 0 and 1 / (1 - x) below, in float64.

    >>> stablemax_ce(torch.tensor([[[1.0, -1.0, 0.0]]]), torch.tensor([[0]])).exp()  # (2 + 0.5 + 1) / 2
    tensor([1.7500], dtype=torch.float64)
    """
    x = logits_BnV.double()
    # where() on the denominator as well: 1 / (1 - x) at x = 1 would send NaN gradients through the branch not taken.
    s = torch.where(x < 0, 1 / (1 - torch.where(x < 0, x, 0) + _EPS), x + 1)
    logs = s.log() - s.sum(-1, keepdim=True).log()
    scored = labels_Bn != IGNORE
    picked = logs.gather(-1, torch.where(scored, labels_Bn, 0).unsqueeze(-1)).squeeze(-1)
    return _per_sample(-picked, scored)


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"softmax": softmax_ce, "stablemax": stablemax_ce}


def exact_match(logits_BnV: Tensor, labels_Bn: Tensor) -> Tensor:
    """(B,) bool: every scored cell is right."""
    return ((logits_BnV.argmax(-1) == labels_Bn) | (labels_Bn == IGNORE)).all(-1)


def halting_bce(q_halt_B: Tensor, exact_B: Tensor) -> Tensor:
    """(B,): the halting logit against whether the answer is exact now.

    >>> halting_bce(torch.zeros(1), torch.tensor([True]))
    tensor([0.6931])
    """
    return F.binary_cross_entropy_with_logits(q_halt_B.float(), exact_B.float(), reduction="none")


class Losses(NamedTuple):
    """Per sample, each (B,): `total` is what is minimised."""

    total: Tensor
    answer: Tensor
    halting: Tensor
    exact: Tensor


def supervised(kind: str, logits: Tensor, q_halt: Tensor | None, labels: Tensor, q_weight: float = 0.5) -> Losses:
    """Answer loss + q_weight * halting loss (without a halting head: the answer loss alone)."""
    answer = LOSSES[kind](logits, labels)
    with torch.no_grad():
        exact = exact_match(logits, labels)
    halting = torch.zeros_like(answer) if q_halt is None else halting_bce(q_halt, exact)
    return Losses(answer + q_weight * halting, answer, halting, exact)
