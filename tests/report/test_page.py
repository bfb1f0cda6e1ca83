"""The page as a file: its size, that it needs nothing else, and that its parts say what the runs say."""

import re

import numpy as np
import pytest
from typer.testing import CliRunner

import looptaps as lt
from looptaps.cli.main import app
from looptaps.evaluation.compare import compare, named
from looptaps.evaluation.measure import Policy
from looptaps.evaluation.records import load_run, run_folders
from looptaps.evaluation.runner import run_many
from looptaps.report.figures import refresh_drawing
from looptaps.report.page import drawings, write_figures, write_page
from looptaps.report.player import decode_boards, decode_series, encode_boards, encode_series, player_data
from looptaps.report.policy import policies_of
from looptaps.report.style import PALETTE, looks
from looptaps.tasks import open_task


@pytest.fixture(scope="module")
def made(folder, tmp_path_factory):
    runs = named([load_run(path) for path in run_folders([folder])])
    found = compare(runs)
    policies = policies_of(runs, found)
    path = tmp_path_factory.mktemp("page") / "page.html"
    return found, policies, write_page(path, found, policies, drawings(found, policies), title="A page")


def test_200_traced_puzzles_of_a_dozen_policies_stay_under_3_mb(telling, tmp_path):
    rules = {f"rule-{i}": Policy(lt.TapsGD(rho=0.2 + 0.02 * i)) for i in range(11)}
    runs = run_many(telling, open_task("sudoku"), {"unit": Policy(lt.Standard()), **rules}, out=tmp_path, loops=32,
                    limit=200, batch_size=200, trace=200)
    found = compare(runs)
    policies = policies_of(runs, found)
    page = write_page(tmp_path / "page.html", found, policies, drawings(found, policies), title="Large")
    assert page.stat().st_size < 3_000_000
    assert page.read_text().count('"frames"') == 12, "every policy is in the player"


def test_long_series_are_thinned_so_that_200_puzzles_of_18_updates_a_loop_stay_under_3_mb(telling, tmp_path):
    """As the released TRM makes them: 32 loops of 18, 576 numbers of noise in each series."""
    rules = {f"rule-{i}": Policy(lt.TapsGD(rho=0.2 + 0.02 * i)) for i in range(11)}
    runs = run_many(telling, open_task("sudoku"), {"unit": Policy(lt.Standard()), **rules}, out=tmp_path, loops=32,
                    limit=200, batch_size=200, trace=200)
    rng = np.random.default_rng(0)
    for name in rules:
        noise = {series: rng.normal(size=(200, 576)).astype(np.float32) for series in ("eta", "balance")}
        np.savez(runs[name].folder / "traces.npz", **{**runs[name].traces, **noise})
        runs[name] = load_run(runs[name].folder)
    found = compare(runs)
    policies = policies_of(runs, found)
    page = write_page(tmp_path / "page.html", found, policies, drawings(found, policies), title="Large")
    assert page.stat().st_size < 3_000_000
    assert "The curves show means of up to 3 updates" in page.read_text()
    data = player_data(policies, 200)
    run = next(run for run in data["runs"] if run["label"] == "rule-10")
    assert (run["updates"], run["thinned"]) == (192, 3)
    back = decode_series(run["eta"], (200, 192))
    assert back == pytest.approx(noise["eta"].reshape(200, 192, 3).mean(-1), abs=0.02)


def test_short_series_are_whole(made):
    data = player_data(made[1], 200)
    assert {run["thinned"] for run in data["runs"]} == {1}
    assert 'id="thinned"' not in made[2].read_text()


def line_of(figure):
    """What is drawn in the refresh figure: the lines' lengths, and each marker's colours by its policy."""
    lines = figure.axes[0].get_lines()
    joined = [len(line.get_xdata()) for line in lines if line.get_marker() == "None"]
    marks = {line.get_label(): (line.get_color(), line.get_markerfacecolor()) for line in lines
             if line.get_marker() == "o"}
    return joined, marks


