"""Each claim is judged on what it says, and what the intervals leave open is called open."""

import pytest

from looptaps.evaluation.comparison import Comparison
from looptaps.evaluation.recipe_record import Estimate
from looptaps.evaluation.recipes import Cell
from looptaps.report.claims import estimates, outcome


def matched(speedup=None, low=None, high=None):
    return {"loop": None if speedup is None else 8, "loop_low": None, "loop_high": None,
            "reached": 0.0 if speedup is None else 1.0, "speedup": speedup, "speedup_low": low, "speedup_high": high,
            "ratio": 1.0, "spread": None, "timing": "interleaved", "note": ""}


def row(name, kind, updates, match):
    return {"name": name, "kind": kind, "model": "trm", "model_sha256": None, "parameters": 1, "controller": name,
            "site": "inner", "every": 1, "strategy": "fixed-depth:loops=16", "any": None, "by_loop": (0.5,),
            "accuracy": {"value": 0.5, "low": 0.4, "high": 0.6}, "mean_eta": 1.0, "loops": 16, "updates": updates,
            "updates_median": updates, "updates_max": int(updates), "updates_high": 1.0, "seconds": 1.0,
            "constant": None, "matched": match}


def comparison(rules, unit_updates=100.0, unit=1.2, against="baseline"):
    """rules: name -> (difference, low, high, verdict), or also updates and a speedup with its interval."""
    facts = {"task": "t", "task_sha256": "", "puzzles": 384, "loops": 16, "seed": 0, "batch_size": 1, "device": "cpu",
             "threads": 1, "dtype": "float32", "compiled": False, "torch": "", "looptaps": "", "commit": None,
             "changed": None, "finished": ""}
    rows = [row("unit", "unit", unit_updates, matched(unit, 1.0, 1.4))]
    pairs = []
    for name, (difference, low, high, verdict, *more) in rules.items():
        rows.append(row(name, "unit" if "standard" in name else "rule", more[0] if more else 100.0,
                        matched(*more[1:])))
        pairs.append({"a": "unit", "b": name, "against": against, "difference": difference / 100, "low": low / 100,
                      "high": high / 100, "gained": 1, "lost": 1, "p": 0.5, "p_holm": 0.5, "verdict": verdict})
    return Comparison.model_validate({"facts": facts, "base": "unit", "rows": rows, "pairs": pairs})


def cell(claim, **numbers):
    return Cell(name="c", title="C", claim=claim, numbers={name: {"accuracy": value} for name, value in
                                                           numbers.items()})


WIDE, NONE, GAIN, LOSS = ((0.2, -3, 3.4, "no difference"), (0.0, -0.2, 0.2, "no difference"), (2, 1, 3, "better"),
                          (-2, -3, -1.2, "worse"))


@pytest.mark.parametrize(
    ("claim", "rules", "status"),
    [
        ("better-than-unit", {"a": GAIN, "b": GAIN}, "reproduced"),
        ("better-than-unit", {"a": GAIN, "b": WIDE}, "in part"),
        ("better-than-unit", {"a": WIDE, "b": WIDE}, "undecided"),
        ("better-than-unit", {"a": WIDE, "b": NONE}, "not reproduced"),
        ("better-than-unit", {"a": LOSS}, "not reproduced"),
        ("not-worse", {"a": (-3.1, -6.5, 0.5, "no difference")}, "undecided"),  # the interval is too wide to say
        ("not-worse", {"a": (-0.1, -0.9, 0.5, "no difference")}, "reproduced"),
        ("not-worse", {"a": LOSS}, "not reproduced"),
        ("not-worse-for-less", {"a": (*NONE, 25.0)}, "reproduced"),
        ("not-worse-for-less", {"a": (*NONE, 100.0)}, "not reproduced"),
        ("z_H-costs", {"z_H-standard": LOSS, "z_H-a": LOSS, "z_L-a": GAIN}, "reproduced"),
        ("z_H-costs", {"z_H-standard": GAIN}, "not reproduced"),
        ("z_H-costs", {"z_H-standard": WIDE}, "undecided"),
        ("better-and-sooner", {"a": (*GAIN, 100.0, 1.5, 1.3, 1.8)}, "reproduced"),
        ("better-and-sooner", {"a": (*GAIN, 100.0, 1.1, 1.05, 1.15)}, "in part"),  # the unit step is there 1.2x as fast
        ("better-and-sooner", {"a": WIDE}, "not reproduced"),  # never at the unit step's accuracy
        ("better-and-sooner", {"a": (*WIDE, 100.0, 1.5, 0.9, 1.8)}, "undecided"),
        ("shown-only", {"a": GAIN}, "shown"),
    ],
)
def test_a_claim_is_judged_on_what_it_says(claim, rules, status):
    text, word = outcome(cell(claim), comparison(rules))
    assert word == status, text
    assert "[" in text, "no number without its interval"
    assert text.endswith(".")


