"""What all models share: dtypes, validated batches, and the bookkeeping of one controlled outer loop."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from looptaps.controllers import Standard
from looptaps.controllers.base import SAMPLE, Decision, wide_dtype
from looptaps.errors import InvalidShape, InvalidType, InvalidValue, invalid
from looptaps.loop import Control, Memory, StepStats, Trace, begin_memory, controlled_step, scaled_step, stack_trace

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}

Moves = Literal["rms", "max"]


class Heads(NamedTuple):
    """All outputs at a carry, for training: logits (B, n, V), and the Q logits (B,) float32 for halting and going on.

    A model without such a head has None there.
    """

    logits: Tensor
    q_halt: Tensor | None
    q_continue: Tensor | None


def check_batch(
    owner: str, batch: dict[str, Tensor], vocab_size: int, seq_len: int | None, identifiers: int
) -> tuple[Tensor, Tensor]:
    """The int64 tokens (B, n) and puzzle identifiers (B,) of a batch that fits the model."""
    inputs = batch.get("inputs")
    if not isinstance(inputs, Tensor):
        raise InvalidType(f"{owner} needs batch['inputs'], a whole-number tensor (B, n); this batch has "
                          f"{', '.join(sorted(batch)) or 'nothing'}.")
    if inputs.ndim != 2 or 0 in inputs.shape or (seq_len is not None and inputs.shape[1] != seq_len):
        raise InvalidShape(f"{owner} needs batch['inputs'] of shape (B, {'n' if seq_len is None else seq_len}), "
                           f"but it is {tuple(inputs.shape)}.")
    _check_ids(owner, "inputs", inputs, vocab_size, "tokens")
    ids = batch.get("puzzle_identifiers")
    if ids is None:
        ids = torch.zeros(inputs.shape[0], dtype=torch.int64, device=inputs.device)
    elif not isinstance(ids, Tensor) or tuple(ids.shape) != (inputs.shape[0],):
        raise InvalidShape(f"{owner} needs batch['puzzle_identifiers'] of shape ({inputs.shape[0]},), one per row "
                           "of inputs; leave them out for zeros.")
    else:
        _check_ids(owner, "puzzle_identifiers", ids, identifiers, "puzzles")
    return inputs.long(), ids.long()


def _check_ids(owner: str, field: str, values: Tensor, size: int, noun: str) -> None:
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        raise InvalidType(f"{owner} needs whole numbers in batch[{field!r}], but they are {values.dtype}.")
    low, high = values.aminmax()
    if low < 0 or high >= size:
        raise InvalidValue(f"{owner} knows the {noun} 0..{size - 1}, but batch[{field!r}] holds values from "
                           f"{int(low)} to {int(high)}. Is this the data of another task?")


class LoopRun:
    """One outer loop under control: applies eta to each update and keeps what `StepStats` reports.

    Args:
        control: the policy.
        memory: of the loop before; None, or a memory span of one loop, starts afresh.
        like: the state that control scales.
        updates: how many z_L updates this loop has.
        trace: record every decision.
        moves: record each update's applied move, relative to the state it led to.
    """

    def __init__(
        self,
        control: Control,
        memory: Memory | None,
        like: Tensor,
        updates: int,
        trace: bool = False,
        moves: Moves | None = None,
    ) -> None:
        self.control = control
        self.rule = control.rule()
        self.scope = control.scope_over()
        self.inner = control.site == "inner"
        self.traced = trace
        self.norm = moves
        self.updates = updates
        self.index = 0
        self.refreshed = 0
        # The unit step needs no arithmetic: f(x) is taken as it is, which is what training and baselines run.
        self.unit = isinstance(self.rule, Standard) and not trace
        keep = memory is not None and control.memory == "rollout"
        self.memory = memory if memory is not None and keep else begin_memory(self.rule, like, self.scope)
        self.etas: list[Tensor] = []
        self.decisions: list[Decision | None] = []
        self.residuals: list[Tensor] = []
        self.moves: list[Tensor] = []

    def restart(self, like: Tensor) -> None:
        """A new cycle begins: forget, where memory spans one cycle."""
        if self.control.memory == "cycle" and self.index > 0:
            self.memory = begin_memory(self.rule, like, self.scope)

    def step(self, x: Tensor, proposal: Tensor) -> Tensor:
        """One z_L update: x + eta (f(x) - x) under inner control, f(x) under outer control."""
        if self.unit or not self.inner:
            moved = proposal
            if self.inner:
                self._count(self.control.refreshes(self.index))
        else:
            step = controlled_step(
                self.rule,
                x,
                proposal,
                self.memory,
                self.scope,
                refresh=self.control.refreshes(self.index),
                grad_through_eta=self.control.grad_through_eta,
                keep_graph=self.traced and torch.is_grad_enabled(),
            )
            moved, self.memory = step.x, step.memory
            self._note(step.decision)
        with torch.no_grad():
            if self.index >= self.updates - 2:
                self.residuals.append(_mean_square(proposal, x))
            if self.norm is not None:
                self.moves.append(_relative_move(moved, x, self.norm))
        self.index += 1
        return moved

    def outer(self, start: Tensor, end: Tensor, high_start: Tensor, high_end: Tensor, index: int = 0) -> Tensor:
        """Outer control: eta from the move of z_H scales the move of z_L over the same stretch."""
        refresh = self.control.refreshes(index)
        if self.unit:
            self._count(refresh)
            return end
        # The rule looks at z_H; z_H itself makes a unit step, so only memory and decision of this step are used.
        step = controlled_step(
            self.rule,
            high_start,
            high_end,
            self.memory,
            self.scope,
            refresh=refresh,
            grad_through_eta=self.control.grad_through_eta,
            keep_graph=self.traced and torch.is_grad_enabled(),
        )
        self.memory = step.memory
        own = self.memory.rule
        if hasattr(self.rule, "gain") and "eta" in own._fields:  # z_H moves by Delta itself, not by eta Delta
            self.memory = self.memory._replace(rule=own._replace(eta=torch.ones_like(own.eta)))
        self._note(step.decision)
        wide = wide_dtype(end.dtype)
        return scaled_step(end, end.to(wide) - start.to(wide), self.memory.eta)

    def _count(self, refresh: bool) -> None:
        if refresh:
            self.refreshed += 1

    def _note(self, decision: Decision | None) -> None:
        self.etas.append(self.memory.eta)
        self.decisions.append(decision)

    def finish(self, states: tuple[Tensor, ...], updates: int, updates_high: int) -> tuple[Memory, StepStats]:
        """Memory and statistics at the end of the loop; `states` are checked for numbers that are not finite."""
        with torch.no_grad():
            if self.refreshed:  # keep the unit step's count, as its rule would
                count = self.memory.rule
                self.memory = self.memory._replace(rule=count._replace(k=count.k + self.refreshed))
            finite = torch.stack([per_sample_all(state.isfinite()) for state in states]).all(0)
            for decision in self.decisions:
                if decision is not None:
                    finite = finite & per_sample_all(decision.finite)
            residuals = self.residuals
            if len(residuals) == 1:
                residuals = [torch.full_like(residuals[0], torch.nan), residuals[0]]
            eta = per_sample_mean(self.memory.eta)
            mean_eta = torch.stack([per_sample_mean(e) for e in self.etas]).mean(0) if self.etas else eta
        trace: Trace | None = stack_trace(self.etas, self.decisions) if self.traced and self.etas else None
        moves = torch.stack(self.moves) if self.moves else None
        stats = StepStats(torch.stack(residuals), eta, mean_eta, finite, updates, updates_high, trace, moves)
        return self.memory, stats


def per_sample_all(flags: Tensor) -> Tensor:
    """True where all flags of a sample are."""
    return flags.flatten(1).all(1) if flags.ndim > 1 else flags


def per_sample_mean(values: Tensor) -> Tensor:
    """(B,) from the (B,) or (B, N) scales of a scope."""
    return values.detach().flatten(1).mean(1) if values.ndim > 1 else values.detach()


def _mean_square(proposal: Tensor, x: Tensor) -> Tensor:
    wide = wide_dtype(x.dtype)
    delta = proposal.to(wide) - x.to(wide)
    return SAMPLE.inner(delta, delta) / SAMPLE.count(delta)


def _relative_move(moved: Tensor, x: Tensor, norm: Moves) -> Tensor:
    wide = wide_dtype(x.dtype)
    state, tiny = moved.to(wide), torch.finfo(wide).tiny
    move = state - x.to(wide)
    if norm == "max":
        return move.abs().flatten(1).amax(1) / state.abs().flatten(1).amax(1).clamp(min=tiny)
    if norm == "rms":
        return (SAMPLE.inner(move, move) / SAMPLE.inner(state, state).clamp(min=tiny)).sqrt()
    raise invalid("advance", "moves", "'rms', 'max' or None", norm, "'rms' is the root mean square.")


def check_outer(owner: str, control: Control) -> None:
    """Outer control at loop ends is refreshed once per loop, so an interval inside the loop means nothing."""
    if control.site == "outer" and control.outer_at == "loop" and control.every != 1:
        raise invalid("Control", "every", "1 where outer_at is 'loop'", control.every,
                      f"{owner} then refreshes once per outer loop; use outer_at='cycle' or every=1.")


def check_inner(owner: str, control: Control) -> None:
    """Outer control needs a second state to measure."""
    if control.site != "inner":
        raise invalid("Control", "site", "'inner'", control.site,
                      f"{owner} has one state only; outer control is for TRM and HRM.")
