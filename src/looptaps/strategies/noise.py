"""Random numbers that belong to a sample: keyed by (seed, sample id, rollout), drawn once per outer loop.

Each sample has its own generator, so what it draws at its t-th loop depends on nobody else: not on the batch, its
size, or who has left. Draws of different devices differ.
"""

from __future__ import annotations

import hashlib
import inspect
from typing import Any

import torch
from torch import Tensor

from looptaps.controllers.base import wide_dtype
from looptaps.errors import InvalidUse


def generator(use: str, seed: int, sample: int, rollout: int, device: torch.device | str = "cpu") -> torch.Generator:
    """The generator of one sample and rollout for one use (`start` or `kick`)."""
    digest = hashlib.sha256(f"{use} {seed} {sample} {rollout}".encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def draws_start(model: Any) -> bool:
    """Whether `model.begin` can draw initial states: it then takes `generators`, one per sample."""
    return "generators" in inspect.signature(model.begin).parameters


def kick(carry: Any, where: str, sigma: float, generators: list[torch.Generator]) -> Any:
    """The carry with N(0, sigma^2) added to one of its states, in the dtype of statistics, cast once."""
    x: Tensor = getattr(carry, where)
    wide = wide_dtype(x.dtype)
    noise = torch.stack([
        torch.randn(x.shape[1:], generator=own, dtype=wide, device=x.device) for own in generators
    ])
    return carry._replace(**{where: (x.to(wide) + sigma * noise).to(x.dtype)})


def check_state_name(carry: Any, where: str) -> None:
    """Raise where a carry has no such state."""
    if where not in getattr(carry, "_fields", ()):
        raise InvalidUse(f"Rollouts(where={where!r}) needs a model whose carry has {where}, but this one has "
                         f"{', '.join(getattr(carry, '_fields', ())) or 'no named states'}. "
                         "Models with one state have z_L only.")
