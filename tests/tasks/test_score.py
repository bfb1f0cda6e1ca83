"""Promises about scoring."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from looptaps.errors import InvalidShape, InvalidType, InvalidValue
from looptaps.tasks import Task, score

BATCH = {
    "inputs": torch.tensor([[2, 1, 1, 3]] * 3),
    "labels": torch.tensor([[2, 3, 4, 3], [2, 3, 4, 3], [2, 3, -100, 3]]),
}


def test_exact_means_every_scored_cell_and_accuracies_are_per_sample() -> None:
    scores = score(torch.tensor([[2, 3, 4, 3], [2, 3, 3, 2], [2, 3, 0, 3]]), BATCH)
    assert scores.exact.tolist() == [True, False, True]
    assert scores.token_accuracy.tolist() == [1.0, 0.5, 1.0]
    assert scores.open_accuracy.tolist() == [1.0, 0.5, 1.0]


def test_a_sample_with_nothing_open_counts_as_fully_right_there() -> None:
    batch = {"inputs": torch.tensor([[2, 3]]), "labels": torch.tensor([[2, 3]])}
    assert score(torch.tensor([[0, 0]]), batch).open_accuracy.tolist() == [1.0]


def test_logits_instead_of_tokens_are_refused() -> None:
    with pytest.raises(InvalidShape, match="argmax tokens"):
        score(torch.zeros(3, 4, 5), BATCH)


def make(**changes: object) -> Task:
    tokens = np.ones((2, 4), np.uint8)
    values = {"name": "x", "vocab_size": 2, "inputs": tokens, "labels": tokens, "difficulty": {}, "origin": "here"}
    return Task(**{**values, **changes})  # type: ignore[arg-type]


def test_a_task_with_parts_that_do_not_fit_is_refused() -> None:
    with pytest.raises(InvalidShape, match="one number for each of the 2"):
        make(difficulty={"rating": np.ones(3)})
    with pytest.raises(InvalidShape, match=r"\(2, 4\) and \(2, 3\)"):
        make(labels=np.ones((2, 3), np.uint8))
    with pytest.raises(InvalidValue, match=r"tokens in 0\.\.1, but row 1 has 5 at cell 2"):
        make(inputs=np.array([[1, 1, 1, 1], [1, 1, 5, 1]]))
    with pytest.raises(InvalidType, match="must be integers, but are float64"):
        make(inputs=np.ones((2, 4)))
    with pytest.raises(InvalidValue, match="batch_size must be an integer >= 1"):
        next(make().batches(0))
