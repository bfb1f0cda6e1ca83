"""Comparisons: by hand, against scipy, of a run with itself, and of runs that may not be compared."""

import csv
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

import looptaps as lt
from looptaps.cli.main import app
from looptaps.evaluation.compare import compare
from looptaps.evaluation.comparison import from_json, read_comparison
from looptaps.evaluation.matched import clock, crossings, speedup, work_until
from looptaps.evaluation.measure import Policy
from looptaps.evaluation.records import Run
from looptaps.evaluation.runner import run_many
from looptaps.report.summary import needed, puzzles_needed, verdict
from looptaps.report.tables import as_text, cells, columns
from looptaps.tasks import open_task


def made(correct, *, controller="standard", eta=1.0, loops=None, seconds=(1.0, 1.0), group="g", **meta):
    """A run with these flags (N, H)."""
    correct = np.asarray(correct, bool)
    n, horizon = correct.shape
    loops = np.full(n, horizon) if loops is None else np.asarray(loops)
    return Run(
        folder=Path(f"{controller}-{eta}"), ids=np.arange(n), correct=correct, loops=loops, updates=36 * loops,
        updates_high=6 * loops, status=np.full(n, "RAN_ALL"), eta=np.full(n, eta),
        eta_by_loop=np.full((n, horizon), eta), score=None, any=None, difficulty={}, rows=[],
        meta={
            "name": controller, "controller": controller, "strategy": f"fixed-depth:loops={horizon}", "loops": horizon,
            "control": {"site": "inner", "outer_at": "cycle", "every": 1, "scope": "sample", "memory": "rollout"},
            "seed": 0, "batch_size": 2, "refill": False, "dtype": "float32", "compiled": False, "looptaps": "0",
            "task": {"spec": "sudoku", "sha256": "ab", "n": n, "name": "sudoku"},
            "model": {"spec": "m", "sha256": "cd", "parameters": 7}, "git": {"commit": None, "dirty": None},
            "device": {"type": "cpu", "name": "c", "threads": 1}, "versions": {"torch": "2"}, "finished": "z",
            "timing": {"seconds": sum(seconds), "batch_seconds": list(seconds), "group": group}, **meta,
        },
    )  # fmt: skip


def by_counts(*solved, n=100):
    """(n, H): so many are right after each loop, the same ones first."""
    return np.arange(n)[:, None] < np.asarray(solved)


def test_matched_accuracy_by_hand():
    """Unit ends at 60 %, first reached by the rule in loop 2 of 4, at 1.2 times unit's time per batch."""
    unit = made(by_counts(20, 50, 60, 60), seconds=(1.0, 2.0, 1.0))
    rule = made(by_counts(30, 61, 64, 70), controller="taps-gd", seconds=(1.2, 2.4, 1.5))
    found = compare({"unit": unit, "gd": rule})
    matched = found.row("gd").matched
    assert matched.loop == 2
    assert matched.ratio == pytest.approx(1.2), "the median over batches, not 5.1 / 4"
    assert matched.spread == pytest.approx((1.2, 1.35))
    assert matched.speedup == pytest.approx(1 / (1.2 * 2 / 4), abs=1e-4)
    own = found.row("unit").matched
    assert own.loop == 3, "unit itself is there one loop early"
    assert own.speedup == pytest.approx(4 / 3, abs=1e-4)
    assert own.timing == matched.timing == "interleaved"
    assert matched.loop_low <= 2 <= matched.loop_high


def test_not_reached_is_said():
    found = compare({"unit": made(by_counts(20, 60)), "gd": made(by_counts(30, 40), controller="taps-gd")})
    matched = found.row("gd").matched
    assert (matched.loop, matched.loop_low, matched.loop_high, matched.speedup) == (None, None, None, None)
    assert matched.reached == 0.0
    assert "N/R [N/R, N/R]" in cells(found, found.row("gd"))
    assert "None reaches the final accuracy of unit, so there is no speedup (N/R)" in verdict(found)


