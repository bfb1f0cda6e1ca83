"""Accuracy and compute by difficulty: groups of about one size, equal difficulties together, intervals that contain."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import stats

from looptaps.errors import InvalidShape, InvalidValue
from looptaps.evaluation.difficulty import by_difficulty, mean_interval
from looptaps.evaluation.statistics import proportion


def test_groups_hold_every_puzzle_once_and_equal_difficulties_together():
    rng = np.random.default_rng(0)
    difficulty = rng.integers(50, 60, 400)
    correct, updates = rng.random(400) < 0.7, rng.integers(48, 384, 400)
    found = by_difficulty(difficulty, correct, updates)
    assert len(found) == 4
    assert sum(group.puzzles for group in found) == 400
    for easier, harder in pairwise(found):
        assert easier.high < harder.low
    for group in found:
        rows = (difficulty >= group.low) & (difficulty <= group.high)
        assert group.puzzles == rows.sum()
        assert group.accuracy == proportion(correct[rows])
        assert group.updates.value == pytest.approx(updates[rows].mean())
        assert group.updates.low < group.updates.value < group.updates.high
        assert group.quartiles == tuple(np.quantile(updates[rows], [0.25, 0.5, 0.75]))


def test_one_difficulty_is_one_group_and_tensors_will_do():
    (group,) = by_difficulty(torch.tensor([3, 3, 3]), torch.tensor([True, False, True]), torch.tensor([12, 12, 12]))
    assert (group.low, group.high, group.puzzles) == (3, 3, 3)
    assert group.updates == (12, 12, 12)


def test_the_interval_of_a_mean_is_students():
    values = np.random.default_rng(1).normal(size=30)
    reference = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert mean_interval(values)[1:] == pytest.approx(tuple(reference))
    assert mean_interval([2.0]) == (2, 2, 2)


@pytest.mark.parametrize(("arguments", "error", "text"), [
    (([1, 2], [True], [1, 2]), InvalidShape, "one difficulty, one flag"),
    (([], [], []), InvalidShape, "one difficulty, one flag"),
    (([1, float("nan")], [True, True], [1, 2]), InvalidValue, "finite difficulties"),
    (([1, 2], [True, True], [1, float("inf")]), InvalidValue, "finite difficulties"),
])
def test_wrong_columns_are_one_sentence(arguments, error, text):
    with pytest.raises(error, match=text):
        by_difficulty(*arguments)


@pytest.mark.parametrize("groups", [0, 1.5, True])
def test_a_wrong_number_of_groups_is_one_sentence(groups):
    with pytest.raises(InvalidValue, match=r"by_difficulty\.groups must be a whole number >= 1"):
        by_difficulty([1, 2], [True, True], [1, 2], groups=groups)
