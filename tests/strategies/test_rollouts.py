"""Rollouts: noise per sample, plain run at sigma = 0, prefixes, both ways to choose."""

import pytest
import torch

import looptaps as lt
from looptaps.errors import InvalidShape, InvalidType, InvalidUse, InvalidValue
from looptaps.strategies import FPRMRule, RolloutTable, any_right, prefix
from looptaps.strategies.rollouts import _chosen

FIELDS = ("output", "status", "loops", "score", "mean_eta")
EARLY = lt.AdaptiveExit(max_loops=5, k_min=2, patience=1, tau=0.5)


@pytest.mark.parametrize(("kind", "config"), [("trm", {}), ("trm", {"forward_dtype": "bfloat16"}), ("fprm", {})])
@pytest.mark.parametrize("control", [lt.Standard(), lt.TapsAdam()], ids=["unit", "adam"])
def test_without_noise_every_rollout_is_the_plain_run_bit_for_bit(make, batch, kind, config, control):
    model, puzzles = make(kind, **config), batch(5)
    plain = EARLY.run(model, puzzles, control)
    result = lt.Rollouts(EARLY, n=3, sigma=0.0).run(model, puzzles, control)
    for field in FIELDS:
        assert torch.equal(getattr(result, field), getattr(plain, field)), field
        for rollout in getattr(result.rollouts, field):
            assert torch.equal(rollout, getattr(plain, field)), field
    assert torch.equal(result.updates, 3 * plain.updates)
    assert torch.equal(result.updates_high, 3 * plain.updates_high)
    assert result.rollouts.chosen.tolist() == [0] * 5


@pytest.mark.parametrize("where", ["z_L", "z_H"])
def test_noise_belongs_to_the_sample_not_to_the_batch(make, batch, where):
    model, puzzles = make("trm"), batch(6)["inputs"]
    strategy = lt.Rollouts(lt.FixedDepth(3), n=4, sigma=0.5, where=where)
    whole = strategy.run(model, {"inputs": puzzles}, lt.TapsGD(), seed=2)
    few = strategy.run(model, {"inputs": puzzles[[4, 1]]}, lt.TapsGD(), seed=2, ids=[4, 1])
    # Measured: scores differ by at most 2e-6, by the size of batches.
    torch.testing.assert_close(few.rollouts.score, whole.rollouts.score[:, [4, 1]], rtol=0, atol=1e-4)
    assert torch.equal(few.rollouts.output, whole.rollouts.output[:, [4, 1]])
    scores = whole.rollouts.score
    assert len(set(scores.flatten().tolist())) == scores.numel(), "every rollout has its own noise"
    assert not torch.equal(strategy.run(model, {"inputs": puzzles}, lt.TapsGD(), seed=3).score, whole.score)


def test_the_same_puzzle_twice_differs_by_its_id_alone(make, batch):
    model, one = make("trm"), batch(1)["inputs"]
    strategy = lt.Rollouts(lt.FixedDepth(2), n=2, sigma=0.5)
    result = strategy.run(model, {"inputs": one.repeat(3, 1)}, lt.Standard(), ids=[7, 8, 7])
    assert torch.equal(result.rollouts.score[:, 0], result.rollouts.score[:, 2])
    assert not torch.equal(result.rollouts.score[:, 0], result.rollouts.score[:, 1])


def test_noise_is_drawn_before_every_loop_and_kept_by_those_who_stay(make, batch):
    # A sample that leaves early must not shift the draws of the others.
    model, puzzles = make("trm"), batch(6)
    deep = lt.Rollouts(lt.FixedDepth(5), n=2, sigma=0.4).run(model, puzzles, lt.TapsGD(), trace=True)
    early = lt.Rollouts(EARLY, n=2, sigma=0.4).run(model, puzzles, lt.TapsGD())
    assert len(set(early.rollouts.loops.flatten().tolist())) > 1
    stayed = early.rollouts.loops == 5
    assert stayed.any()
    torch.testing.assert_close(early.rollouts.score[stayed], deep.rollouts.score[stayed], rtol=0, atol=1e-4)


