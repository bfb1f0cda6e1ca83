"""Every stopping rule stops exactly where its formula says, on trajectories made by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import looptaps as lt
from looptaps.errors import InvalidUse, InvalidValue
from looptaps.strategies import FPRMRule

TAU = 0.15


def exit_loop(residuals, etas, answers, max_loops, k_min=4, patience=2, tau=TAU):
    """The paper's rule in plain floats: the loop at which it leaves, and whether the rule (not the budget) said so."""
    peak, streak, before, last = 0.0, 0, None, None
    for t, ((first, second), eta, answer) in enumerate(zip(residuals, etas, answers, strict=True), start=1):
        first = last if math.isnan(first) else first
        ratio = math.inf
        if first is not None:
            activity = eta**2 * (first + second) / 2
            peak = max(peak, activity)
            ratio = activity / (peak + 1e-12)
        streak = streak + 1 if answer == before and ratio <= tau else 0
        before, last = answer, second
        if streak >= patience and t >= k_min:
            return t, True
        if t == max_loops:
            return t, False
    raise AssertionError


CALM = [(1.0, 1.0)] + [(0.1, 0.1)] * 9


def test_earliest_exit_is_loop_four(scripted, play):
    model = scripted(10, residuals=CALM)
    result = play(lt.AdaptiveExit(max_loops=10), model)
    assert result.loops.tolist() == [4]
    assert result.status.tolist() == [lt.Status.EXITED]
    assert result.updates.tolist() == [4 * 36]
    assert result.updates_high.tolist() == [4 * 6]


@pytest.mark.parametrize(("change", "loop"), [
    ({"answers": [1, 2, 3, 4, 4, 4, 4, 4, 4, 4]}, 6),  # unchanged at loops 5 and 6
    ({"answers": [1, 1, 1, 2, 2, 2, 2, 2, 2, 2]}, 6),  # the counter goes back to 0 at loop 4
    ({"residuals": [(1.0, 1.0)] * 5 + [(0.1, 0.1)] * 5}, 7),  # calm from loop 6
    ({"residuals": [*CALM[:4], (0.1, 0.3), *CALM[5:]]}, 4),
    ({"residuals": [*CALM[:3], (0.1, 0.3), *CALM[4:]]}, 6),  # (0.1 + 0.3) / 2 = 0.2 at loop 4
    ({"residuals": [(0.1, 0.1)] * 4 + CALM[:6]}, 7),  # the peak comes at loop 5, and is used from then on
    ({"residuals": [(0.5, 0.5), *[(0.1, 0.1)] * 9]}, 10),  # 0.2 of the peak: never calm
    ({"eta": [1.0] + [1.2] * 9, "residuals": [(1.0, 1.0)] + [(0.11, 0.11)] * 9}, 10),  # 1.44 * 0.11 > 0.15
    ({"eta": [1.0] + [1.2] * 9, "residuals": [(1.0, 1.0)] + [(0.104, 0.104)] * 9}, 4),  # 1.44 * 0.104 < 0.15
    ({"eta": [0.8] + [1.0] * 9, "residuals": [(1.0, 1.0)] + [(0.1, 0.1)] * 9}, 10),  # the peak is 0.64
])
def test_exit_where_the_formula_says(scripted, play, change, loop):
    given_ = {"residuals": CALM, **change}
    result = play(lt.AdaptiveExit(max_loops=10), scripted(10, **given_))
    assert result.loops.tolist() == [loop]
    expected = exit_loop(given_["residuals"], given_.get("eta", [1.0] * 10), given_.get("answers", [1] * 10), 10)
    assert expected[0] == loop


