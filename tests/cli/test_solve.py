"""`looptaps solve` with the models in the package and with one's own: Sudokus of any size, mazes, and wrong input."""

import contextlib
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from looptaps.cli.main import app
from looptaps.errors import InvalidFile, InvalidUse, InvalidValue
from looptaps.models import save_model
from looptaps.models.trm import TRM, TRMConfig
from looptaps.tasks.board import board_text, format_board, solve_board, to_board, to_tokens
from looptaps.tasks.maze import generate_mazes, maze_text
from looptaps.tasks.sudoku import generate

EASY = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"


def run(*words, stdin=None):
    return CliRunner().invoke(app, ["solve", *words], input=stdin)


@pytest.fixture
def untrained(tmp_path):
    """untrained(cells, tokens): a model of random weights, as --model takes it."""

    def build(cells, tokens):
        config = TRMConfig(vocab_size=tokens, seq_len=cells, hidden_size=16, num_heads=2, puzzle_emb_ndim=0, mlp_t=True,
                           pos_encodings="none", H_cycles=1, L_cycles=2, L_layers=1, token_inner=16, channel_inner=16)
        save_model(TRM(config, torch.Generator().manual_seed(0)), tmp_path / "model")
        return f"trm:{tmp_path / 'model'}"

    return build


@pytest.mark.parametrize("model", ["trm:sudoku", "looped:sudoku", "fprm:sudoku"])
def test_the_models_in_the_package_solve_an_easy_sudoku(model):
    done = run(EASY, "--model", model)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("5 3 4 | 6 7 8 | 9 1 2\n")
    assert "Solved in " in done.output


def test_a_maze_is_solved_by_the_maze_model(tmp_path):
    (maze,), _ = generate_mazes(1, seed=9, size=14, test=True)
    (tmp_path / "maze.txt").write_text(maze_text(maze) + "\n")
    done = run(str(tmp_path / "maze.txt"))
    assert done.exit_code == 0, done.output
    drawn = done.output.split("\n\nSolved in ")[0]
    assert [row.replace("o", " ") for row in drawn.splitlines()] == maze_text(maze).splitlines()
    assert drawn.count("o") >= 45  # the shortest way in a generated 14x14 maze
    assert run("-", stdin=maze_text(maze)).output == done.output


def test_a_wrong_answer_is_said_to_be_wrong_and_why(untrained, tmp_path):
    (maze,), _ = generate_mazes(1, seed=9, size=6)
    done = run("-", "--model", untrained(36, 6), stdin=maze_text(maze))
    assert done.exit_code == 1, done.output
    assert "Not solved after " in done.output
    assert "row 1, column 1 is" in done.output


def test_a_grid_of_the_models_own_size_is_read(untrained):
    (tokens,), _ = generate(1, seed=3, box=(2, 3))
    model, puzzle = untrained(36, 8), board_text(to_board(tokens))
    done = run(puzzle, "--model", model, "--loops", "4")
    assert done.exit_code == 1, done.output
    assert done.output.count("\n") >= 7  # six rows and a line between boxes
    assert "A 6x6 Sudoku has 36 cells, but 35" in str(run(puzzle[:-1], "--model", model).exception)


def test_a_grid_with_boxes_turned_is_read_and_drawn_with_them(untrained):
    (tokens,), _ = generate(1, seed=3, box=(3, 2))
    puzzle = board_text(to_board(tokens))
    with pytest.raises(InvalidValue):
        solve_board(to_board(tokens), box=(2, 3))
    done = run(puzzle, "--model", untrained(36, 8), "--loops", "4")
    assert done.exit_code == 1, done.output
    assert "\n(boxes of 3 rows and 2 columns)\n" in done.output
    assert done.output.splitlines()[3].count("+") == 2  # three boxes side by side, three rows each
    twice = "11" + "." * 34
    assert "1 stands twice in row 1" in str(run(twice, "--model", untrained(36, 8)).exception)


def test_a_grid_that_has_an_answer_with_either_box_may_be_answered_with_either(untrained):
    from looptaps.cli.solve import _sudoku

    config = TRMConfig(vocab_size=8, seq_len=36)
    for tokens in generate(100, seed=5, box=(3, 2))[0]:
        board = to_board(tokens)
        with contextlib.suppress(InvalidValue):
            answers = {box: solve_board(board, box=box)[0] for box in ((2, 3), (3, 2))}
            break
    posed = _sudoku(board_text(board), "trm:mine", config)
    assert (answers[2, 3] != answers[3, 2]).any()
    for box, answer in answers.items():
        assert posed.fault(to_tokens(answer)) is None
        assert posed.show(to_tokens(answer)).startswith(format_board(answer, box=box))
    assert posed.fault(to_tokens(board)) is not None


@pytest.mark.parametrize(("words", "error", "message"), [
    (["nowhere.txt"], InvalidFile, "There is no file nowhere.txt"),
    (["some/folder/puzzle"], InvalidFile, "There is no file some/folder/puzzle"),
    (["."], InvalidFile, ". is a folder"),
    ([""], InvalidValue, "The puzzle is an empty text. Give its characters, a file, or -"),
    ([EASY, "--model", "trm:maze"], InvalidUse, "trm:maze is no model of Sudokus: it works on 196 cells of 6 tokens"),
    (["##S\n", "--model", "trm:sudoku"], InvalidUse, "trm:sudoku is no model of mazes"),
    (["S###\n####\n####\n###G"], InvalidUse, "solves mazes of 14 x 14 cells, but this one has 4 x 4"),
    (["###\n" * 3], InvalidValue, "4 to 100 lines"),
])
def test_what_cannot_be_asked_is_one_sentence(words, error, message):
    done = run(*words)
    assert isinstance(done.exception, error), done.exception
    assert message in str(done.exception)
    assert "\n" not in str(done.exception).strip()


def test_a_file_that_is_no_text_is_one_sentence_and_exit_code_2(tmp_path):
    (tmp_path / "puzzle.txt").write_bytes(b"\xff\xfe\x00\x01")
    command = [sys.executable, "-m", "looptaps", "solve", str(tmp_path / "puzzle.txt")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "cannot be read as text" in done.stderr
