"""Deep supervision with a carry: slots whose samples think on from step to step until they halt.

One optimizer step is one outer loop. Every slot keeps its sample, its state, and its controller's memory; where a
sample halted, the slot starts afresh with a new puzzle. Shape suffix: B slots.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from looptaps import state as trees
from looptaps.errors import InvalidUse
from looptaps.loop import Control, Memory, begin_memory
from looptaps.tasks.base import Batch
from looptaps.tasks.stream import Stream
from looptaps.train.losses import supervised
from looptaps.train.penalty import BalancePenalty
from looptaps.train.recipe import HaltingRecipe, LossRecipe


class Slots(NamedTuple):
    """Everything that goes on from step to step. `carry` and `memory` are None before the first step."""

    batch: Batch
    carry: Any
    memory: Memory | None
    loops: Tensor  # outer loops the sample has had
    least: Tensor  # loops before which it may not halt
    halted: Tensor  # True where a fresh sample is needed


class StepOutput(NamedTuple):
    """What one outer loop gave: `loss` is to be minimised, the others are per sample and detached."""

    loss: Tensor
    carry: Any
    memory: Memory | None
    answer: Tensor
    exact: Tensor
    q_halt: Tensor | None
    finite: Tensor
    stopped: Tensor | None
    penalty: Tensor


def empty_slots(stream: Stream, size: int, device: torch.device) -> Slots:
    """Slots that all wait for a sample."""
    tokens = torch.zeros((size, stream.seq_len), dtype=torch.int64)
    batch = {"inputs": tokens, "labels": tokens.clone(), "puzzle_identifiers": torch.zeros(size, dtype=torch.int64)}
    zeros = torch.zeros(size, dtype=torch.int64, device=device)
    return Slots({k: v.to(device) for k, v in batch.items()}, None, None, zeros, zeros.clone(),
                 torch.ones(size, dtype=torch.bool, device=device))


def refill(slots: Slots, stream: Stream, halting: HaltingRecipe, generator: torch.Generator) -> Slots:
    """Put fresh samples where the old ones halted, and draw how long each must think at least."""
    rows = slots.halted.nonzero().squeeze(1)
    n = int(rows.numel())
    fresh = stream.take(n)
    batch = {}
    for key, old in slots.batch.items():
        batch[key] = old.clone()
        batch[key][rows] = fresh[key].to(old.device)
    # Two draws per slot whatever halted, so that the generator's place depends on the step alone.
    size = slots.halted.shape[0]
    explores = torch.rand(size, generator=generator) < halting.exploration
    longest = max(halting.max_loops, 2)
    floor = torch.randint(2, longest + 1, (size,), generator=generator)
    least = torch.where(explores, floor, 1).to(rows.device)
    return slots._replace(
        batch=batch,
        loops=torch.where(slots.halted, 0, slots.loops),
        least=torch.where(slots.halted, least, slots.least),
    )


def settle(slots: Slots, output: StepOutput, halting: HaltingRecipe) -> Slots:
    """After a step: who halts? By the model's own stopping rule if it has one, else by its halting logit.

    Samples whose numbers went bad are replaced too.
    """
    loops = slots.loops + 1
    wants = torch.zeros_like(slots.halted)
    if output.stopped is not None:
        wants = output.stopped
    elif output.q_halt is not None:
        wants = output.q_halt > 0
    halted = (loops >= halting.max_loops) | (wants & (loops >= slots.least)) | ~output.finite
    return slots._replace(carry=output.carry, memory=output.memory, loops=loops, halted=halted)


class SupervisedStep(nn.Module):
    """One outer loop and its loss as a module, so that wrappers (DDP) see one forward per backward."""

    def __init__(self, model: nn.Module, loss: LossRecipe, control: Control) -> None:
        super().__init__()
        for method in ("resume", "advance", "heads"):
            if not callable(getattr(model, method, None)):
                raise InvalidUse(f"{type(model).__name__} cannot be trained here: it has no method {method!r}.")
        self.model = model
        self.recipe = loss
        self.control = control
        self.penalty = BalancePenalty(mu=loss.penalty_mu, kappa=loss.penalty_kappa) if loss.penalty_mu > 0 else None
        # The unit step has nothing to remember.
        self.remembers = type(control.controller).__name__ != "Standard" and control.memory == "rollout"

    def forward(self, slots: Slots) -> StepOutput:
        model: Any = self.model
        if slots.carry is None:
            carry = model.begin(slots.batch)
        else:
            carry = model.resume(slots.carry, slots.batch, slots.halted)
        memory = self._memory(slots, carry)
        carry, memory, stats = model.advance(carry, self.control, memory, trace=self.penalty is not None)
        heads = model.heads(carry)
        q_halt = heads.q_halt
        losses = supervised(self.recipe.kind, heads.logits, q_halt, slots.batch["labels"], self.recipe.q_weight)
        finite = stats.finite & losses.total.isfinite()
        loss = torch.where(finite, losses.total, 0).mean()
        penalty = torch.zeros((), device=loss.device)
        if self.penalty is not None:
            penalty = self.penalty(stats.trace)
            loss = loss + penalty
        return StepOutput(
            loss,
            trees.detach(carry),
            trees.detach(memory) if self.remembers else None,
            losses.answer.detach(),
            losses.exact,
            None if q_halt is None else q_halt.detach(),
            finite,
            model.stopped(carry) if callable(getattr(model, "stopped", None)) else None,
            penalty.detach(),
        )

    def _memory(self, slots: Slots, carry: Any) -> Memory | None:
        if slots.memory is None:
            return None
        fresh = begin_memory(self.control.rule(), carry.z_L, self.control.scope_over())
        return trees.where(slots.halted, fresh, slots.memory)