def test_refresh_intervals_are_joined_where_q_alone_differs(made):
    """The same rule under an early exit, or at the outer site, is no point of that line; colours are the policies'."""
    found, policies, _ = made
    drawing = next(drawing for drawing in drawings(found, policies) if drawing.name == "refresh")
    assert [row[:2] for row in drawing.rows] == [["taps-gd", "1"], ["gd-q3", "3"]]
    joined, marks = line_of(drawing.figure)
    assert joined == [2]
    look = looks(policies)
    assert marks == {name: (look[name].colour, look[name].colour) for name in ("taps-gd", "gd-q3")}
    assert look["taps-gd"].colour != look["gd-q3"].colour
    assert "Hollow" not in drawing.caption


def test_speedups_of_separate_calls_are_marked_in_the_figure(made):
    found, policies, _ = made
    matched = {row.name: row.matched for row in found.rows}
    matched["gd-q3"] = matched["gd-q3"].model_copy(update={"timing": "separate"})
    drawing = refresh_drawing(policies, matched)
    _, marks = line_of(drawing.figure)
    assert marks["gd-q3"] == (looks(policies)["gd-q3"].colour, PALETTE["paper"].light), "hollow"
    assert marks["taps-gd"][1] == looks(policies)["taps-gd"].colour
    assert "Hollow (~ in the table): timed in a separate call" in drawing.caption
    assert drawing.rows[1][3].startswith("~")
    assert "speedup ~" in drawing.alt


def test_the_page_is_one_file(made):
    text = made[2].read_text(encoding="utf-8")
    assert not re.search(r"""(src|href)=["'](?!#|data:)""", text), "it refers to something outside"
    assert not re.search(r"url\((?!#)", text)
    assert len(re.findall(r'\bid="([^"]+)"', text)) == len(set(re.findall(r'\bid="([^"]+)"', text))), "an id twice"


def test_every_figure_of_the_issue_is_there_with_words(made):
    found, policies, path = made
    figures = drawings(found, policies)
    assert [figure.name for figure in figures] == ["accuracy", "difference", "eta", "difficulty", "refresh", "site"]
    text = path.read_text(encoding="utf-8")
    for figure in figures:
        assert figure.rows, figure.name
        assert f'id="{figure.name}"' in text
        assert len(figure.alt) > 40


def test_figures_for_papers_are_the_same_bytes_each_time(made, tmp_path):
    found, policies, _ = made
    once = write_figures(tmp_path / "a", drawings(found, policies), ("svg", "pdf"))
    again = write_figures(tmp_path / "b", drawings(found, policies), ("svg", "pdf"))
    assert len(once) == 12
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(once, again, strict=True))


def test_boards_and_series_come_back():
    rng = np.random.default_rng(0)
    inputs = rng.integers(0, 11, (3, 81)).astype(np.uint8)
    boards = rng.integers(1, 11, (3, 5, 81)).astype(np.uint8)
    boards[1, 2:] = 255
    text, frames = encode_boards(boards, inputs)
    assert frames == [5, 2, 5]
    assert (decode_boards(text, frames, inputs, 5) == boards).all()
    values = rng.normal(size=(3, 7))
    values[0, 4:] = np.nan
    back = decode_series(encode_series(values), values.shape)
    assert np.isnan(back[0, 4:]).all()
    assert np.nanmax(abs(back - values)) <= (np.nanmax(values) - np.nanmin(values)) / 254 / 2 + 1e-9
    assert encode_series(np.full((2, 2), np.nan)) is None


def test_a_script_tag_in_a_name_cannot_end_the_script(telling, tmp_path):
    runs = run_many(telling, open_task("sudoku"), {"unit": Policy(lt.Standard())}, out=tmp_path, loops=2, limit=8,
                    trace=2)  # fmt: skip
    named_ill = {"</script><script>alert(1)</script>": runs["unit"]}
    found = compare(named_ill)
    policies = policies_of(named_ill, found)
    text = write_page(tmp_path / "p.html", found, policies, drawings(found, policies), title="t").read_text()
    assert "<script>alert" not in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{folder}/unit", "--kinds", "gif"], "kind of figure 'gif'"),
        (["{folder}/nowhere"], "holds no run.json"),
        (["{folder}", "--baseline", "unti"], "Did you mean 'unit'"),
    ],
)
def test_wrong_input_is_one_sentence(folder, words, message):
    done = CliRunner().invoke(app, ["report", *(word.format(folder=folder) for word in words)])
    assert isinstance(done.exception, lt.errors.LooptapsError)
    assert message in str(done.exception)