def test_a_baseline_that_solves_nothing_is_no_target():
    found = compare({"unit": made(by_counts(0, 0)), "gd": made(by_counts(0, 5), controller="taps-gd")})
    assert found.row("gd").matched.loop is None
    assert "unit solves nothing" in verdict(found)


def test_early_exits_are_timed_by_the_work_that_is_done():
    run = made(by_counts(50, 50, 50, 50), loops=[1] * 50 + [4] * 50)
    assert work_until(run, 1) == pytest.approx(100 / 250)
    assert work_until(run, 3) == pytest.approx((50 + 150) / 250)
    assert work_until(run, 4) == 1.0
    assert speedup(run, 0.5, 3) == pytest.approx(1 / (0.5 * 200 / 250))


def test_the_crossing_loop_has_a_paired_interval():
    """Two curves on the same puzzles: where one leads by 30 puzzles for sure, it crosses first in every resample."""
    base = made(by_counts(10, 30, 50, 70))
    found = crossings(base, {"ahead": made(by_counts(70, 90, 90, 90)), "same": base})
    assert found["ahead"][:3] == (1, 1, 1), "paired: both hold the same puzzles, whatever is drawn"
    assert found["same"][:3] == (4, 4, 4)
    assert found["ahead"].reached == 1.0
    rng = np.random.default_rng(0)  # independent puzzles: the crossing is uncertain, and the interval says so
    loose = crossings(base, {"x": made(rng.random((100, 4)) < [0.5, 0.66, 0.7, 0.74])})["x"]
    assert loose.low < (loose.high or 9)


@pytest.mark.parametrize(
    ("change", "timing", "note"),
    [
        ({"group": "h"}, "separate", "separate calls"),
        ({"dtype": "bfloat16"}, "not comparable", "dtype is bfloat16 here and float32 there"),
        ({"batch_size": 4}, "not comparable", "batch_size"),
        ({"device": {"type": "cpu", "name": "c", "threads": 2}}, "not comparable", "device.threads is 2"),
        ({"seconds": (1.0,)}, "not comparable", "not every batch"),
    ],
)
def test_clocks_are_compared_under_equal_conditions_only(change, timing, note):
    unit, rule = made(by_counts(5, 6)), made(by_counts(6, 7), controller="taps-gd", **change)
    found = clock(unit, rule)
    assert found.timing == timing
    assert note in found.note
    assert (found.ratio is None) == (timing == "not comparable")
    matched = compare({"unit": unit, "gd": rule}).row("gd").matched
    assert matched.loop == 1
    assert (matched.speedup is None) == (timing == "not comparable")


def test_pairs_are_scipys_and_corrected_together():
    rng = np.random.default_rng(5)
    base = rng.random(400) < 0.5

    def flipped(gain, lose):
        return np.where(base, rng.random(400) >= lose, rng.random(400) < gain)[:, None]

    runs = {"unit": made(base[:, None]), "a": made(flipped(0.3, 0.0), controller="taps-gd"),
            "b": made(flipped(0.1, 0.05), controller="taps-bb"), "c": made(flipped(0.0, 0.2), controller="taps-adam")}
    found = compare(runs)
    pairs = {pair.b: pair for pair in found.pairs if pair.against == "baseline"}
    for name, pair in pairs.items():
        other = runs[name].final
        gained, lost = int((other & ~base).sum()), int((base & ~other).sum())
        assert (pair.gained, pair.lost) == (gained, lost)
        assert pair.p == pytest.approx(stats.binomtest(gained, gained + lost).pvalue)
        assert pair.difference == pytest.approx(other.mean() - base.mean())
        assert pair.low <= pair.difference <= pair.high
    ranked = sorted(pairs.values(), key=lambda pair: pair.p)
    largest = 0.0
    for rank, pair in enumerate(ranked):
        largest = max(largest, min(1.0, (3 - rank) * pair.p))
        assert pair.p_holm == pytest.approx(largest)
    assert (pairs["a"].verdict, pairs["c"].verdict) == ("better", "worse")
    assert "a (+" in verdict(found)
    assert "significantly fewer" in verdict(found)


