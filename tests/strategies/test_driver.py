"""One driver: counts are true, neighbours and batching change nothing, bad samples leave alone, all loops end."""

import pytest
import torch

import looptaps as lt
from looptaps.errors import InvalidShape, InvalidType, InvalidUse, InvalidValue
from looptaps.strategies import FPRMRule

KINDS = [("trm", {}), ("trm", {"mlp_t": True}), ("hrm", {}), ("fprm", {}), ("looped", {"L_cycles": 3})]
CONTROLS = {"unit": lt.Standard(), "gd": lt.TapsGD(), "adam": lt.Control(lt.TapsAdam(), every=2), "bb": lt.TapsBB()}
EARLY = lt.AdaptiveExit(max_loops=7, k_min=2, patience=1, tau=0.5)


def same(one, two, score=1e-4):
    """Answers, statuses and counts are equal. Scores and etas may differ by rounding: see the test below."""
    for field in ("output", "status", "loops", "updates", "updates_high"):
        assert torch.equal(getattr(one, field), getattr(two, field)), field
    torch.testing.assert_close(one.mean_eta, two.mean_eta, rtol=0, atol=1e-4)
    if one.score is not None:
        torch.testing.assert_close(one.score, two.score, rtol=0, atol=score)


@pytest.mark.parametrize("control", [lt.Standard(), lt.Control(lt.TapsAdam(), every=2)], ids=["unit", "adam"])
@pytest.mark.parametrize(("kind", "config"), KINDS)
def test_batch_size_and_compaction_change_nothing(make, batch, kind, config, control):
    # A matrix kernel may choose its blocks by the number of rows, and then sums in another order. Measured here in
    # float32: scores differ by at most 4e-6, mean eta by 3e-7, answers and loops not at all.
    model, puzzles = make(kind, **config), batch(8)
    whole = EARLY.run(model, puzzles, control)
    for size in (1, 3):
        parts = [EARLY.run(model, state_of(puzzles, first, size), control) for first in range(0, 8, size)]
        same(whole, lt.Result.join(parts))


def state_of(puzzles, first, size):
    return {key: value[first : first + size] for key, value in puzzles.items()}


def test_compaction_really_happens(make, batch):
    model, sizes = make("trm"), []
    model.L_level.register_forward_pre_hook(lambda _, args: sizes.append(len(args[0])))
    result = EARLY.run(model, batch(8), lt.TapsGD())
    assert len(set(result.loops.tolist())) > 2
    per_loop = 3 * 7
    assert sum(sizes) == int(result.loops.sum()) * per_loop


@pytest.mark.parametrize(("kind", "config"), KINDS)
def test_effective_updates_equal_a_hand_count_of_core_calls(make, batch, kind, config):
    model, calls = make(kind, **config), {"low": 0, "high": 0}
    low = model.L_level if hasattr(model, "L_level") else model.core
    high = getattr(model, "H_level", None)

    def count(module, args):
        # TRM has one core for both states; z_H's updates get z_L as they are, z_L's get z_H + x.
        which = "low"
        if kind == "trm":
            which = "high" if count.at % 7 == 6 else "low"
            count.at += 1
        calls[which] += len(args[0]) * len(module.blocks)

    count.at = 0
    low.register_forward_pre_hook(count)
    if high is not None:
        high.register_forward_pre_hook(
            lambda module, args: calls.update(high=calls["high"] + len(args[0]) * len(module.blocks)))
    result = EARLY.run(model, batch(6), lt.TapsGD())
    assert int(result.updates.sum()) == calls["low"]
    assert int(result.updates_high.sum()) == calls["high"]


@pytest.mark.parametrize("control", CONTROLS.values(), ids=CONTROLS)
def test_neighbours_change_nothing(make, batch, control):
    model, puzzles = make("trm"), batch(12)["inputs"]
    one = EARLY.run(model, {"inputs": puzzles[:6]}, control)
    two = EARLY.run(model, {"inputs": torch.cat((puzzles[:2], puzzles[8:]))}, control)
    first = torch.tensor([0, 1])
    same(one.select(first), two.select(first))


@pytest.mark.parametrize("rule", [lt.TapsGD(), lt.TapsRMSProp(), lt.TapsAdam(), lt.TapsBB()],
                         ids=lambda r: type(r).__name__)
