"""What docs/models.md says of the bundled models is what the records in the package and the cards hold."""

import json
import re
from pathlib import Path

import pytest

import looptaps as lt
from looptaps.evaluation.provenance import model_facts
from looptaps.models.bundled import assets, bundled_file

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
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
