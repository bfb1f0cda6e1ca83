"""A model that is told the answers, for tests of measuring and of pages: some puzzles it solves early, some never."""

from typing import NamedTuple

import pytest
import torch
from torch.nn.functional import one_hot

from looptaps.loop import Readout
from looptaps.models.base import LoopRun

torch.set_num_threads(1)


class TellingCarry(NamedTuple):
    z_L: torch.Tensor  # noqa: N815
    z_H: torch.Tensor  # noqa: N815
    answer: torch.Tensor
    rate: torch.Tensor


class Telling:
    """Each cell goes from the puzzle to the answer at its own rate: slowly, at once, or to and fro.

    Cells that go to and fro settle sooner where steps are damped, so rules and constants differ from the unit step.
    """

    kind = "telling"

    def begin(self, batch):
        inputs, labels = batch["inputs"], batch["labels"]
        numbers = torch.arange(1, inputs.shape[1] + 1)
        luck = ((inputs * numbers).sum(1, keepdim=True) * 7919 + numbers * 104729) % 1009 / 1009  # by puzzle and cell
        hard = ((inputs * numbers * numbers).sum(1, keepdim=True) % 97) / 97
        # f(z) = answer + rate (z - answer): rates near 1 are slow, near -1 go to and fro
        slow = 0.5 + 0.49 * luck * hard.sqrt()
        rate = torch.where(luck < 0.95 - 0.3 * hard, slow, 0.15 * hard - 1.0)
        rate = torch.where((hard > 0.9) & (luck > 0.5), 1.0, rate)  # never
        state = one_hot(inputs, 11).float()
        return TellingCarry(state, state.clone(), one_hot(labels.clamp(min=0), 11).float(), rate.unsqueeze(-1))

    def advance(self, carry, control, memory=None, *, trace=False, moves=None):
        run = LoopRun(control, memory, carry.z_L, 3, trace, moves)
        state = start = carry.z_L
        for _ in range(3):
            state = run.step(state, carry.answer + carry.rate * (state - carry.answer))
        high = 0.5 * (carry.z_H + state)
        if not run.inner:
            state = run.outer(start, state, carry.z_H, high)
        memory, stats = run.finish((state,), 3, 1)
        return carry._replace(z_L=state, z_H=high), memory, stats

    def readout(self, carry):
        return Readout(carry.z_L, carry.z_L.amax(-1).mean(-1))


@pytest.fixture(scope="session")
def telling():
    return Telling()