def test_correction_can_turn_a_difference_into_none():
    base = by_counts(50)
    gd = made(by_counts(57), controller="taps-gd")  # 7 gained, 0 lost: p = 2 / 2^7 = 0.0156
    alone = compare({"unit": made(base), "gd": gd})
    assert alone.pair("gd", "baseline").verdict == "better"
    others = {f"c{i}": made(base, controller=f"constant:eta={1 + i / 10}") for i in range(1, 5)}
    many = compare({"unit": made(base), "gd": gd, **others})
    assert many.pair("gd", "baseline").p_holm == pytest.approx(5 * 2 / 2**7)
    assert many.pair("gd", "baseline").verdict == "no difference"


def test_the_constant_at_a_rules_mean_eta_stands_beside_it():
    runs = {"unit": made(by_counts(50)), "gd": made(by_counts(60), controller="taps-gd", eta=0.873),
            "far": made(by_counts(58), controller="constant:eta=0.8", eta=0.8),
            "near": made(by_counts(59), controller="constant:eta=0.87", eta=0.87)}
    found = compare(runs)
    assert found.row("gd").constant == "near"
    assert found.pair("gd", "constant").a == "near"
    assert found.pair("gd", "constant").verdict == "no difference"
    assert "No rule beats the constant at its own mean eta significantly." in verdict(found)
    del runs["near"]
    without = compare(runs)
    assert without.row("gd").constant is None
    assert "not run" in cells(without, without.row("gd"))
    assert "whether adapting matters is open" in verdict(without)


def test_rules_without_a_constant_beside_them_are_named_as_not_run():
    runs = {"unit": made(by_counts(50)), "gd": made(by_counts(60), controller="taps-gd", eta=0.87),
            "bb": made(by_counts(61), controller="taps-bb", eta=0.95),
            "adam": made(by_counts(61), controller="taps-adam"),
            "constant": made(by_counts(59), controller="constant:eta=0.87", eta=0.87)}
    said = verdict(compare(runs))
    assert "Of the 1 rule with such a constant none beats the constant at its own mean eta significantly." in said
    assert "That constant was not run for bb and adam." in said
    assert "No rule beats" not in said


def test_inner_and_outer_control_by_one_rule_are_paired():
    outer = {"site": "outer", "outer_at": "cycle", "every": 1, "scope": "sample", "memory": "rollout"}
    found = compare({"unit": made(by_counts(50)), "in": made(by_counts(60), controller="taps-gd"),
                     "out": made(by_counts(55), controller="taps-gd", control=outer)})
    pair = found.pair("in", "site")
    assert (pair.a, pair.difference) == ("out", pytest.approx(0.05))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (made(by_counts(60), task={"spec": "s", "sha256": "other", "n": 100}), "different puzzles: task.sha256 is oth"),
        (made(by_counts(60), seed=1), "different seeds: seed is 1 and 0"),
        (made(by_counts(60, 61)), "different horizons: loops is 2 and 1"),
    ],
    ids=["data", "seed", "horizon"],
)
def test_runs_of_other_data_seed_or_horizon_are_refused_with_the_reason(other, message):
    with pytest.raises(lt.errors.InvalidUse, match=message):
        compare({"unit": made(by_counts(50)), "gd": other})


