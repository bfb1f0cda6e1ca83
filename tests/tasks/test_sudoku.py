"""Promises about generated Sudoku, ratings and test sets."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from looptaps.errors import InvalidFile, InvalidValue, UnknownName
from looptaps.tasks import TASKS, SudokuTask, open_task, overlap
from looptaps.tasks.board import board_text, check_solution, parse_board, solve_board, to_board
from looptaps.tasks.random64 import held_out
from looptaps.tasks.sudoku import generate, verify
from looptaps.tasks.sudoku_kernel import geometry, solve

BOXES = [(2, 2), (2, 3), (3, 2), (3, 3), (2, 4)]


def brute_force(board: list[int], box: tuple[int, int], limit: int = 2) -> int:
    """Count solutions the plainest way: first blank cell, every digit."""
    rows, cols = box
    n = rows * cols
    if 0 not in board:
        return 1
    cell = board.index(0)
    i, j = divmod(cell, n)
    used = {board[k] for k in range(n * n)
            if k // n == i or k % n == j or (k // n // rows, k % n // cols) == (i // rows, j // cols)}  # fmt: skip
    found = 0
    for digit in range(1, n + 1):
        if digit not in used:
            found += brute_force([*board[:cell], digit, *board[cell + 1 :]], box, limit - found)
            if found >= limit:
                break
    return found


@pytest.mark.parametrize("box", BOXES)
def test_every_generated_puzzle_has_one_solution_its_answer(box: tuple[int, int]) -> None:
    inputs, labels = generate(40, 3, box=box)
    assert (verify(inputs, labels, box=box) >= 0).all()
    assert all(check_solution(to_board(x), to_board(y), box=box) for x, y in zip(inputs, labels))
    assert len(np.unique(inputs, axis=0)) == 40


@pytest.mark.parametrize("box", BOXES)
def test_no_clue_of_a_minimal_puzzle_can_be_removed(box: tuple[int, int]) -> None:
    shape = geometry(*box)
    out = np.zeros(shape.n**2, np.uint8)
    for tokens in generate(12, 4, box=box)[0]:
        board = to_board(tokens)
        for cell in np.flatnonzero(board):
            without = board.copy()
            without[cell] = 0
            assert solve(without, shape.units, shape.peers, out, 2)[0] == 2


@pytest.mark.parametrize("box", [(2, 2), (2, 3)])
def test_the_solver_counts_as_brute_force_does(box: tuple[int, int]) -> None:
    shape = geometry(*box)
    rng = np.random.default_rng(0)
    out = np.zeros(shape.n**2, np.uint8)
    seen = set()
    _, labels = generate(10, 5, box=box)
    for k in range(120):
        board = to_board(labels[k % 10])
        board[rng.random(board.size) < 0.65] = 0
        if k % 3 == 0:  # a wrong clue: often no solution
            cell = rng.integers(board.size)
            board[cell] = rng.integers(1, shape.n + 1)
        count = brute_force(board.tolist(), box) if not clash(board, box) else 0
        assert solve(board, shape.units, shape.peers, out, 2)[0] == count
        seen.add(count)
    assert seen == {0, 1, 2}


def clash(board: np.ndarray, box: tuple[int, int]) -> bool:
    try:
        parse_board(board_text(board), box=box)
    except InvalidValue:
        return True
    return False


def test_rating_zero_means_that_singles_suffice() -> None:
    easy = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
    assert solve_board(parse_board(easy))[1] == 0
    hard = "8..........36......7..9.2...5...7.......457.....1...3...1....68..85...1..9....4.."
    assert solve_board(parse_board(hard))[1] > 0


def test_minimal_9x9_puzzles_have_the_usual_clues_and_difficulty() -> None:
    task = SudokuTask.generated(400, 11)
    assert 23.9 < (81 - task.difficulty["empty"]).mean() < 24.8
    assert 0.48 < (task.difficulty["rating"] > 0).mean() < 0.68


def test_generated_sets_are_the_same_everywhere() -> None:
    assert SudokuTask.generated(6, 1).fingerprint() == SudokuTask.generated(6, 1).fingerprint()
    assert SudokuTask.generated(6, 1).fingerprint() != SudokuTask.generated(6, 2).fingerprint()
    # A golden value: a change of the generator would silently rename every published test set.
    assert board_text(to_board(SudokuTask.generated(1, 0).inputs[0])) == GOLDEN


GOLDEN = "1...678..5.9.....48..4.......1..64.....7...3...49..1.......1..6.......4..7.69.3.5"


def test_a_longer_set_begins_with_the_shorter_one() -> None:
    assert (SudokuTask.generated(9, 5).inputs[:4] == SudokuTask.generated(4, 5).inputs).all()


def test_extra_clues_are_added_up_to_the_number_asked_for() -> None:
    inputs, labels = generate(200, 2, extra=16)
    verify(inputs, labels)
    clues = (inputs > 1).sum(1)
    assert clues.max() > 32
    assert 30 < clues.mean() < 35


def test_test_sets_and_training_puzzles_are_disjoint_by_construction() -> None:
    for box in ((2, 2), (3, 3)):
        tests, _ = generate(60, 0, box=box, test=True)
        trains, _ = generate(60, 0, box=box, test=False)
        assert all(held_out(row) for row in tests)
        assert not any(held_out(row) for row in trains)
        assert len(overlap(tests, trains)) == 0


def test_overlap_finds_identical_puzzles() -> None:
    task = SudokuTask.generated(8, 0, box=(2, 2))
    assert overlap(task, task.inputs[[5, 2]]).tolist() == [2, 5]


def test_the_bundled_set_is_the_one_its_command_makes() -> None:
    bundled = open_task("sudoku")
    assert len(bundled) == 512
    assert (bundled.inputs[:16] == SudokuTask.generated(16, 2026).inputs).all()
    assert (verify(bundled.inputs, bundled.labels) == bundled.difficulty["rating"]).all()
    assert all(held_out(row) for row in bundled.inputs)


def test_batches_cover_every_sample_once_and_in_order() -> None:
    task = SudokuTask.generated(10, 0, box=(2, 2))
    batches = list(task.batches(4))
    assert [len(b.ids) for b in batches] == [4, 4, 2]
    assert [i for b in batches for i in b.ids.tolist()] == task.ids.tolist()
    assert batches[2].batch["inputs"].tolist() == task.inputs[8:].tolist()
    assert sorted(batches[0].batch) == ["inputs", "labels", "puzzle_identifiers"]
    assert all(str(t.dtype) == "torch.int64" for t in batches[0].batch.values())
    assert sum(len(b.ids) for b in task.batches(4, limit=5)) == 5


def test_selected_parts_keep_their_difficulty_and_say_what_they_are() -> None:
    task = SudokuTask.generated(10, 0, box=(2, 3))
    part = task.select(np.array([7, 1]))
    assert part.difficulty["rating"].tolist() == task.difficulty["rating"][[7, 1]].tolist()
    assert part.origin != task.origin
    assert task.select(slice(2, 5)).origin == task.origin + "[2:5:1]"


def test_origin_opens_the_same_set_again() -> None:
    task = SudokuTask.generated(5, 9, box=(2, 3), extra=2)
    assert open_task(task.origin).fingerprint() == task.fingerprint()


def test_asking_for_tasks_compiles_nothing() -> None:
    code = "import sys, looptaps.tasks as t; list(t.TASKS); print({'numba', 'torch', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
    assert TASKS["sudoku"] is SudokuTask


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        ("sudoku:generated:m=3", UnknownName, "Known: box, extra, n, seed"),
        ("sudoku:generated:n=many", InvalidValue, "n must be a whole number"),
        ("sudoku:generated:box=9", InvalidValue, "two numbers such as 3x3"),
        ("sudoku:generated:n=2:box=7x7", InvalidValue, "must be 2, 3 or 4"),
        ("sudoku:nowhere.txt", InvalidFile, "names no test set"),
        ("sudoku:nowhere.csv", InvalidFile, "cannot be read"),
        ("sudokux", UnknownName, "Did you mean 'sudoku'"),
        ("sudoku:generated:n=20000:box=2x2", InvalidValue, "Ask for fewer"),
    ],
)
def test_an_unknown_set_is_one_sentence(source: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        open_task(source)


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, True])
def test_seeds_outside_their_range_are_refused(seed: object) -> None:
    with pytest.raises(InvalidValue, match="seed must be an integer in 0"):
        SudokuTask.generated(1, seed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "words"),
    [((0, 1), "several solutions"), ((None, None), "another solution"), ((0, 11), "tokens in 1..10")],
)
def test_a_row_without_exactly_its_solution_is_named(change: tuple[int, int], words: str) -> None:
    inputs, labels = generate(3, 0)
    if change[0] is None:
        labels[1] = labels[2]
    else:
        inputs[1, np.flatnonzero(inputs[1] > 1)[0]] = change[1]
    with pytest.raises(InvalidValue, match=words):
        verify(inputs, labels)
