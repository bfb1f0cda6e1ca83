"""GPQA's choices in an order that depends on the question alone.

lm-eval shuffles them by Python's global generator, so that the order depends on the seed and on the tasks before.
"""

from __future__ import annotations

from random import Random
from typing import Any

from lm_eval.tasks.gpqa.zeroshot.utils import preprocess

_ANSWERS = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3", "Correct Answer")


def process_docs(dataset: Any) -> Any:
    """Add `choice1`..`choice4` and `answer` to every row, as lm-eval's own does."""
    return dataset.map(_choices)


def _choices(row: dict[str, Any]) -> dict[str, str]:
    choices = [preprocess(row[name]) for name in _ANSWERS]
    right = choices[-1]
    Random(row["Question"]).shuffle(choices)
    letter = "ABCD"[choices.index(right)]
    return {**{f"choice{n}": choice for n, choice in enumerate(choices, 1)}, "answer": f"({letter})"}
