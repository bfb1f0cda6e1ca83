"""Exact accuracy by loop, with the averaged weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from looptaps.loop import Control
from looptaps.tasks.base import Task
from looptaps.train.losses import exact_match


@contextmanager
def averaged_weights(model: nn.Module, ema: AveragedModel) -> Iterator[None]:
    """The model with the averaged weights, its own put back bit for bit. Compiled cores stay compiled."""
    own = [p.detach().clone() for p in model.parameters()]
    with torch.no_grad():
        for p, mean in zip(model.parameters(), ema.module.parameters(), strict=True):
            p.copy_(mean)
    try:
        yield
    finally:
        with torch.no_grad():
            for p, old in zip(model.parameters(), own, strict=True):
                p.copy_(old)


@torch.no_grad()
def exact_by_loop(
    model: Any, task: Task, control: Control, loops: tuple[int, ...], batch_size: int, device: torch.device
) -> dict[int, float]:
    """Share of exact answers after each of the given loops."""
    right = dict.fromkeys(sorted(loops), 0)
    for _, batch in task.batches(batch_size):
        count = batch["inputs"].shape[0]
        moved = {key: _padded(value, batch_size).to(device) for key, value in batch.items()}
        carry, memory = model.begin(moved), None
        for loop in range(1, max(right) + 1):
            carry, memory, _ = model.advance(carry, control, memory)
            if loop in right:
                right[loop] += int(exact_match(model.heads(carry).logits, moved["labels"])[:count].sum())
    return {loop: hits / len(task) for loop, hits in right.items()}


def _padded(value: torch.Tensor, size: int) -> torch.Tensor:
    # One shape for all batches: a compiled core would otherwise be compiled again for the last one.
    missing = size - value.shape[0]
    return value if missing == 0 else torch.cat([value, value[:1].expand(missing, *value.shape[1:])])


