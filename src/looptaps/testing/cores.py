"""Toy cores and update sequences: small, seeded, and with known behaviour."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class WaveCore(nn.Module):
    """f(x) = sin(weight * roll(x)) + shift: nonlinear, and element by element.

    No matrix product, so what a sample computes cannot depend on its neighbours or on the batch size: differences that
    a test sees come from the controller.
    """

    def __init__(self, features: int, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter((0.5 + torch.rand(features, generator=generator)).to(dtype))
        self.shift = nn.Parameter((0.3 * torch.randn(features, generator=generator)).to(dtype))

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(self.weight * x.roll(1, -1)) + self.shift


class AffineCore(nn.Module):
    """f(x) = fixed + (x - fixed) * rates: every mode contracts, alternates or grows by its own rate.

    A rate in (0, 1) is steady progress, one in (-1, 0) alternates around the fixed point.
    """

    rates: Tensor
    fixed: Tensor

    def __init__(self, rates: Tensor, fixed: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("rates", rates)
        self.register_buffer("fixed", torch.zeros_like(rates) if fixed is None else fixed)

    def forward(self, x: Tensor) -> Tensor:
        return self.fixed + (x - self.fixed) * self.rates


def updates(
    steps: int, batch: int, positions: int, features: int, *, seed: int = 0, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Update sequences (K, B, N, D) from steady to alternating: sample b keeps a share of its last update.

    The shares run from +0.9 to -0.9 over the batch, so that every regime of a rule is visited.
    """
    generator = torch.Generator().manual_seed(seed)
    share = torch.linspace(0.9, -0.9, batch)[:, None, None]
    rows = [torch.randn(batch, positions, features, generator=generator)]
    for _ in range(steps - 1):
        noise = torch.randn(batch, positions, features, generator=generator)
        rows.append(share * rows[-1] + (1 - share.abs()) * noise)
    return torch.stack(rows).to(dtype)