def test_controllers_memories_are_compacted_with_their_samples(make, batch, rule):
    model, puzzles = make("trm"), batch(6)
    full = lt.FixedDepth(7).run(model, puzzles, rule, trace=True)
    early = EARLY.run(model, puzzles, rule, trace=True)
    assert len(set(early.loops.tolist())) > 1
    here = early.trace.steps.eta
    for row, loops in enumerate(early.loops.tolist()):
        assert here[18 * loops :, row].isnan().all()
        torch.testing.assert_close(here[: 18 * loops, row], full.trace.steps.eta[: 18 * loops, row], rtol=0, atol=1e-4)


def test_script_rows_come_back_in_order(scripted, play):
    answers = [[s + 1] * 6 for s in range(5)]
    residuals = [[(1.0, 1.0)] * leave + [(0.0, 0.0)] * (6 - leave) for leave in (4, 1, 3, 2, 5)]
    model = scripted(6, 5, answers=answers, residuals=residuals)
    result = play(lt.AdaptiveExit(max_loops=6, k_min=1, patience=1), model, 5)
    assert result.output.flatten().tolist() == [1, 2, 3, 4, 5]
    assert result.loops.tolist() == [5, 2, 4, 3, 6]
    assert model.batches == [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0, 2, 3, 4], [0, 2, 4], [0, 4], [4]]


@pytest.mark.parametrize("strategy", [lt.FixedDepth(4), lt.AdaptiveExit(max_loops=5), lt.QExit(max_loops=4),
                                      lt.FixedPoint(eps=0.0, max_updates=144), lt.Anderson(max_loops=4, eps=0.0)])
def test_a_bad_sample_leaves_alone(scripted, play, strategy):
    finite = [[True] * 5, [True, True, False, True, True], [True] * 5]
    answers = [[1, 1, 1, 1, 1], [1, 2, 3, 4, 5], [1, 1, 1, 1, 1]]
    model = scripted(5, 3, finite=finite, answers=answers, moves=[[[1.0]] * 5] * 3, score=[[-1.0] * 5] * 3)
    result = play(strategy, model, 3)
    assert (result.status == lt.Status.NONFINITE).tolist() == [False, True, False]
    assert result.loops[1] == 3
    assert result.output[1] == 2, "the answer of the loop before"
    others = torch.tensor([0, 2])
    same(result.select(others), play(strategy, scripted(5, 3, moves=[[[1.0]] * 5] * 3, score=[[-1.0] * 5] * 3),
                                     3).select(others))


@pytest.mark.parametrize("control", CONTROLS.values(), ids=CONTROLS)
def test_a_poisoned_puzzle_is_retired_and_the_others_do_not_notice(make, batch, control):
    model, puzzles = make("trm", num_puzzle_identifiers=3, puzzle_emb_ndim=32), batch(5)
    model.puzzle_emb.weights.data[2] = torch.nan
    ids = torch.tensor([0, 2, 1, 0, 1])
    result = lt.FixedDepth(3).run(model, {**puzzles, "puzzle_identifiers": ids}, control)
    assert result.counts() == {"RAN_ALL": 4, "NONFINITE": 1}
    assert result.loops.tolist() == [3, 1, 3, 3, 3]
    others = torch.tensor([0, 2, 3, 4])
    left = {"inputs": puzzles["inputs"][others], "puzzle_identifiers": ids[others]}
    alone = lt.FixedDepth(3).run(model, left, control)
    same(result.select(others), alone)


def test_random_starts_belong_to_the_sample(make, batch):
    model, puzzles = make("fprm", fixed_init=False), batch(6)["inputs"]
    whole = lt.FixedDepth(3).run(model, {"inputs": puzzles}, lt.TapsGD(), seed=5)
    other = lt.FixedDepth(3).run(model, {"inputs": puzzles[[4, 1]]}, lt.TapsGD(), seed=5, ids=[4, 1])
    same(whole.select(torch.tensor([4, 1])), other)
    seeded = lt.FixedDepth(3).run(model, {"inputs": puzzles}, lt.TapsGD(), seed=6)
    assert not torch.equal(whole.score, seeded.score)