# No ratio of these comes near tau = 0.1723, where float32 and float64 could disagree.
trajectories = st.lists(
    st.tuples(st.sampled_from([1.0, 0.5, 0.25, 0.125, 0.0625]), st.sampled_from([1.0, 0.25, 0.125, 0.0625, 0.0]),
              st.sampled_from([0.8, 1.0, 1.2]), st.sampled_from([1, 2, 2, 2, 2])),
    min_size=12, max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(samples=st.lists(trajectories, min_size=5, max_size=5), k_min=st.integers(1, 5), patience=st.integers(1, 3))
def test_exit_rule_against_plain_floats(scripted, samples, k_min, patience):
    model = scripted(12, 5, residuals=[[s[:2] for s in sample] for sample in samples],
                     eta=[[s[2] for s in sample] for sample in samples],
                     answers=[[s[3] for s in sample] for sample in samples])
    rule = lt.AdaptiveExit(max_loops=12, k_min=k_min, patience=patience, tau=0.1723)
    result = rule.run(model, {"inputs": torch.arange(5).unsqueeze(1)}, lt.Standard())
    for row, sample in enumerate(samples):
        loop, left = exit_loop([s[:2] for s in sample], [s[2] for s in sample], [s[3] for s in sample], 12,
                               k_min, patience, 0.1723)
        assert result.loops[row] == loop
        assert result.status[row] == (lt.Status.EXITED if left else lt.Status.RAN_ALL)


def test_one_update_per_loop_takes_the_residual_of_the_loop_before(scripted, play):
    nan = math.nan
    # Loop 1 has no A, so the peak is loop 2's, (1 + 0.5) / 2; calm means <= 0.1125 from loop 4 on.
    residuals = [(nan, 1.0), (nan, 0.5), (nan, 0.1), (nan, 0.1), (nan, 0.1), (nan, 0.1)]
    result = play(lt.AdaptiveExit(max_loops=6), scripted(6, residuals=residuals, updates=2), trace=True)
    assert result.loops.tolist() == [5]
    signal = result.trace.signal[:, 0]
    assert signal[0].isnan()
    torch.testing.assert_close(signal[1:5], torch.tensor([0.75, 0.3, 0.1, 0.1]) / 0.75)


def test_fixed_depth_runs_all(scripted, play):
    result = play(lt.FixedDepth(7), scripted(7))
    assert (result.loops.tolist(), result.messages()) == ([7], ["it ran as far as the budget goes"])


def test_q_exit_leaves_above_the_threshold(scripted, play):
    score = [[-1.0, 0.0, 0.5, 9.0], [-1.0, -1.0, -1.0, -1.0], [3.0, -1.0, -1.0, 3.0]]
    model = scripted(4, 3, score=score)
    result = play(lt.QExit(max_loops=4), model, 3)
    assert result.loops.tolist() == [3, 4, 1]
    assert result.counts() == {"RAN_ALL": 1, "EXITED": 2}
    assert result.score.tolist() == [0.5, -1.0, 3.0]
    assert play(lt.QExit(max_loops=4, threshold=1.0, k_min=2), model, 3).loops.tolist() == [4, 4, 4]


def test_fixed_point_tests_every_update(scripted, play):
    moves = [[[0.9, 0.9, 0.9], [0.9, 0.05, 0.9], [0.9, 0.9, 0.9]],  # the second update of loop 2
             [[0.9, 0.9, 0.9], [0.9, 0.9, 0.9], [0.9, 0.9, 0.2]],
             [[0.1, 0.9, 0.9], [0.9, 0.9, 0.9], [0.9, 0.9, 0.9]]]
    model = scripted(3, 3, moves=moves)
    result = play(lt.FixedPoint(eps=0.1, max_updates=3 * 36), model, 3)
    assert result.loops.tolist() == [2, 3, 1]
    assert result.status.tolist() == [lt.Status.CONVERGED, lt.Status.RAN_ALL, lt.Status.CONVERGED]


@pytest.mark.parametrize(("max_updates", "loops"), [(36, 1), (71, 1), (72, 2), (107, 2), (108, 3)])
def test_fixed_point_never_goes_beyond_its_updates(scripted, play, max_updates, loops):
    model = scripted(3, moves=[[0.9], [0.9], [0.9]])
    result = play(lt.FixedPoint(eps=0.1, max_updates=max_updates), model)
    assert result.loops.tolist() == [loops]
    assert result.updates.tolist() == [36 * loops]


def test_fixed_point_norms_differ(make, batch):
    model, steps = make("looped"), {}
    for norm in ("rms", "max"):
        result = lt.FixedPoint(eps=0.05, norm=norm, max_updates=100).run(model, batch(), lt.Standard(), trace=True)
        assert (result.trace.moves.nan_to_num(9.0).amin(0) <= 0.05).equal(result.status == lt.Status.CONVERGED)
        steps[norm] = result.loops
    assert not torch.equal(steps["rms"], steps["max"])


def test_fprm_rule_is_the_models_own(make, batch):
    for config in ({"fp_thresh": 0.3}, {"fp_thresh": 1e-9, "max_iter_eval": 7},
                   {"fp_thresh": 1e-9, "stepsize_decay_eval": 0.1, "decay_patience": 1, "max_iter_eval": 60}):
        model, puzzles = make("fprm", **config), batch(4)
        result = FPRMRule().run(model, puzzles, lt.Standard())
        for row in range(4):
            carry = model.begin({"inputs": puzzles["inputs"][row : row + 1]})
            with torch.no_grad():
                while not carry.iterations or not model.stopped(carry):
                    carry, _, _ = model.advance(carry, lt.Control(lt.Standard()))
            assert result.loops[row] == carry.iterations
            if carry.residue < model.config.fp_thresh:
                why = lt.Status.CONVERGED
            else:
                why = lt.Status.RAN_ALL if carry.iterations == model.config.max_iter_eval else lt.Status.EXITED
            assert result.status[row] == why


def test_fprm_batch_max_stops_all_together(make, batch):
    model = make("fprm", fp_thresh=0.3)
    alone = FPRMRule().run(model, batch(6), lt.Standard()).loops
    together = FPRMRule(batch_max=True).run(model, batch(6), lt.Standard())
    assert len(set(alone.tolist())) > 1
    assert len(set(together.loops.tolist())) == 1
    assert together.loops[0] >= alone.max()


def test_fprm_rule_is_bounded_by_its_own_limit(make, batch):
    result = FPRMRule(max_loops=3).run(make("fprm", fp_thresh=1e-9), batch(2), lt.Standard())
    assert result.loops.tolist() == [3, 3]
    assert result.counts() == {"RAN_ALL": 2}


@pytest.mark.parametrize(("build", "text"), [
    (lambda: lt.FixedDepth(0), "FixedDepth.loops"),
    (lambda: lt.FixedDepth(2.5), "FixedDepth.loops"),
    (lambda: lt.AdaptiveExit(max_loops=3), "k_min = 4"),
    (lambda: lt.AdaptiveExit(max_loops=32, k_min=0), "AdaptiveExit.k_min"),
    (lambda: lt.AdaptiveExit(max_loops=32, patience=0), "AdaptiveExit.patience"),
    (lambda: lt.AdaptiveExit(max_loops=32, tau=-0.1), "AdaptiveExit.tau"),
    (lambda: lt.AdaptiveExit(max_loops=32, tau=math.nan), "AdaptiveExit.tau"),
    (lambda: lt.QExit(max_loops=0), "QExit.max_loops"),
    (lambda: lt.QExit(max_loops=4, threshold=math.nan), "QExit.threshold"),
    (lambda: lt.FixedPoint(eps=-1), "FixedPoint.eps"),
    (lambda: lt.FixedPoint(norm="l2"), "FixedPoint.norm"),
    (lambda: lt.FixedPoint(max_updates=0), "FixedPoint.max_updates"),
    (lambda: FPRMRule(max_loops=0), "FPRMRule.max_loops"),
    (lambda: FPRMRule(batch_max=1), "FPRMRule.batch_max"),
    (lambda: lt.Anderson(max_loops=0), "Anderson.max_loops"),
    (lambda: lt.Anderson(max_loops=4, m=0), "Anderson.m"),
    (lambda: lt.Anderson(max_loops=4, beta=0), "Anderson.beta"),
    (lambda: lt.Anderson(max_loops=4, lam=-1), "Anderson.lam"),
])
def test_fields_out_of_range(build, text):
    with pytest.raises(InvalidValue, match=text):
        build()


def test_models_that_a_rule_cannot_serve(scripted, play, make, batch):
    with pytest.raises(InvalidUse, match="needs a model with a score"):
        play(lt.QExit(max_loops=4), scripted(4))
    with pytest.raises(InvalidUse, match="needs the moves"):
        play(lt.FixedPoint(), scripted(4))
    with pytest.raises(InvalidValue, match="one outer loop of this model"):
        play(lt.FixedPoint(max_updates=20), scripted(4, moves=[[1.0]] * 4))
    with pytest.raises(InvalidUse, match="FPRMRule runs FPRM models"):
        play(FPRMRule(), scripted(4))
    with pytest.raises(InvalidUse, match="eval"):
        FPRMRule().run(make("fprm").train(), batch(2), lt.Standard())