def test_chunks_change_nothing_and_bound_the_rows(make, batch):
    model, puzzles, sizes = make("trm"), batch(4), []
    model.L_level.register_forward_pre_hook(lambda _, args: sizes.append(len(args[0])))
    results = []
    for bound in (4096, 9, 8, 1):
        sizes.clear()
        strategy = lt.Rollouts(lt.FixedDepth(2), n=5, sigma=0.3, max_rows=bound)
        results.append(strategy.run(model, puzzles, lt.TapsAdam(), trace=True))
        assert max(sizes) == (20 if bound == 4096 else max(4, bound // 4 * 4))
    for other in results[1:]:
        assert torch.equal(other.output, results[0].output)
        torch.testing.assert_close(other.rollouts.score, results[0].rollouts.score, rtol=0, atol=1e-4)
        torch.testing.assert_close(other.trace.steps.eta, results[0].trace.steps.eta, rtol=0, atol=1e-4)


def test_smaller_budgets_are_prefixes(make, batch):
    model, puzzles = make("trm"), batch(4)
    for select in ("best-q", "mode"):
        large = lt.Rollouts(lt.FixedDepth(2), n=6, sigma=0.6, select=select).run(model, puzzles, lt.TapsGD())
        for n in (1, 2, 5):
            small = lt.Rollouts(lt.FixedDepth(2), n=n, sigma=0.6, select=select).run(model, puzzles, lt.TapsGD())
            cut = prefix(large, n, select)
            for field in ("output", "status", "loops", "updates", "updates_high"):
                assert torch.equal(getattr(cut, field), getattr(small, field)), field
            assert torch.equal(cut.rollouts.chosen, small.rollouts.chosen)


def test_every_rollout_has_its_own_controller_memory(make, batch):
    model, puzzles = make("trm"), batch(3)
    both = lt.Rollouts(lt.FixedDepth(3), n=2, sigma=0.5).run(model, puzzles, lt.TapsAdam())
    assert (both.rollouts.mean_eta[0] != both.rollouts.mean_eta[1]).all()


def test_the_trace_is_that_of_the_chosen_rollout(make, batch):
    model, puzzles = make("trm"), batch(4)
    result = lt.Rollouts(EARLY, n=3, sigma=0.5).run(model, puzzles, lt.TapsGD(), trace=True)
    assert len(set(result.rollouts.chosen.tolist())) > 1
    for row, loops in enumerate(result.loops.tolist()):
        assert torch.equal(result.trace.answers[loops - 1, row].long(), result.output[row])
        torch.testing.assert_close(result.trace.mean_eta[:loops, row].mean(), result.mean_eta[row])


def table(answers, score=None, status=None):
    output = torch.tensor(answers).unsqueeze(-1)
    shape = output.shape[:2]
    zeros = torch.zeros(shape, dtype=torch.int64)
    status = torch.ones(shape, dtype=torch.int8) if status is None else torch.tensor(status, dtype=torch.int8)
    score = None if score is None else torch.tensor(score)
    index = torch.arange(shape[0]).unsqueeze(1).expand(shape)
    return RolloutTable(zeros[0], output, status, index, zeros + 1, zeros, zeros.float(), score)


def test_selection_and_its_ties():
    answers = [[1, 1, 1, 5, 2], [2, 2, 1, 6, 2], [2, 3, 2, 5, 1], [1, 3, 2, 6, 2]]
    scores = [[0.0, 3.0, 1.0, -1.0, 2.0], [2.0, 3.0, 1.0, -2.0, float("nan")], [2.0, 1.0, 1.0, -1.0, 1.0], [1.0] * 5]
    scores[3][3] = -3.0
    best = _chosen(table(answers, scores), "best-q")
    assert best.rollouts.chosen.tolist() == [1, 0, 0, 0, 0]
    assert best.updates.tolist() == [4] * 5
    assert best.loops.tolist() == [1, 0, 0, 0, 0]
    mode = _chosen(table(answers), "mode")
    assert mode.output.flatten().tolist() == [1, 3, 1, 5, 2]
    assert mode.rollouts.chosen.tolist() == [0, 2, 0, 0, 0]


def test_rollouts_gone_bad_are_chosen_only_where_all_did():
    bad, fine = int(lt.Status.NONFINITE), int(lt.Status.RAN_ALL)
    status = [[bad, bad, fine], [bad, bad, bad], [fine, bad, bad]]
    scores = [[9.0, 1.0, 0.0], [9.0, 2.0, 9.0], [-5.0, 1.0, 9.0]]
    answers = [[1, 1, 1], [1, 2, 2], [2, 2, 2]]
    assert _chosen(table(answers, scores, status), "best-q").rollouts.chosen.tolist() == [2, 1, 0]
    assert _chosen(table(answers, scores, status), "mode").rollouts.chosen.tolist() == [2, 0, 0]
    no_number = [[9.0] * 3, [float("nan"), -torch.inf, 1.0], [float("nan"), 1.0, 1.0]]
    assert _chosen(table(answers, no_number, [[bad] * 3, [fine] * 3, [bad] * 3]), "best-q").rollouts.chosen.tolist() \
        == [1, 1, 1]


def test_a_bad_sample_harms_no_other(scripted, play):
    model = scripted(4, 3, finite=[[True] * 4, [True, False, True, True], [True] * 4], score=[[0.5] * 4] * 3)
    result = play(lt.Rollouts(lt.FixedDepth(4), n=3), model, 3)
    assert result.counts() == {"RAN_ALL": 2, "NONFINITE": 1}
    assert result.updates.tolist() == [3 * 4 * 36, 3 * 2 * 36, 3 * 4 * 36]


def test_any_rollout_right(make, batch):
    result = lt.Rollouts(lt.FixedDepth(1), n=4, sigma=1.0).run(make("trm"), batch(5), lt.Standard())
    target = result.rollouts.output[2]
    right = lambda answers: (answers == target).all(1)  # noqa: E731
    assert any_right(result, right).all()
    expected = torch.stack([right(o) for o in result.rollouts.output[:2]]).any(0)
    assert torch.equal(any_right(result, right, n=2), expected)
    with pytest.raises(InvalidShape, match="one bool per sample"):
        any_right(result, lambda answers: answers == target)


def test_random_starts_differ_between_rollouts_and_the_first_is_the_plain_runs(make, batch):
    model, puzzles = make("fprm", fixed_init=False), batch(3)
    plain = lt.FixedDepth(2).run(model, puzzles, lt.Standard(), seed=1)
    result = lt.Rollouts(lt.FixedDepth(2), n=2, sigma=0.0).run(model, puzzles, lt.Standard(), seed=1)
    assert torch.equal(result.rollouts.score[0], plain.score)
    assert not torch.equal(result.rollouts.score[1], plain.score)


@pytest.mark.parametrize(("fields", "error", "text"), [
    ({"n": 0}, InvalidValue, "Rollouts.n must be a whole number >= 1"),
    ({"n": 2.0}, InvalidValue, "Rollouts.n"),
    ({"sigma": -0.1}, InvalidValue, "Rollouts.sigma"),
    ({"sigma": float("nan")}, InvalidValue, "Rollouts.sigma"),
    ({"where": "z"}, InvalidValue, "Rollouts.where must be one of z_L, z_H"),
    ({"select": "best"}, InvalidValue, "Rollouts.select must be one of best-q, mode"),
    ({"max_rows": 0}, InvalidValue, "Rollouts.max_rows"),
    ({"inner": "fixed-depth"}, InvalidType, "Rollouts.inner must be a stopping rule"),
    ({"inner": lt.Rollouts(EARLY, n=1)}, InvalidType, "Rollouts.inner must be a stopping rule"),
    ({"inner": FPRMRule(batch_max=True)}, InvalidUse, "batch_max"),
])
def test_fields_out_of_range(fields, error, text):
    with pytest.raises(error, match=text):
        lt.Rollouts(**{"inner": EARLY, "n": 2, **fields})


def test_what_cannot_be_chosen_or_kicked_says_so(scripted, play, make, batch):
    with pytest.raises(InvalidUse, match=r"best-q.*needs a model with a score"):
        play(lt.Rollouts(lt.FixedDepth(2), n=2), model := scripted(2))
    assert model.batches == []  # before any loop is spent
    mode = play(lt.Rollouts(lt.FixedDepth(2), n=2, select="mode"), scripted(2))
    assert mode.score is None
    with pytest.raises(InvalidUse, match="needs scores"):
        prefix(mode, 1)
    with pytest.raises(InvalidUse, match="has z_L, x"):
        lt.Rollouts(lt.FixedDepth(2), n=2, where="z_H").run(make("looped"), batch(2), lt.Standard())
    with pytest.raises(InvalidValue, match=r"prefix\.n must be a whole number in 1\.\.2"):
        prefix(mode, 3, "mode")
    with pytest.raises(InvalidValue, match=r"prefix\.select"):
        prefix(mode, 1, "all")
    with pytest.raises(InvalidUse, match="single run"):
        prefix(play(lt.FixedDepth(2), scripted(2)), 1)