def test_trace_changes_nothing_and_ends_where_samples_do(make, batch):
    model, puzzles = make("trm"), batch(6)
    plain = EARLY.run(model, puzzles, lt.TapsGD())
    traced = EARLY.run(model, puzzles, lt.TapsGD(), trace=True)
    assert torch.equal(plain.output, traced.output)
    assert torch.equal(plain.score, traced.score)
    trace, longest = traced.trace, int(traced.loops.max())
    assert plain.trace is None
    assert trace.answers.shape == (longest, 6, 16)
    for row, loops in enumerate(traced.loops.tolist()):
        assert torch.equal(trace.answers[loops - 1, row].long(), traced.output[row])
        assert (trace.answers[loops:, row] == -1).all()
        for table in (trace.score, trace.signal, trace.residual, trace.mean_eta):
            assert table[:loops, row].isfinite().all()
            assert table[loops:, row].isnan().all()
        torch.testing.assert_close(trace.mean_eta[:loops, row].mean(), traced.mean_eta[row])


def test_token_scope_and_outer_control_run_under_every_rule(make, batch):
    model = make("trm")
    for control in (lt.Control(lt.TapsGD(), scope="token"), lt.Control(lt.TapsGD(), site="outer"),
                    lt.Control(lt.TapsGD(), site="outer", outer_at="loop"), lt.Control(lt.TapsAdam(), memory="cycle")):
        whole = EARLY.run(model, batch(4), control)
        same(whole, lt.Result.join([EARLY.run(model, state_of(batch(4), i, 1), control) for i in range(4)]))


def test_no_graph_is_kept(make, batch):
    result = lt.FixedDepth(2).run(make("trm"), batch(2), lt.TapsGD())
    assert not result.score.requires_grad
    assert not result.score.is_inference()


def test_one_transfer_per_loop(scripted, play, monkeypatch):
    seen, tolist = [], torch.Tensor.tolist
    model = scripted(6)
    monkeypatch.setattr(torch.Tensor, "tolist", lambda self: seen.append(self) or tolist(self))
    play(lt.FixedDepth(6), model)
    # The driver's, one per loop, and the script's own.
    assert len([t for t in seen if t.dtype == torch.int8]) == 6


def test_bad_input(scripted, play, make, batch):
    model = scripted(4)
    rule, good = lt.FixedDepth(2), {"inputs": torch.zeros(2, 1, dtype=torch.int64)}
    with pytest.raises(InvalidType, match="Text becomes one by"):
        rule.run(model, good, "taps-gd")
    with pytest.raises(InvalidType, match="A strategy runs a batch"):
        rule.run(model, torch.zeros(2, 1), lt.Standard())
    with pytest.raises(InvalidType, match="A strategy runs a batch"):
        rule.run(model, {"inputs": [1, 2]}, lt.Standard())
    with pytest.raises(InvalidShape, match="holds no samples"):
        rule.run(model, {"inputs": torch.zeros(0, 1)}, lt.Standard())
    with pytest.raises(InvalidShape, match="ids must name the 2 samples"):
        rule.run(model, good, lt.Standard(), ids=[1, 2, 3])
    for ids in ("ab", [0.5, 1], torch.zeros(2), torch.zeros(2, 1, dtype=torch.int64)):
        with pytest.raises(InvalidType, match="ids must be whole numbers"):
            rule.run(model, good, lt.Standard(), ids=ids)
    for wrong in (None, torch.nn.Linear(2, 2), "trm:sudoku"):
        for strategy in (rule, lt.Rollouts(rule, n=2)):
            with pytest.raises(InvalidType, match=r"A strategy runs a LoopModel.*has no begin\(\)"):
                strategy.run(wrong, good, lt.Standard())
    with pytest.raises(InvalidType, match="a class"):
        rule.run(type(model), good, lt.Standard())
    for seed in (-1, 1.5, True):
        with pytest.raises(InvalidValue, match=r"run\.seed"):
            rule.run(model, good, lt.Standard(), seed=seed)
    with pytest.raises(InvalidUse, match="nothing was run"):
        lt.Result.join([])


def test_a_rule_that_never_stops_is_stopped(scripted, play):
    class Never(lt.strategies.StoppingRule):
        limit = 5

    result = play(Never(), scripted(9))
    assert result.loops.tolist() == [5]
    assert result.counts() == {"RAN_ALL": 1}


def test_fprm_runs_under_control(make, batch):
    result = FPRMRule().run(make("fprm", fp_thresh=0.3), batch(4), lt.Constant(0.9))
    assert result.counts() == {"CONVERGED": 4}
    torch.testing.assert_close(result.mean_eta, torch.full((4,), 0.9))
