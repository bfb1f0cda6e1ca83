"""`looptaps demo` and `looptaps solve` on a model of a few thousand random weights: what they say, write and return."""

import re

import pytest
import torch
from typer.testing import CliRunner

from looptaps.cli.main import app
from looptaps.models import save_model
from looptaps.models.trm import TRM, TRMConfig

EASY = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
RULES = ("taps-gd", "taps-sign", "taps-momentum", "taps-rmsprop", "taps-adam", "taps-bb")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    config = TRMConfig(vocab_size=11, seq_len=81, hidden_size=16, num_heads=2, puzzle_emb_ndim=0, mlp_t=True,
                       pos_encodings="none", H_cycles=1, L_cycles=2, L_layers=1, token_inner=16, channel_inner=16)
    folder = tmp_path_factory.mktemp("model") / "tiny"
    save_model(TRM(config, torch.Generator().manual_seed(0)), folder)
    return f"trm:{folder}"


def run(*words, stdin=None):
    return CliRunner().invoke(app, list(words), input=stdin)


def test_demo_prints_every_policy_with_intervals_and_writes_figure_and_page(model, tmp_path):
    done = run("demo", "--puzzles", "8", "--loops", "3", "--model", model, "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    for name in ("unit", *RULES):
        assert re.search(rf"^{name} +0\.0 \[0\.0, \d+\.\d\]", done.output, re.MULTILINE), name
    assert "On 8 puzzles with 3 loops, unit solves 0.0 % [0.0, 32.4]. None of the others differs" in done.output
    assert "too few, or too easy, to tell policies apart" in done.output
    assert (tmp_path / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "demo.html").read_text(encoding="utf-8")
    assert page.count("<tr>") >= 8
    assert "<svg" in page
    assert not re.search(r"(src|href)=[\"']http", page), "the page loads something"


def test_solve_shows_the_board_and_says_that_a_wrong_answer_is_wrong(model):
    done = run("solve", EASY, "--model", model, "--loops", "4")
    assert done.exit_code == 1, done.output
    assert "Not solved after" in done.output


def test_solve_reads_a_file_and_standard_input(model, tmp_path):
    (tmp_path / "puzzle.txt").write_text("\n".join(EASY[i : i + 9] for i in range(0, 81, 9)))
    by_file = run("solve", str(tmp_path / "puzzle.txt"), "--model", model, "--loops", "4")
    by_pipe = run("solve", "-", "--model", model, "--loops", "4", stdin=EASY)
    assert by_file.output == by_pipe.output
    assert by_file.exit_code == by_pipe.exit_code == 1


@pytest.mark.parametrize(
    ("puzzle", "message"),
    [
        (EASY[:-1], "81 cells, but 80"),
        (EASY + ".", "81 cells, but 82"),
        ("x" + EASY[1:], "'x'"),
        ("5" * 2 + EASY[2:], "5"),
        ("." * 81, "several solutions"),
        ("12345678." + "." * 8 + "9" + "." * 63, "no solution"),
    ],
    ids=["80", "82", "letter", "clash", "many", "none"],
)
def test_a_wrong_puzzle_is_one_sentence(puzzle, message):
    from looptaps.errors import LooptapsError

    done = run("solve", puzzle)
    assert isinstance(done.exception, LooptapsError)
    assert message in str(done.exception)
