"""Records of `benchmarks/` that hold a percentage for each policy and measure, as a table: what a recipe shows of a
language model when its own models are not at hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from looptaps.errors import InvalidFile
from looptaps.evaluation.recipe_record import TextTable


def policy_table(path: Path) -> TextTable:
    """Policies as rows, measures as columns: the percentage, and every difference, with intervals."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        policies = record["figures"]["policies"]
        measures = [name for name, value in next(iter(policies.values())).items()
                    if isinstance(value, dict) and "percent" in value]
        rows = tuple((name, *(_cell(found[measure]) for measure in measures)) for name, found in policies.items())
        questions = {measure: next(iter(policies.values()))[measure]["questions"] for measure in measures}
        model, commit = record["model"], (record["commit"] or "unknown")[:10]
        caption = (f"{record['measured']} {model['name']}, {model['parameters']:,} parameters, {model['dtype']}; "
                   f"{record['device']['name']}; commit {commit}; {record['finished'][:10]}.")
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        raise InvalidFile(f"{path} is no record of policies and percentages ({type(error).__name__}: {error}). Make it "
                          "anew with the script in benchmarks/ of its name.") from error
    return TextTable(title=path.stem, caption=caption, rows=rows,
                     columns=("policy", *(f"{measure}, % of {questions[measure]}" for measure in measures)))


def _cell(found: dict[str, Any]) -> str:
    low, high = found["interval_95"]
    said = f"{found['percent']:.1f} [{low:.1f}, {high:.1f}]"
    for name, other in found.items():
        if name.startswith("minus "):
            low, high = other["interval_95"]
            said += f"; {name} {other['points']:+.1f} [{low:+.1f}, {high:+.1f}]"
    return said
