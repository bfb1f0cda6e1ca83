"""`Rollouts`: the same puzzle several times with noise, and one answer chosen among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from looptaps.controllers.base import number
from looptaps.errors import InvalidShape, InvalidType, InvalidUse, invalid
from looptaps.loop import as_control
from looptaps.loop.model import AnyLoopModel
from looptaps.strategies.base import Result, RolloutTable, Status
from looptaps.strategies.driver import Kick, Once, drive, gather, readout_at_start
from looptaps.strategies.rule import StoppingRule, check_ids, check_model, check_seed, check_whole
from looptaps.strategies.trace import RunTrace, TraceOption, recorder_for, stack_columns

Where = Literal["z_L", "z_H"]
Select = Literal["best-q", "mode"]


@dataclass(frozen=True)
class Rollouts:
    """n rollouts of every sample, with Gaussian noise on a state once before each outer loop; one answer is chosen.

        z <- z + sigma N(0, 1)       before each outer loop; the kick is no part of any Delta

    `best-q` takes the rollout with the highest score at its end, `mode` the answer that most rollouts give; ties go
    to the lowest index. Rollouts that went bad are chosen only where all did. Each rollout has its own controller
    memory and stops by itself. `Result.rollouts` keeps all of them: `prefix` gives the result of fewer, `any_right`
    whether any is right.

    Args:
        inner: the stopping rule of each rollout.
        n: how many.
        sigma: standard deviation of the noise. At 0 every rollout is the plain run, bit for bit (where the model
            draws no start: a drawn one belongs to its rollout): they then run one after the other, in the plain run's
            batches.
        where: the state that is kicked.
        select: how the answer is chosen.
        max_rows: how many rows may run at a time; rollouts beyond run later. One rollout of the whole batch always
            runs together.

    >>> import looptaps as lt, torch
    >>> from looptaps.models import LoopedConfig, LoopedTransformer
    >>> model = LoopedTransformer(LoopedConfig(vocab_size=7, seq_len=16, hidden_size=32, num_heads=2)).eval()
    >>> result = Rollouts(lt.FixedDepth(4), n=5).run(model, {"inputs": torch.randint(7, (3, 16))}, lt.TapsGD())
    >>> result.output.shape, result.rollouts.output.shape, result.updates
    (torch.Size([3, 16]), torch.Size([5, 3, 16]), tensor([40, 40, 40]))
    """

    inner: StoppingRule
    n: int
    sigma: float = 0.3
    where: Where = "z_L"
    select: Select = "best-q"
    max_rows: int = 4096

    def __post_init__(self) -> None:
        if not isinstance(self.inner, StoppingRule):
            raise InvalidType("Rollouts.inner must be a stopping rule such as lt.FixedDepth(16), but is "
                              f"{self.inner!r}.")
        if getattr(self.inner, "batch_max", False):
            raise InvalidUse("With batch_max a rollout's end depends on its batch, and rollouts run in batches of "
                             "their own. Use batch_max=False.")
        check_whole("Rollouts", "n", self.n, 1, "One rollout with sigma = 0 is the plain run.")
        check_whole("Rollouts", "max_rows", self.max_rows, 1, "The default is 4096.")
        object.__setattr__(self, "sigma", number("Rollouts", "sigma", self.sigma, lambda v: v >= 0,
                                                 "a finite number >= 0", "The default is 0.3."))
        for field, choices in (("where", Where), ("select", Select)):
            if getattr(self, field) not in get_args(choices):
                raise invalid("Rollouts", field, f"one of {', '.join(get_args(choices))}", getattr(self, field),
                              f"The default is {get_args(choices)[0]!r}.")

    def run(
        self,
        model: AnyLoopModel,
        batch: dict[str, Tensor],
        control: Any,
        *,
        seed: int = 0,
        ids: Tensor | Sequence[int] | None = None,
        trace: TraceOption = False,
    ) -> Result:
        """Solve a batch. Noise is drawn per (seed, sample id, rollout, loop), whatever the batching.

        Arguments as in every strategy; a trace is that of the rollout that was chosen.
        """
        control, ids, seed = as_control(control), check_ids(batch, ids), check_seed(seed)
        check_model(model)
        self.inner.check(model)
        size = len(ids)
        if self.select == "best-q" and readout_at_start(self.inner, model, batch, ids, seed).score is None:
            raise InvalidUse(f"Rollouts(select='best-q') needs a model with a score, but {type(model).__name__} "
                             "has none here. Use select='mode', or train the model with a Q head.")
        together = 1 if self.sigma == 0 else max(1, min(self.n, self.max_rows // size))
        noise = Kick(self.where, self.sigma)
        parts: list[Result] = []
        traces: list[RunTrace] = []
        for first in range(0, self.n, together):
            numbers = range(first, min(first + together, self.n))
            rows = {key: torch.cat([value] * len(numbers)) for key, value in batch.items()}
            source = Once(rows, ids * len(numbers), [r for r in numbers for _ in ids])
            recorder = recorder_for(trace, size * len(numbers))
            done = drive(self.inner, model, control, source, seed=seed, noise=noise, recorder=recorder)
            parts.append(gather(done, size * len(numbers)))
            if recorder is not None:
                traces.append(recorder.trace())
        result = _chosen(_table(Result.join(parts), self.n), self.select)
        if not traces or result.rollouts is None:
            return result
        columns = result.rollouts.chosen * size + torch.arange(size, device=result.status.device)
        return replace(result, trace=stack_columns(traces).select(columns))


def prefix(result: Result, n: int, select: Select = "best-q") -> Result:
    """What the first n rollouts alone would have given: a smaller budget for free, or another way to choose.

    Args:
        result: of `Rollouts`.
        n: how many of its rollouts.
        select: how the answer is chosen.
    """
    table = _rollouts(result, "prefix")
    most = len(table.status)
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= most:
        raise invalid("prefix", "n", f"a whole number in 1..{most}, the rollouts there are", n, "Run more rollouts.")
    if select not in get_args(Select):
        raise invalid("prefix", "select", f"one of {', '.join(get_args(Select))}", select, "The default is 'best-q'.")
    if select == "best-q" and table.score is None:
        raise InvalidUse("prefix(select='best-q') needs scores, and these rollouts have none. Use select='mode'.")
    parts: dict[str, Any] = {
        name: None if value is None else value[:n] for name, value in vars(table).items() if name != "chosen"
    }
    return _chosen(RolloutTable(chosen=table.chosen, **parts), select)


def any_right(result: Result, right: Callable[[Tensor], Tensor], n: int | None = None) -> Tensor:
    """(B,) bool: whether any of the first n rollouts is right. A metric, and no way to choose.

    Args:
        result: of `Rollouts`.
        right: from answers (B, n) to (B,) bool, such as `lambda answers: score(answers, batch).exact`.
        n: how many of its rollouts; None for all.
    """
    table = _rollouts(result, "any_right")
    if n is not None and (isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= len(table.status)):
        raise invalid("any_right", "n", f"a whole number in 1..{len(table.status)} or None", n, "Run more rollouts.")
    flags = torch.stack([right(answers) for answers in table.output[:n]])
    if flags.shape != table.status[:n].shape or flags.dtype != torch.bool:
        raise InvalidShape(f"any_right: `right` must give one bool per sample, but gave {flags.dtype} of shape "
                           f"{tuple(flags.shape[1:])} for {table.status.shape[1]} samples.")
    return flags.any(0)


def _rollouts(result: Result, owner: str) -> RolloutTable:
    if result.rollouts is None:
        raise InvalidUse(f"{owner} needs a result of Rollouts; this one is of a single run.")
    return result.rollouts


def _table(flat: Result, n: int) -> RolloutTable:
    """Rows r * B + b as (R, B)."""

    def fold(column: Tensor) -> Tensor:
        return column.reshape(n, -1, *column.shape[1:])

    return RolloutTable(
        chosen=torch.zeros_like(flat.status[: len(flat) // n], dtype=torch.int64),
        output=fold(flat.output),
        status=fold(flat.status),
        loops=fold(flat.loops),
        updates=fold(flat.updates),
        updates_high=fold(flat.updates_high),
        mean_eta=fold(flat.mean_eta),
        score=None if flat.score is None else fold(flat.score),
    )


def _chosen(table: RolloutTable, select: Select) -> Result:
    """One rollout per sample; updates are those of all."""
    if select == "best-q":
        assert table.score is not None
        least = torch.finfo(table.score.dtype).min  # still above a rollout that went bad
        value = table.score.nan_to_num(nan=least, posinf=torch.inf, neginf=least)
    else:
        value = _votes(table)
    bad = table.status == int(Status.NONFINITE)
    value = torch.where(bad & ~bad.all(0), -torch.inf, value)
    chosen = _first_max(value)
    columns = torch.arange(table.status.shape[1], device=chosen.device)
    return Result(
        output=table.output[chosen, columns],
        status=table.status[chosen, columns],
        loops=table.loops[chosen, columns],
        updates=table.updates.sum(0),
        updates_high=table.updates_high.sum(0),
        score=None if table.score is None else table.score[chosen, columns],
        mean_eta=table.mean_eta[chosen, columns],
        rollouts=replace(table, chosen=chosen),
    )


def _votes(table: RolloutTable) -> Tensor:
    """(R, B) how many finite rollouts of its sample give each rollout's answer."""
    voting = table.status != int(Status.NONFINITE)
    rows = [((answers == table.output).all(-1) & voting).sum(0) for answers in table.output]
    return torch.stack(rows).float()


def _first_max(value: Tensor) -> Tensor:
    """(B,) the lowest index of the largest value (argmax promises no order among equals)."""
    index = torch.arange(len(value), device=value.device).unsqueeze(1)
    return torch.where(value == value.amax(0), index, len(value)).amin(0)


__all__ = ["Rollouts", "any_right", "prefix"]
