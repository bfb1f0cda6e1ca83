"""The benchmarks of strategies and control run as written, and their records say what was measured, how and on what."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

import looptaps as lt
from looptaps.models import TRM, TRMConfig, save_model
from looptaps.report.recorded import record_tables

ROOT = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = {
    "adaptive_exit": ["--batch-size", "3", "--segment", "1"],
    "fixed_point": ["--updates", "24", "--resamples", "20"],
    "rollouts": ["--rollouts", "2", "--loops", "2"],
    "control_axes": ["--loops", "2"],
    "controller_overhead": ["--repeats", "2"],
}

ROWS = ("policies", "methods", "cells", "seconds_of_the_unit_step")


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    """A small model, and puzzles in a file."""
    folder = tmp_path_factory.mktemp("benchmark")
    config = TRMConfig(vocab_size=6, seq_len=16, hidden_size=32, num_heads=2, puzzle_emb_ndim=0, H_cycles=2, L_cycles=2)
    save_model(TRM(config, torch.Generator().manual_seed(0)), folder / "tiny.safetensors")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        from common import puzzles

        puzzles.write("sudoku:generated:n=6:seed=1:box=2x2", folder / "puzzles.npz")
        yield folder
    for name in [name for name in sys.modules if name == "common" or name.startswith("common.")]:
        del sys.modules[name]


def run(name, folder, out, monkeypatch, *more):
    source = importlib.util.spec_from_file_location(f"benchmark_{name}", ROOT / f"{name}.py")
    script = importlib.util.module_from_spec(source)
    source.loader.exec_module(script)
    monkeypatch.setattr(sys, "argv", [name, "--model", str(folder / "tiny.safetensors"), "--limit", "6", "--puzzles",
                                      str(folder / "puzzles.npz"), "--out", str(out), *more])
    script.main()


def intervals(value):
    """Every figure that has an interval."""
    if isinstance(value, dict):
        if "interval_95" in value:
            yield value
        for part in value.values():
            yield from intervals(part)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_benchmark_runs_and_records(name, setting, tmp_path, monkeypatch, capsys):
    out = tmp_path / "deep" / "record.json"
    run(name, setting, out, monkeypatch, *SCRIPTS[name])
    record = json.loads(out.read_text())
    assert record["schema"] == 1
    assert record["name"] == name
    assert len(record["measured"]) > 100
    assert record["model"]["spec"] == "tiny.safetensors"
    assert len(record["model"]["sha256"]) == 64
    assert record["puzzles"]["count"] == 6
    assert record["device"]["type"] == "cpu"
    assert record["device"]["threads"] == 1
    assert record["versions"]["torch"] == torch.__version__
    assert record["versions"]["looptaps"] == lt.__version__
    assert "commit" in record
    found = list(intervals(record["figures"]))
    assert len(found) >= 7
    for figure in found:
        low, high = figure["interval_95"]
        value = next(figure[key] for key in ("percent", "points", "mean", "value") if key in figure)
        assert value is not None
        assert high is None or low <= high
    assert str(setting) not in out.read_text()
    assert "|" in capsys.readouterr().out or name == "controller_overhead"
    table, *more = record_tables(out)
    assert len(more) == (name == "adaptive_exit")  # by difficulty
    policies = next(record["figures"][key] for key in ROWS if key in record["figures"])
    assert [row[0] for row in table.rows] == list(policies)
    assert {len(row) for row in table.rows} == {len(table.columns)}
    for key in ("accuracy", "terminal"):
        for row, figures in zip(table.rows, policies.values(), strict=True):
            assert key not in figures or any(cell.startswith(f"{figures[key]['percent']:.1f}") for cell in row)
    assert "6 puzzles" in [table, *more][-1].caption


def test_without_full_or_out_nothing_is_written(setting, monkeypatch, tmp_path, capsys):
    from common import record
    from common import setting as settings

    monkeypatch.setattr(settings, "RESULTS", tmp_path)
    monkeypatch.setattr(record, "git_state", lambda: pytest.fail("a record was made"))
    source = importlib.util.spec_from_file_location("benchmark_short", ROOT / "controller_overhead.py")
    script = importlib.util.module_from_spec(source)
    source.loader.exec_module(script)
    monkeypatch.setattr(sys, "argv", ["x", "--model", str(setting / "tiny.safetensors"), "--limit", "2", "--repeats",
                                      "2", "--puzzles", str(setting / "puzzles.npz")])
    script.main()
    assert "wrote" not in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_too_few_puzzles_are_said(setting, monkeypatch, tmp_path):
    with pytest.raises(SystemExit, match="holds 6 puzzles, and 7 were asked for"):
        run("control_axes", setting, tmp_path / "record.json", monkeypatch, "--limit", "7")


def test_rollouts_go_on_with_the_cells_that_the_record_lacks(setting, tmp_path, monkeypatch, capsys):
    out, more = tmp_path / "record.json", SCRIPTS["rollouts"]
    run("rollouts", setting, out, monkeypatch, *more)
    whole = json.loads(out.read_text())["figures"]["cells"]
    part = json.loads(out.read_text())
    del part["figures"]["cells"]["z_L, sigma 0.2, taps-gd"]
    del part["figures"]["cells"]["z_H, sigma 0.2, taps-adam"]
    kept = part["figures"]["cells"]["z_L, sigma 0.2, unit"]
    kept["seconds"] = -1.0
    out.write_text(json.dumps(part))
    run("rollouts", setting, out, monkeypatch, *more, "--resume")
    again = json.loads(out.read_text())["figures"]["cells"]
    assert again["z_L, sigma 0.2, unit"] == kept, "what is there is not run again"
    for name, row in whole.items():
        assert again[name]["budgets"] == row["budgets"]
    with pytest.raises(SystemExit, match="is of other loops"):
        run("rollouts", setting, out, monkeypatch, "--rollouts", "2", "--loops", "3", "--resume")
