"""Promises about boards as text and about bad puzzles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from looptaps.errors import InvalidShape, InvalidValue, LooptapsError
from looptaps.tasks.board import (
    answer_fault,
    board_text,
    check_solution,
    format_board,
    parse_board,
    shape_of,
    solve_board,
    to_board,
    to_tokens,
)

PUZZLE = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
ANSWER = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"


def test_a_board_is_read_with_any_blank_and_any_layout() -> None:
    board = parse_board(PUZZLE)
    assert (parse_board(PUZZLE.replace(".", "0")) == board).all()
    assert (parse_board(PUZZLE.replace(".", "_")) == board).all()
    lines = "\r\n".join(PUZZLE[i : i + 9] for i in range(0, 81, 9))
    assert (parse_board(f"  {lines}\n") == board).all()


@given(st.integers(0, 80), st.integers(1, 9))
def test_a_drawn_board_reads_back(cell: int, digit: int) -> None:
    board = np.zeros(81, np.uint8)
    board[cell] = digit
    assert (parse_board(format_board(board)) == board).all()
    assert (parse_board(board_text(board)) == board).all()
    assert (to_board(to_tokens(board)) == board).all()


def test_larger_grids_use_letters() -> None:
    board = np.zeros(144, np.uint8)
    board[3] = 12
    assert "C" in board_text(board)
    assert (parse_board(format_board(board, box=(3, 4)), box=(3, 4)) == board).all()


def test_the_solution_of_a_puzzle_is_found_and_checked() -> None:
    board = parse_board(PUZZLE)
    solution, guesses = solve_board(board)
    assert board_text(solution) == ANSWER
    assert guesses == 0
    assert check_solution(board, solution)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PUZZLE[:80], "has 81 cells, but 80 were given"),
        (PUZZLE + ".", "has 81 cells, but 82 were given"),
        (PUZZLE[:80] + "x", "character 81 is 'x'"),
        ("", "but 0 were given"),
        ("55" + PUZZLE[2:], r"5 stands twice in row 1 \(row 1, column 1; row 1, column 2\)"),
        (PUZZLE[:72] + "5" + PUZZLE[73:], "5 stands twice in column 1"),
    ],
)
def test_a_bad_board_is_one_sentence_that_says_where(text: str, words: str) -> None:
    with pytest.raises(InvalidValue, match=words) as caught:
        parse_board(text)
    assert isinstance(caught.value, LooptapsError)
    assert "\n" not in str(caught.value)


def test_a_digit_too_large_for_the_grid_is_refused() -> None:
    with pytest.raises(InvalidValue, match="written with 1-6"):
        parse_board("7" + "." * 35, box=(2, 3))


def test_a_puzzle_without_solution_says_so() -> None:
    board = parse_board("12345678." + "........9" + "." * 63)  # row 1 lacks a 9, which its last box has already
    with pytest.raises(InvalidValue, match="no solution"):
        solve_board(board)


def test_a_puzzle_with_several_solutions_says_so() -> None:
    board = parse_board(PUZZLE)
    board[np.flatnonzero(board)[:6]] = 0
    with pytest.raises(InvalidValue, match="several solutions with its 24 clues"):
        solve_board(board)


def test_a_wrong_answer_is_explained() -> None:
    board, answer = parse_board(PUZZLE), parse_board(ANSWER)
    assert answer_fault(board, answer) is None
    blank = answer.copy()
    blank[10] = 0
    assert answer_fault(board, blank) == "row 2, column 2 is blank"
    changed = answer.copy()
    changed[0] = 9
    assert answer_fault(board, changed) == "row 1, column 1 is 9 instead of the clue 5"
    swapped = answer.copy()
    swapped[[2, 3]] = swapped[[3, 2]]
    assert "stands twice" in str(answer_fault(board, swapped))
    assert answer_fault(board, answer[:80]) == "80 cells instead of 81"


def test_the_box_follows_from_the_cells() -> None:
    assert [shape_of(n) for n in (16, 36, 81)] == [(2, 2), (2, 3), (3, 3)]
    with pytest.raises(InvalidShape, match="but here are 80"):
        shape_of(80)
