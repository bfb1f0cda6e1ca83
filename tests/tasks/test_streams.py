"""Promises about training streams: exact resume, independence of batching, no test puzzle, speed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from looptaps.errors import InvalidFile, InvalidShape, InvalidValue
from looptaps.tasks import (
    MazeRows,
    MazeStream,
    MazeStreamConfig,
    MixedStream,
    SudokuRows,
    SudokuStream,
    SudokuStreamConfig,
)
from looptaps.tasks.format import read_dataset
from looptaps.tasks.maze import generate_mazes, verify_mazes
from looptaps.tasks.random64 import held_out
from looptaps.tasks.sudoku import generate, verify

MAZES = Path(__file__).parent.parent / "data" / "maze_hard"
SIX = generate(30, 1, box=(2, 3))
SMALL_MAZES = generate_mazes(20, 1, size=8)


def sudoku(**more: Any) -> SudokuStream:
    return SudokuStream(SudokuStreamConfig(box=(2, 3), pool=32, copies=4, extra=[[0, 6], [40, 0]], **more))


def mixed() -> MixedStream:
    return MixedStream([(1, sudoku()), (2, SudokuRows(*SIX, box=(2, 3), extra=3))], seed=5)


STREAMS: dict[str, Callable[[], Any]] = {
    "sudoku": sudoku,
    "sudoku rows": lambda: SudokuRows(*SIX, box=(2, 3), seed=4),
    "sudoku rows as they are": lambda: SudokuRows(*SIX, box=(2, 3), augment=False),
    "mixed": mixed,
    "maze": lambda: MazeStream(MazeStreamConfig(size=8, pool=8, copies=4, shortest=[[0, 3], [30, 24]])),
    "maze rows": lambda: MazeRows(*SMALL_MAZES, seed=4),
}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_resumes_exactly_after_its_state_went_through_json(name: str) -> None:
    stream = STREAMS[name]()
    for n in (5, 64, 1, 0, 30):
        stream.take(n)
    state = json.loads(json.dumps(stream.state_dict()))
    want = [stream.take(n) for n in (16, 70)]
    other = STREAMS[name]()
    other.take(3)  # whatever it did before is forgotten
    other.load_state_dict(state)
    assert other.position == 100
    assert all(same(other.take(n), batch) for n, batch in zip((16, 70), want))


@pytest.mark.parametrize("name", STREAMS)
def test_samples_do_not_depend_on_how_they_are_batched(name: str) -> None:
    one, two = STREAMS[name](), STREAMS[name]()
    whole = one.take(50)
    parts = [two.take(n) for n in (1, 30, 0, 19)]
    assert same(whole, {key: torch.cat([part[key] for part in parts]) for key in whole})


@pytest.mark.parametrize("name", STREAMS)
def test_batches_are_what_models_take(name: str) -> None:
    stream = STREAMS[name]()
    batch = next(iter(stream.batches(6)))
    assert {key: tuple(value.shape) for key, value in batch.items()} == {
        "inputs": (6, stream.seq_len), "labels": (6, stream.seq_len), "puzzle_identifiers": (6,),
    }  # fmt: skip
    assert all(value.dtype == torch.int64 for value in batch.values())
    assert not batch["puzzle_identifiers"].any()
    assert int(batch["inputs"].max()) < stream.vocab_size


@pytest.mark.parametrize("name", ["sudoku", "sudoku rows", "mixed"])
def test_every_streamed_sudoku_has_one_solution_its_answer(name: str) -> None:
    batch = STREAMS[name]().take(200)
    verify(batch["inputs"].numpy(), batch["labels"].numpy(), box=(2, 3))


@pytest.mark.parametrize("name", ["maze", "maze rows"])
def test_every_streamed_maze_has_a_shortest_path_as_answer(name: str) -> None:
    batch = STREAMS[name]().take(200)
    verify_mazes(batch["inputs"].numpy(), batch["labels"].numpy())


@pytest.mark.parametrize("name", ["sudoku", "sudoku rows", "mixed", "maze", "maze rows"])
def test_no_training_stream_emits_a_puzzle_kept_for_tests(name: str) -> None:
    rows = STREAMS[name]().take(400)["inputs"].numpy().astype(np.uint8)
    assert not any(held_out(row) for row in rows)


def test_processes_see_different_generated_samples() -> None:
    config = SudokuStreamConfig(pool=8)
    rows = [SudokuStream(config, rank=rank).take(20)["inputs"] for rank in (0, 1)]
    assert not any(torch.equal(a, b) for a in rows[0] for b in rows[1])


def test_processes_share_the_rows_of_an_epoch_without_overlap() -> None:
    parts = [SudokuRows(*SIX, box=(2, 3), augment=False, rank=r, world_size=3).take(10)["inputs"] for r in range(3)]
    seen = {tuple(row.tolist()) for part in parts for row in part}
    assert seen == {tuple(row.tolist()) for row in SIX[0]}


def test_every_epoch_of_rows_has_each_row_once_in_another_order() -> None:
    stream = SudokuRows(*SIX, box=(2, 3), augment=False)
    first, second = (stream.take(30)["inputs"] for _ in range(2))
    assert not torch.equal(first, second)
    assert torch.equal(first.unique(dim=0), second.unique(dim=0))
    assert len(first.unique(dim=0)) == 30


def test_extra_clues_follow_the_phases() -> None:
    stream = SudokuStream(SudokuStreamConfig(pool=64, extra=((0, 16), (100, 0))))
    clues = (stream.take(200)["inputs"] > 1).sum(1).float()
    assert clues[:100].mean() > 30
    assert clues[100:].max() <= 30


def test_shortened_mazes_have_paths_of_every_length() -> None:
    stream = MazeStream(MazeStreamConfig(size=10, pool=16, shortest=((0, 3), (200, 31))))
    lengths = (stream.take(300)["labels"] == 5).sum(1) + 1
    assert lengths[:200].min() < 8
    assert lengths[200:].min() >= 31


def test_turned_mazes_keep_the_released_rule_unless_told_otherwise() -> None:
    train = read_dataset(MAZES / "train")
    redrawn = MazeRows(train.inputs, train.labels).take(64)
    turned = MazeRows(train.inputs, train.labels, redraw=False).take(64)
    assert torch.equal(redrawn["inputs"], turned["inputs"])
    assert not torch.equal(redrawn["labels"], turned["labels"])
    for batch in (redrawn, turned):
        verify_mazes(batch["inputs"].numpy(), batch["labels"].numpy())


def test_the_mix_follows_its_weights() -> None:
    stream = mixed()
    stream.take(3000)
    assert 900 < stream.streams[0].position < 1100


def test_streaming_is_cheap_beside_training() -> None:
    stream = SudokuStream(SudokuStreamConfig())
    stream.take(64)  # compiles, fills the pool
    begin = time.process_time()
    for _ in range(40):
        stream.take(64)
    # 45,000 samples per second of one core were measured; the promise is 1,000.
    assert 40 * 64 / (time.process_time() - begin) > 1000


def test_minimal_grids_come_at_a_hundred_per_second() -> None:
    generate(1, 0)
    begin = time.process_time()
    generate(100, 1)
    assert 100 / (time.process_time() - begin) > 100  # 1,700 were measured


def test_other_settings_are_refused_on_resume() -> None:
    with pytest.raises(InvalidFile, match="seed = 0, but this one 1"):
        sudoku(seed=1).load_state_dict(sudoku().state_dict())
    with pytest.raises(InvalidFile, match="crc32"):
        SudokuRows(SIX[0][:9], SIX[1][:9], box=(2, 3)).load_state_dict(
            SudokuRows(SIX[0][1:10], SIX[1][1:10], box=(2, 3)).state_dict()
        )
    with pytest.raises(InvalidFile, match="MixedStream"):
        mixed().load_state_dict(MixedStream([(1, sudoku())]).state_dict())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pool": 0}, "pool must be an integer >= 1"),
        ({"copies": -2}, "copies must be"),
        ({"extra": -1}, "extra must be"),
        ({"extra": [[5, 3]]}, "rising from sample 0"),
        ({"extra": [[0, 3], [0, 2]]}, "rising from sample 0"),
        ({"seed": -1}, "seed must be"),
        ({"box": (5, 5)}, "must be 2, 3 or 4"),
    ],
)
def test_bad_stream_settings_are_one_sentence(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        SudokuStreamConfig(**options)


def test_bad_rows_and_mixes_are_one_sentence() -> None:
    with pytest.raises(InvalidShape, match="at least one row"):
        SudokuRows(SIX[0][:0], SIX[1][:0], box=(2, 3))
    with pytest.raises(InvalidValue, match=r"tokens in 0\.\.5"):
        SudokuRows(*SIX, box=(2, 2))
    with pytest.raises(InvalidValue, match="without padding"):
        SudokuRows(np.zeros_like(SIX[0]), SIX[1], box=(2, 3))
    with pytest.raises(InvalidValue, match="one puzzle size"):
        MixedStream([(1, sudoku()), (1, STREAMS["maze"]())])
    with pytest.raises(InvalidValue, match="some weight > 0"):
        MixedStream([(0, sudoku())])
    with pytest.raises(InvalidValue, match=r"rank must be in 0\.\.1"):
        SudokuRows(*SIX, box=(2, 3), rank=2, world_size=2)
    with pytest.raises(InvalidValue, match="at most 18 for size 6"):
        MazeStreamConfig(size=6, min_path=19)
    with pytest.raises(InvalidValue, match="rising from sample 0"):
        MazeStreamConfig(shortest=[[3, 3]])  # type: ignore[arg-type]
