"""docs/numerics.md: every row names tests, and every test that is named exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from looptaps.testing import contract

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "numerics.md").read_text(encoding="utf-8")
ROWS = [
    line
    for line in TEXT.splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| question "))
]
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))


def test_every_row_names_a_test() -> None:
    assert ROWS
    for row in ROWS:
        assert re.search(r"`tests/[\w/]+\.py::\w+`", row), row


@pytest.mark.parametrize(("file", "name"), NAMED, ids=lambda value: value)
def test_the_named_test_exists(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_named_promise_is_in_the_contract() -> None:
    promises = {promise for promise, _, _ in contract()}
    named = {
        promise
        for group in re.findall(r"::test_contract` \(([^)]+)\)", TEXT)
        for promise in group.split(", ")
    }
    assert named
    assert named <= promises, named - promises
