"""Ouro's exit gate: how likely a token leaves after each step, and where it leaves.

    p_k = lambda_k prod_{j<k} (1 - lambda_j),    lambda = sigmoid(gate(X)),    the last step takes what remains
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def exit_probabilities(gate: nn.Linear, states: list[Tensor]) -> Tensor:
    """(B, N, steps), in float32: a bfloat16 sigmoid reaches 1.0 already at 6.25 and would make tokens leave early."""
    weight, bias = gate.weight.float(), gate.bias.float()
    remaining = torch.ones(states[0].shape[:-1], device=states[0].device)
    probabilities = []
    for state in states[:-1]:
        with torch.autocast(state.device.type, enabled=False):  # training in bfloat16 would make it a bfloat16 product
            score = nn.functional.linear(state.float(), weight.to(state.device), bias.to(state.device))
        leave = torch.sigmoid(score).squeeze(-1)
        probabilities.append(leave * remaining)
        remaining = remaining * (1 - leave)
    return torch.stack([*probabilities, remaining], dim=-1)


def exit_steps(pdf: Tensor, threshold: float) -> Tensor:
    """(B, N): the first step at which the probabilities have summed to the threshold; the last where they never do."""
    reached = pdf.cumsum(-1) >= threshold
    first = reached.int().argmax(-1)
    return torch.where(reached.any(-1), first, pdf.shape[-1] - 1)
