"""Ouro's exit gate: how likely a token leaves after each step, and where it leaves.

    p_k = lambda_k prod_{j<k} (1 - lambda_j),    lambda = sigmoid(gate(X)),    the last step takes what remains
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ExitGate(nn.Linear):
    """A linear score in float32 whatever the model's dtype. A module of its own, so that offloaded weights are there.

    A bfloat16 sigmoid reaches 1.0 already at 6.25 and would make tokens leave early.
    """

    def forward(self, state: Tensor) -> Tensor:
        weight, bias = self.weight.float().to(state.device), self.bias.float().to(state.device)
        with torch.autocast(state.device.type, enabled=False):  # training in bfloat16 would make it a bfloat16 product
            return nn.functional.linear(state.float(), weight, bias)


def exit_probabilities(gate: ExitGate, states: list[Tensor]) -> Tensor:
    """(B, N, steps), in float32."""
    remaining = torch.ones(states[0].shape[:-1], device=states[0].device)
    probabilities = []
    for state in states[:-1]:
        leave = torch.sigmoid(gate(state)).squeeze(-1).to(remaining.device)
        probabilities.append(leave * remaining)
        remaining = remaining * (1 - leave)
    return torch.stack([*probabilities, remaining], dim=-1)


def exit_steps(pdf: Tensor, threshold: float) -> Tensor:
    """(B, N): the first step at which the probabilities have summed to the threshold; the last where they never do."""
    reached = pdf.cumsum(-1) >= threshold
    first = reached.int().argmax(-1)
    return torch.where(reached.any(-1), first, pdf.shape[-1] - 1)
