"""Means over the steps since the last log line."""

from __future__ import annotations

import time
from typing import Any

import torch

from looptaps.train.carry import Slots, StepOutput


class Meter:
    """Sums over samples, saved with the checkpoint so that a resumed run reports the same."""

    def __init__(self, sums: dict[str, float] | None = None) -> None:
        self.sums = dict(sums or {})
        self.since = time.monotonic()
        self.timed = 0

    def add(self, output: StepOutput, slots: Slots) -> None:
        """Count one outer loop of all slots, as they stand after it."""
        size, halted = output.exact.shape[0], slots.halted
        values = {
            "loss": output.loss.detach() * size,
            "answer": torch.where(output.finite, output.answer, 0).sum(),
            "penalty": output.penalty * size,
            "halted": halted.sum(),
            "exact": (output.exact & halted).sum(),
            "loops": torch.where(halted, slots.loops, 0).sum(),
            "bad": (~output.finite).sum(),
        }
        if output.q_halt is not None:
            values["q_right"] = (((output.q_halt >= 0) == output.exact) & halted).sum()
        # One copy from the device for all of them; float64 holds every count exactly.
        numbers = torch.stack([value.double() for value in values.values()]).tolist()
        self.timed += size
        self.sums["samples"] = self.sums.get("samples", 0) + size
        for key, value in zip(values, numbers, strict=True):
            self.sums[key] = self.sums.get(key, 0) + value

    def line(self, processes: int) -> dict[str, Any]:
        """Losses per sample and loop; exact, loops and q_accuracy over samples that halted. Of the first process."""
        sums, halted = self.sums, max(self.sums["halted"], 1)
        return {
            "loss": sums["loss"] / sums["samples"],
            "answer_loss": sums["answer"] / sums["samples"],
            "penalty": sums["penalty"] / sums["samples"],
            "exact": sums["exact"] / halted,
            "loops": sums["loops"] / halted,
            "q_accuracy": sums.get("q_right", 0) / halted,
            "bad": int(sums["bad"]),
            "per_second": processes * self.timed / max(time.monotonic() - self.since, 1e-9),
        }