@pytest.fixture(scope="module")
def folders(telling, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    policies = {"unit": Policy(lt.Standard()), "gd": Policy(lt.TapsGD()), "bb": Policy(lt.TapsBB())}
    run_many(telling, open_task("sudoku"), policies, out=out, loops=8, limit=64, batch_size=16, constants=True)
    return out


def call(*words):
    done = CliRunner().invoke(app, ["compare", *map(str, words)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def test_the_same_run_twice_is_no_difference(folders, tmp_path):
    shutil.copytree(folders / "gd", tmp_path / "copy")
    found = json.loads(call(folders / "gd", tmp_path / "copy", "--format", "json"))
    (pair,) = found["pairs"]
    assert (pair["difference"], pair["low"], pair["high"], pair["p_holm"]) == (0, 0, 0, 1)
    assert pair["verdict"] == "no difference"
    assert "does not differ from it significantly" in call(folders / "gd", tmp_path / "copy")


def test_every_format_says_the_same(folders):
    found = from_json(call(folders, "--format", "json"), "here")
    table = call(folders)
    rows = list(csv.DictReader(io.StringIO(call(folders, "--format", "csv"))))
    markdown, latex = call(folders, "--format", "md"), call(folders, "--format", "latex")
    assert [row["policy"] for row in rows] == [row.name for row in found.rows]
    for row, plain in zip(found.rows, rows, strict=True):
        assert float(plain["accuracy"]) == row.accuracy.value
        share = f"{100 * row.accuracy.value:.1f} [{100 * row.accuracy.low:.1f}, {100 * row.accuracy.high:.1f}]"
        assert sum(share in line and line.startswith(row.name) for line in table.splitlines()) == 1
        assert f"| {row.name} | {share} |" in markdown
        assert f"{row.name} & {share.replace('%', chr(92) + '%')}" in latex
    assert markdown.count("\n|") == len(found.rows) + 1
    assert latex.count(r"\\") == len(found.rows) + 1
    assert all(pair.verdict in ("better", "worse", "no difference") for pair in found.pairs)
    assert "64 puzzles" in markdown
    assert "parameters" in markdown


def test_a_record_reads_back_equal_and_a_wrong_one_is_refused(folders, tmp_path):
    call(folders, "--format", "json", "--out", tmp_path / "c.json")
    found = read_comparison(tmp_path / "c.json")
    assert from_json(found.to_json(), "again") == found
    values = json.loads(found.to_json())
    wrong = (({"base": None}, "base: "), ({"extra": 1}, "extra: "), ({"schema_version": 9}, "schema_version"))
    for change, message in wrong:
        with pytest.raises(lt.errors.InvalidFile, match=message):
            from_json(json.dumps(values | change), "record")
    with pytest.raises(lt.errors.InvalidFile, match="is no JSON"):
        from_json("{", "record")
    with pytest.raises(lt.errors.InvalidFile, match="cannot be read"):
        read_comparison(tmp_path / "nowhere.json")


def test_puzzles_needed_by_hand():
    found = compare({"unit": made(by_counts(50)), "gd": made(by_counts(60), controller="taps-gd")})
    assert puzzles_needed(found) == int(np.ceil(0.1 * 196**2)) == 3842
    assert "100 puzzles cannot tell" in needed(found)
    assert "needs about 3,842" in needed(found)
    assert "too few, or too easy" in needed(compare({"unit": made(by_counts(50)), "same": made(by_counts(50))}))


def test_latex_and_markdown_escape(folders):
    run = made(by_counts(5), name="a_b|c&d%")
    found = compare({"a_b|c&d%": run})
    assert "a\\_b|c\\&d\\%" in as_text(found, "latex")
    assert "a_b\\|c&d%" in as_text(found, "md")
    assert len(columns(found)) == len(cells(found, found.rows[0])) == 12


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "holds no run.json"),
        (["{}", "--format", "mdd"], "Did you mean 'md'"),
        (["{}", "--baseline", "uni"], "Did you mean 'unit'"),
        (["{}/unit", "{}/unit"], "is named twice"),
        (["{}", "--out", "x"], "Name one with --format"),
    ],
)
def test_wrong_input_is_one_sentence(folders, words, message):
    with pytest.raises(lt.errors.LooptapsError, match=message):
        call(*(word.format(folders) for word in words))
