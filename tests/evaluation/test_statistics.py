"""Intervals and tests against scipy, hand-worked cases and simulation."""

import numpy as np
import pytest
from scipy import stats

import looptaps as lt
from looptaps.evaluation.statistics import holm, loops_to_match, paired, proportion


def flags(*counts):
    return np.concatenate([np.full(n, value) for n, value in counts]).astype(bool)


def test_a_share_has_wilsons_interval():
    found = proportion(flags((8, True), (2, False)))
    z, p, n = stats.norm.ppf(0.975), 0.8, 10
    centre, half = (p + z**2 / (2 * n)), z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    assert found == pytest.approx((p, (centre - half) / (1 + z**2 / n), (centre + half) / (1 + z**2 / n)))


def test_mcnemar_is_the_sign_test_on_the_puzzles_that_differ():
    a = flags((10, True), (1, True), (9, False), (5, False))
    b = flags((10, True), (1, False), (9, True), (5, False))
    found = paired(a, b)
    assert (found.gained, found.lost) == (9, 1)
    assert found.difference == pytest.approx(8 / 25)
    assert found.p == pytest.approx(2 * (1 + 10) / 2**10)  # two tails of 10 coins: 0 or 1 heads
    assert found.verdict() == "better"
    assert paired(b, a).verdict() == "worse"


def test_the_bootstrap_is_scipys():
    rng = np.random.default_rng(1)
    a = rng.random(400) < 0.7
    b = np.where(rng.random(400) < 0.1, ~a, a)
    found = paired(a, b, resamples=20_000)
    reference = stats.bootstrap((b.astype(float) - a.astype(float),), np.mean, n_resamples=20_000, method="percentile",
                                rng=np.random.default_rng(2)).confidence_interval
    assert (found.low, found.high) == pytest.approx((reference.low, reference.high), abs=0.004)


def test_the_same_answers_twice_are_no_difference():
    a = flags((30, True), (20, False))
    assert paired(a, a) == (0.0, 0.0, 0.0, 0, 0, 1.0)
    assert paired(a, a).verdict() == "no difference"


def test_95_percent_intervals_cover_the_truth_about_95_percent_of_the_time():
    rng, hits = np.random.default_rng(0), 0
    for _ in range(600):
        kind = rng.choice(3, size=300, p=[0.12, 0.08, 0.80])  # gained, lost, the same: the truth is 0.04
        a = np.where(kind == 1, True, np.where(kind == 0, False, rng.random(300) < 0.5))
        b = np.where(kind == 1, False, np.where(kind == 0, True, a))
        found = paired(a, b, resamples=1000, seed=int(rng.integers(2**31)))
        hits += found.low <= 0.04 <= found.high
    assert 0.92 <= hits / 600 <= 0.975


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_corrected_p_value_decides_the_verdict():
    found = paired(flags((10, True), (90, False)), flags((20, True), (80, False)))
    assert found.verdict() == "better"
    assert found.verdict(p=0.2) == "no difference"


def test_loops_to_match():
    assert loops_to_match([0.1, 0.5, 0.4, 0.6], 0.6) == 4
    assert loops_to_match([0.1, 0.5], 0.6) is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: proportion(np.array([])), "non-empty 1-D array"),
        (lambda: proportion(np.array([1, 0])), "True and False"),
        (lambda: paired(flags((2, True)), flags((3, True))), "the same puzzles twice"),
        (lambda: paired(flags((2, True)), flags((2, True)), confidence=95), r"confidence must be a number in \(0, 1\)"),
    ],
)
def test_wrong_input_is_one_sentence(call, message):
    with pytest.raises(lt.errors.LooptapsError, match=message):
        call()
