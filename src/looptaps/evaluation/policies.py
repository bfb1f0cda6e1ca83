"""Several policies on the same puzzles: unit step, rules, and the constant at each rule's own mean eta.

An adaptive rule that beats the unit step may only have found a better constant. So beside every rule stands the
constant at its mean eta, and every difference is paired, with an interval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from looptaps.controllers import Constant, Standard
from looptaps.errors import InvalidUse
from looptaps.evaluation.curves import Curve, accuracy_curve, join_curves
from looptaps.evaluation.statistics import Interval, Paired, holm, loops_to_match, paired, proportion
from looptaps.loop import LoopModel
from looptaps.tasks.base import Task

UNIT = "unit step"
RULES = ("taps-gd", "taps-sign", "taps-momentum", "taps-rmsprop", "taps-adam", "taps-bb")


class PolicyRow(NamedTuple):
    """One policy on one set of puzzles.

    `accuracy` after the last loop; `to_unit` this policy minus the unit step; `constant` the name of the constant at
    its mean eta and `to_constant` this policy minus that one (None for fixed schedules); `p_unit` is McNemar's p
    against the unit step after Holm's correction over all policies; `loops` the first loop at the unit step's final
    accuracy (None: not reached).
    """

    name: str
    curve: Curve
    accuracy: Interval
    to_unit: Paired | None
    p_unit: float | None
    constant: str | None
    to_constant: Paired | None
    loops: int | None


def compare_policies(
    model: LoopModel[Any],
    task: Task,
    rules: Mapping[str, Any],
    loops: int,
    *,
    limit: int | None = None,
    batch_size: int = 32,
    progress: Callable[[str, int], None] | None = None,
) -> list[PolicyRow]:
    """Unit step, every rule, and the constants at the rules' mean etas (to two decimals), interleaved by batch.

    Args:
        model: any `LoopModel`.
        task: the puzzles; the same for every policy.
        rules: name -> controller or `Control`.
        loops: the horizon H.
        limit: the first so many puzzles only.
        batch_size: puzzles at a time.
        progress: told the policy and the number of puzzles after each batch.
    """
    if UNIT in rules:
        raise InvalidUse(f"compare_policies runs {UNIT!r} itself; leave it out of the rules.")
    curves = _run(model, task, {UNIT: Standard(), **rules}, loops, limit, batch_size, progress)
    matched = {name: f"constant {curves[name].mean_eta:.2f}" for name in rules}
    constants = {text: Constant(float(text.split()[1])) for text in sorted(set(matched.values()))}
    curves |= _run(model, task, constants, loops, limit, batch_size, progress)
    return _rows(curves, matched)


def _run(
    model: LoopModel[Any],
    task: Task,
    policies: Mapping[str, Any],
    loops: int,
    limit: int | None,
    batch_size: int,
    progress: Callable[[str, int], None] | None,
) -> dict[str, Curve]:
    # Batch by batch through all policies, so that whatever else the machine does falls on all of them alike.
    parts: dict[str, list[Curve]] = {name: [] for name in policies}
    n = len(task) if limit is None else min(limit, len(task))
    for start in range(0, n, batch_size):
        rows = np.arange(start, min(start + batch_size, n))
        for name, control in policies.items():
            parts[name].append(accuracy_curve(model, task.select(rows), control, loops, batch_size=batch_size))
            if progress is not None:
                progress(name, len(rows))
    return {name: join_curves(found) for name, found in parts.items()}


def _rows(curves: Mapping[str, Curve], matched: Mapping[str, str]) -> list[PolicyRow]:
    unit = curves[UNIT]
    last = {name: curve.correct[:, -1] for name, curve in curves.items()}
    against = {name: paired(last[UNIT], last[name]) for name in curves if name != UNIT}
    corrected = dict(zip(against, holm([found.p for found in against.values()]), strict=True))
    return [
        PolicyRow(
            name,
            curve,
            proportion(last[name]),
            against.get(name),
            corrected.get(name),
            matched.get(name),
            paired(last[matched[name]], last[name]) if name in matched else None,
            loops_to_match(curve.accuracy, unit.accuracy[-1]),
        )
        for name, curve in curves.items()
    ]


def verdict(rows: list[PolicyRow]) -> str:
    """What was found, in plain sentences: against the unit step, and against the mean-matched constants."""
    n, loops = rows[0].curve.correct.shape
    rules = [row for row in rows if row.constant is not None]
    better = [r.name for r in rules if r.to_unit and r.to_unit.verdict(p=r.p_unit) == "better"]
    worse = [r.name for r in rules if r.to_unit and r.to_unit.verdict(p=r.p_unit) == "worse"]
    corrected = holm([r.to_constant.p for r in rules if r.to_constant])
    adaptive = [r.name for r, p in zip(rules, corrected, strict=True)
                if r.to_constant and r.to_constant.verdict(p=p) == "better"]
    unit = rows[0].accuracy
    found = f"On {n} puzzles with {loops} loops the unit step solves {100 * unit.value:.1f} %. "
    if not better and not worse:
        found += "No rule differs from it significantly. "
    else:
        for names, word in ((better, "more"), (worse, "fewer")):
            if names:
                found += f"{', '.join(names)} solve{'s' if len(names) == 1 else ''} significantly {word}. "
    if adaptive:
        beat = "also beats" if len(adaptive) == 1 else "also beat"
        found += f"{', '.join(adaptive)} {beat} the constant at the same mean eta."
    else:
        found += "No rule beats the constant at its own mean eta significantly."
    return found


def puzzles_needed(rows: list[PolicyRow], points: float = 1.0) -> int:
    """How many puzzles would show a paired difference of so many points, at the disagreement seen here.

    About (1.96 / d)^2 times the share of puzzles that two policies answer differently.
    """
    shares = [(r.to_unit.gained + r.to_unit.lost) / len(r.curve.ids) for r in rows if r.to_unit]
    typical = float(np.median(shares)) if shares else 0.0
    return int(np.ceil(typical * (1.96 / (points / 100)) ** 2))
