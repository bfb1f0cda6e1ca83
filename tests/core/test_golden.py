"""A few short trajectories, held as hexadecimal floats; golden/update.py is the only way to change them."""

import importlib.util
import json
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("golden_update", Path(__file__).parent / "golden" / "update.py")
update = importlib.util.module_from_spec(spec)
spec.loader.exec_module(update)
GOLDEN = json.loads(update.FILE.read_text())

# Sums over features are grouped by the width of the machine's vectors: the last bits of an energy may differ.
CLOSE = 2e-6


def test_every_rule_has_a_golden_trajectory():
    from looptaps.specs import CONTROLLERS

    assert list(GOLDEN) == update.SPECS
    assert {text.split(":")[0].split("@")[0] for text in GOLDEN} | {"standard"} == set(CONTROLLERS)


@pytest.mark.parametrize("text", GOLDEN)
def test_trajectories_are_those_on_file(text):
    for name, values in update.trajectory(text).items():
        found = [float.fromhex(value) for value in values]
        assert found == pytest.approx([float.fromhex(value) for value in GOLDEN[text][name]], abs=CLOSE), name


def test_golden_trajectories_visit_both_sides_of_one():
    etas = [float.fromhex(value) for text in GOLDEN if text.startswith("taps") for value in GOLDEN[text]["eta"]]
    assert min(etas) < 0.85
    assert max(etas) > 1.1
