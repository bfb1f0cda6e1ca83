"""Figures of models.md, training.md and puzzles.md in docs/ are those of the records, the cards and the recipes."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

import looptaps as lt
from looptaps.evaluation.provenance import model_facts
from looptaps.models import TRM
from looptaps.models.bundled import assets, bundled_file, bundled_models
from looptaps.tasks import MazeTask
from looptaps.train.recipe import load_recipe

ROOT = Path(__file__).parents[2]
PAGE, TRAINING, PUZZLES = ((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
                           for page in ("models", "training", "puzzles"))
RECORDS = {"sudoku-trm": "trm:sudoku", "sudoku-extreme": "trm:sudoku", "sudoku-looped": "looped:sudoku",
           "maze-trm": "trm:maze"}


def _base(record):
    found = json.loads((assets() / "records" / f"{record}.json").read_text())
    return next(row for row in found["rows"] if row["name"] == found["base"]), found["facts"]


@pytest.mark.parametrize(("record", "model"), RECORDS.items())
def test_a_record_is_of_the_weights_in_the_package(record, model):
    row, facts = _base(record)
    assert row["kind"] == "unit"
    assert row["model"] == model
    assert row["model_sha256"] == model_facts(lt.load_model(model), model)["sha256"]
    assert facts["loops"] == 32


@pytest.mark.parametrize(("record", "model"), RECORDS.items())
def test_the_table_of_the_documentation_is_the_record(record, model):
    row, facts = _base(record)
    loops, accuracy = row["by_loop"], row["accuracy"]
    low, high = (f"{100 * accuracy[end]:.1f}" for end in ("low", "high"))
    last = f"{100 * loops[0]:.1f} | {100 * loops[7]:.1f} | {100 * accuracy['value']:.1f} [{low}, {high}] |"
    (line,) = [line for line in PAGE.splitlines() if line.endswith(last)]
    if f"`{model}`" in line:
        assert f"| {row['parameters']:,} |" in line
    assert f"{facts['puzzles']:,}" in line


def test_accuracy_of_the_sudoku_trm_still_rises_from_loop_8_to_32():
    for record, least in (("sudoku-trm", 0.85), ("sudoku-extreme", 0.35)):
        loops = _base(record)[0]["by_loop"]
        assert loops[7] + 0.02 < loops[31]
        assert loops[31] >= least


def test_what_is_said_of_fprm_is_its_card():
    card = bundled_file("fprm", "sudoku").with_suffix(".md").read_text()
    names, rows = re.findall(r"^\| step .*$", card, re.MULTILINE)[0], re.findall(r"^\| \d+ \|.*$", card, re.MULTILINE)
    last = dict(zip(names.split(" | "), rows[-1].split(" | "), strict=True))
    shares = [last[f"generated @{loop}"] for loop in (6, 24, 96)]
    assert f"has {shares[0]}, {shares[1]} and {shares[2]} % after 6, 24 and 96" in " ".join(PAGE.split())


def _figures(benchmark):
    return json.loads((ROOT / "benchmarks" / "results" / f"{benchmark}.json").read_text())["figures"]


def _card(model):
    return bundled_file(*model.split(":")).with_suffix(".md").read_text()


def test_sizes_minutes_and_data_of_the_bundled_models_are_those_of_files_and_cards():
    text = " ".join(PAGE.split())
    sizes = sorted(bundled_file(*model.split(":")).stat().st_size / 1e6 for model in bundled_models())
    assert f"{sizes[0]:.1f} to {sizes[-1]:.1f} MB each" in text
    minutes = {model: re.search(r"steps, ([\d.]+) minutes on 1 x NVIDIA H200", _card(model))[1].removesuffix(".0")
               for model in bundled_models()}
    assert (f"{minutes['trm:sudoku']} minutes for the Sudoku TRM, {minutes['looped:sudoku']} for the looped "
            f"transformer, {minutes['trm:maze']} for the mazes, {minutes['fprm:sudoku']} for FPRM, on one H200") in text
    assert f"`fprm:sudoku` ({re.search('([0-9,]+) parameters', _card('fprm:sudoku'))[1]} parameters)" in text
    puzzles = re.search(r'"puzzles": (\d+)', _card("fprm:sudoku"))[1]
    assert f"on {puzzles} generated puzzles" in text
    for model in bundled_models():
        mixed = model.endswith(":sudoku")
        assert ('{"train_50k.csv": ' in _card(model)) == mixed
        assert "generated puzzles alone" in _card(model) or '"rows_share": 0.5' in _card(model)
        assert lt.load_model(model).config.mlp_t == mixed  # a token mixer, no attention
        assert "seed 0" in _card(model)


def test_the_maze_model_solves_no_larger_maze():
    model, task = lt.load_model("trm:maze"), MazeTask.generated(8, seed=77, size=16)
    larger = TRM.from_weights(dataclasses.replace(model.config, seq_len=task.seq_len), model.state_dict(), "trm:maze")
    found = lt.FixedDepth(16).run(larger.eval(), task.batch(task.ids), lt.Standard())
    assert not task.valid(task.ids, found.output).any()
    assert f"(900 / 196)^2 = {(900 / 196)**2:.0f} times" in PAGE


def test_the_recipes_minutes_are_those_of_the_recipes():
    rows = re.findall(r"^\| `(train_\w+\.toml)` .* (\d+)(?:, on a CPU)? \|$", TRAINING, re.MULTILINE)
    assert len(rows) == 5
    for name, minutes in rows:
        assert load_recipe(ROOT / "recipes" / name).schedule.minutes == float(minutes)


def test_the_training_throughput_is_its_record():
    found = _figures("train_throughput")
    rates, ratio = found["sample_steps_per_cpu_second"], found["ratio"]
    assert found["compiled"]
    assert found["box"] == "3x3"
    text = " ".join(TRAINING.split())
    assert f"batch {found['batch_size']}, 9x9 Sudoku: the trainer makes {rates['looptaps']['median']:.0f} " in text
    assert f"a bare loop written for that one model {rates['bare loop']['median']:.0f}, in turns" in text
    assert (f"the ratio is {ratio['median']} ({ratio['least']} to {ratio['most']} of {found['rounds']} rounds, "
            "`benchmarks/results/train_throughput.json`") in text


def test_the_generators_table_is_its_record():
    rates = {name: f"{rate['median']:,}" for name, rate in _figures("generators")["per_cpu_second"].items()}
    expected = [
        f"| minimal 9x9 Sudoku | {rates['new minimal 9x9']} | {rates['streamed 9x9 samples']} |",
        f"| minimal 6x6 Sudoku | {rates['new minimal 6x6']} | {rates['streamed 6x6 samples']} |",
        f"| 30x30 mazes | {rates['new 30x30 mazes']} | {rates['streamed 30x30 maze samples']} |",
    ]
    lines = PUZZLES.splitlines()
    start = lines.index("| | from nothing | streamed |") + 2
    assert lines[start:start + 4] == [*expected, ""]
