"""`StoppingRule`: what all strategies with one rollout share. A rule of your own is a subclass with one method."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from looptaps.errors import InvalidShape, InvalidType, invalid
from looptaps.loop import as_control
from looptaps.loop.model import AnyLoopModel
from looptaps.strategies.base import Result, Verdict, View, going_on
from looptaps.strategies.driver import Once, drive, gather
from looptaps.strategies.trace import TraceOption, recorder_for


class StoppingRule:
    """When a sample is done. Subclasses are frozen dataclasses; all state is in trees that the driver compacts.

    A subclass gives `limit`, and overrides `look` (asked at the end of every outer loop) and, if it remembers
    something, `begin`.
    """

    # Whether `look` needs the answer of every loop.
    reads: ClassVar[bool] = False

    @property
    def limit(self) -> int:
        """The outer loops after which a sample stops in any case."""
        raise NotImplementedError

    @property
    def moves(self) -> Literal["rms", "max"] | None:
        """The norm of the moves that `look` needs of every z_L update, if it does."""
        return None

    def check(self, model: Any) -> None:
        """Raise where this model cannot be run by this rule."""

    def begin(self, carry: Any, inputs: Tensor) -> Any:
        """The rule's memory for samples that have not yet run: a tree of batch-leading tensors, or None."""
        return None

    def look(self, view: View, state: Any) -> Verdict:
        """Who stops now, and why."""
        return Verdict(going_on(view), state)

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
        """Solve a batch; whoever is done is left out of the computation from then on.

        Args:
            model: a `LoopModel`.
            batch: `{"inputs": (B, n)}`, and what else the model takes.
            control: a controller, or a `Control` around one.
            seed: of random initial states, drawn per (seed, sample id), whatever the batching.
            ids: (B,) the samples' ids in their data set; left out, 0..B-1.
            trace: record what happens on the way; "loops" leaves the controller's decisions out.
        """
        control, ids = as_control(control), check_ids(batch, ids)
        check_model(model)
        self.check(model)
        recorder = recorder_for(trace, len(ids))
        source = Once(batch, ids, [0] * len(ids))
        done = gather(drive(self, model, control, source, seed=check_seed(seed), recorder=recorder), len(ids))
        return done if recorder is None else recorder.attach(done)


def check_model(model: Any) -> None:
    """Raise where something cannot be driven at all."""
    lacking = [name for name in ("begin", "advance", "readout") if not callable(getattr(model, name, None))]
    if lacking or isinstance(model, type):
        raise InvalidType(f"A strategy runs a LoopModel such as lt.load_model('trm', 'sudoku'), but got {model!r:.80}"
                          f"{f', which has no {lacking[0]}()' if lacking else ', a class'}. "
                          "Language models are controlled by lt.hf.attach, plain cores by lt.iterate.")


def check_ids(batch: Any, ids: Any) -> list[int]:
    """The samples' ids as numbers; left out, their places in the batch."""
    inputs = batch.get("inputs") if isinstance(batch, dict) else None
    if not isinstance(inputs, Tensor) or inputs.ndim < 1:
        raise InvalidType("A strategy runs a batch {'inputs': whole-number tensor (B, n), ...}, but got "
                          f"{type(batch).__name__}{'' if inputs is None else ' with inputs of another kind'}.")
    if not len(inputs):
        raise InvalidShape("This batch holds no samples. Leave empty batches out.")
    for key, value in batch.items():
        if not isinstance(value, Tensor) or value.ndim < 1 or len(value) != len(inputs):
            found = f"a tensor {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise InvalidShape(f"batch[{key!r}] must be a tensor with a row for each of the {len(inputs)} samples, but "
                               f"is {found}. Use torch.as_tensor, or leave it out.")
    if isinstance(ids, Tensor) and (ids.is_floating_point() or ids.ndim != 1):
        raise InvalidType(f"ids must be whole numbers (B,), but are {ids.dtype} of shape {tuple(ids.shape)}. "
                          "Use task.ids.")
    try:
        numbers = list(range(len(inputs))) if ids is None else [index(i) for i in ids]
    except TypeError:
        raise InvalidType(f"ids must be whole numbers, one for each sample, but are {ids!r:.80}. "
                          "Use task.ids.") from None
    if len(numbers) != len(inputs):
        raise InvalidShape(f"ids must name the {len(inputs)} samples of the batch, but there are {len(numbers)}.")
    return numbers


def check_seed(seed: Any) -> int:
    """Seeds are whole numbers in 0..2^63-1."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise invalid("run", "seed", "a whole number in 0..2^63-1", seed, "Use 0, for instance.")
    return seed


def check_whole(owner: str, field: str, value: Any, least: int, fix: str) -> None:
    """Raise where a field is no whole number, or too small."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise invalid(owner, field, f"a whole number >= {least}", value, fix)


def stop_where(rows: Tensor, code: int, codes: Tensor | None = None) -> Tensor:
    """Codes with `code` where `rows` is True and nothing was said yet."""
    if codes is None:
        codes = torch.zeros_like(rows, dtype=torch.int8)
    return torch.where(rows & (codes == 0), code, codes).to(torch.int8)