def test_inner_against_outer_control_is_judged_on_those_pairs():
    assert outcome(cell("inner-beats-outer"), comparison({"a": GAIN}, against="site"))[1] == "reproduced"
    assert outcome(cell("inner-beats-outer"), comparison({"a": GAIN}))[1] == "undecided"


def test_a_gain_is_excluded_only_below_the_papers_own():
    tight = {"a": (0.2, -0.1, 0.5, "no difference")}
    assert outcome(cell("better-than-unit", unit=90.0, a=90.4), comparison(tight))[1] == "undecided"
    assert outcome(cell("better-than-unit", unit=90.0, a=91.0), comparison(tight))[1] == "not reproduced"


def test_a_few_puzzles_without_a_difference_decide_nothing():
    """Resampling 16 equal answers gives an interval of no width; by the rule of three it reaches 19 points."""
    found = comparison({"a": (0.0, 0.0, 0.0, "no difference")})
    few = found.model_copy(update={"facts": found.facts.model_copy(update={"puzzles": 16}), "pairs": tuple(
        pair.model_copy(update={"gained": 0, "lost": 0}) for pair in found.pairs)})
    for claim in ("better-than-unit", "not-worse"):
        assert outcome(cell(claim), few)[1] == "undecided"


def test_the_best_and_the_worst_rule_are_named_with_their_intervals():
    text, _ = outcome(cell("better-than-unit"), comparison({"a": GAIN, "b": LOSS, "c": NONE}))
    assert "best a +2.0 [+1.0, +3.0], worst b -2.0 [-3.0, -1.2] points (n = 384)" in text


@pytest.mark.parametrize(
    ("claim", "ends", "status"),
    [
        ("harder-costs-more", [(0.3, 0.2, 0.4)], "reproduced"),
        ("harder-costs-more", [(0.1, -0.1, 0.3)], "undecided"),
        ("harder-costs-more", [(-0.3, -0.4, -0.2)], "not reproduced"),
        ("fewer-updates", [(0.7, 0.6, 0.8), (None, None, None)], "in part"),
        ("fewer-updates", [(0.7, None, 0.8)], "undecided"),
        ("fewer-updates", [(None, None, None)], "not reproduced"),
        ("schedule-changes", [(-0.02, -0.03, -0.01)], "reproduced"),
        ("schedule-changes", [(0.0, -0.03, 0.03)], "undecided"),
        ("schedule-changes", [], "undecided"),
    ],
)
def test_what_accuracies_cannot_judge_is_judged_on_an_estimate(claim, ends, status):
    found = [Estimate(name=str(place), value=value, low=low, high=high) for place, (value, low, high) in
             enumerate(ends)]
    assert outcome(cell(claim), comparison({"a": GAIN}), found)[1] == status


@pytest.mark.parametrize(("unit", "status"), [(0.95, "in part"), (0.5, "reproduced")])
def test_what_the_unit_step_does_as_well_is_not_the_rules_doing(unit, status):
    found = [Estimate(name="a", value=0.95, low=0.94, high=0.96), Estimate(name="standard", value=unit, low=unit,
                                                                           high=unit, unit=True)]
    text, word = outcome(cell("fewer-updates"), comparison({"a": GAIN}), found)
    assert word == status
    assert f"standard +{unit:.2f} [+{unit:.2f}, +{unit:.2f}], which {int(unit < 0.9)} exceed" in text


def test_estimates_are_of_the_runs(telling, tmp_path):
    import looptaps as lt
    from looptaps.evaluation.compare import compare
    from looptaps.evaluation.runner import run
    from looptaps.tasks import open_task

    task = open_task("sudoku").select(slice(0, 24))
    runs = {name: run(telling, task, control, out=tmp_path / name, loops=4) for name, control in {
        "unit": lt.Standard(), "q1": lt.TapsGD(), "q2": lt.Control(lt.TapsGD(), every=2)}.items()}
    found = compare(runs)
    (changed,) = estimates(cell("schedule-changes"), found, runs, None, {})
    assert changed.name == "q2"
    assert changed.value == pytest.approx(float((runs["q2"].eta - runs["q1"].eta).mean()), abs=1e-5)
    per_loop = int(runs["unit"].updates[0]) // 4
    saved = estimates(cell("fewer-updates"), found, runs, runs["unit"], {str(4 * per_loop): 1.0})
    reached = next(t for t in range(4) if runs["q1"].correct[:, t].sum() >= runs["unit"].final.sum())
    assert saved[0].value == pytest.approx(1 - (reached + 1) / 4, abs=1e-4)
