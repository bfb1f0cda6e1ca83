"""Promise: samples made ahead are the same samples, and a run goes on exactly with or without the thread."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from looptaps.errors import InvalidValue
from looptaps.tasks import MixedStream, SudokuRows, SudokuStream, SudokuStreamConfig, SudokuTask
from looptaps.tasks.prefetch import Prefetched
from looptaps.tasks.stream import Stream

SIZES = (5, 0, 1, 16, 3, 40, 7)


def generated() -> Stream:
    return SudokuStream(SudokuStreamConfig(box=(2, 2), seed=3, extra=((0, 6), (20, 0)), pool=16, copies=4))


def mixed() -> Stream:
    task = SudokuTask.generated(24, 5, box=(2, 2))
    inputs, labels = (np.asarray(rows) for rows in (task.inputs, task.labels))
    return MixedStream([(0.4, generated()), (0.6, SudokuRows(inputs, labels, box=(2, 2), seed=1))], seed=2)


@pytest.mark.parametrize("make", [generated, mixed])
@pytest.mark.parametrize("block", [1, 8, 64])
def test_same_samples_and_states(make, block):
    plain, ahead = make(), Prefetched(make(), block)
    for n in SIZES:
        want, have = plain.take(n), ahead.take(n)
        assert all(torch.equal(want[key], have[key]) for key in want)
        assert set(want) == set(have)
        assert ahead.position == plain.position
        assert ahead.state_dict() == plain.state_dict()


@pytest.mark.parametrize("make", [generated, mixed])
def test_resume_with_and_without(make):
    ahead = Prefetched(make(), 8)
    for n in SIZES:
        ahead.take(n)
    state = ahead.state_dict()
    want = ahead.take(20)["inputs"]
    bare, again = make(), Prefetched(make(), 32)
    bare.load_state_dict(state)
    again.take(3)  # what was made ahead of the jump is dropped
    again.load_state_dict(state)
    assert torch.equal(bare.take(20)["inputs"], want)
    assert torch.equal(again.take(20)["inputs"], want)
    assert again.state_dict() == bare.state_dict()


def test_errors_of_the_thread_arrive():
    class Broken(SudokuStream):
        def take(self, n):
            raise InvalidValue("no more puzzles")

    with pytest.raises(InvalidValue, match="no more puzzles"):
        Prefetched(Broken(SudokuStreamConfig(box=(2, 2), pool=16)), 4).take(1)


def test_mixed_stream_cannot_look_ahead():
    stream = mixed()
    stream.take(5)
    with pytest.raises(InvalidValue, match=r"0\.\.5"):
        stream.state_at(6)
