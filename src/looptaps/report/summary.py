"""What a set of policies showed: one row each against the baseline, and the sentence that a reader remembers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from looptaps.errors import InvalidUse
from looptaps.evaluation.statistics import Interval, Paired, Verdict, holm, loops_to_match, paired, proportion
from looptaps.report.policy import Policy
from looptaps.specs import spec

SAME_ETA = 0.01  # a constant this close to a rule's mean eta is the constant that belongs beside it


class Row(NamedTuple):
    """A policy against the baseline (None in the baseline's own row) and against the constant at its mean eta.

    `p` is McNemar's after Holm's correction over all policies; `loops` the first loop at the baseline's final
    accuracy (None: not reached).
    """

    policy: Policy
    accuracy: Interval
    difference: Paired | None
    p: float | None
    verdict: Verdict | None
    constant: str | None
    to_constant: Paired | None
    constant_verdict: Verdict | None
    loops: int | None

    @property
    def speedup(self) -> float | None:
        """Loops of the baseline over loops until this policy is as accurate; None where it never is."""
        return None if self.loops is None else self.policy.run.correct.shape[1] / self.loops


def summarise(policies: list[Policy]) -> list[Row]:
    """One row for each policy, the baseline (the unit step, if it is there) first."""
    policies = check_comparable(policies)
    base = policies[0]
    against = {policy.label: paired(base.run.final, policy.run.final) for policy in policies[1:]}
    corrected = dict(zip(against, holm([found.p for found in against.values()]), strict=True))
    beside = {policy.label: constant for policy in policies if (constant := _constant_beside(policy, policies))}
    known = {policy.label: policy for policy in policies}
    to_constant = {label: paired(known[name].run.final, known[label].run.final) for label, name in beside.items()}
    constant_p = dict(zip(to_constant, holm([found.p for found in to_constant.values()]), strict=True))
    target = float(base.accuracy[-1])
    return [
        Row(
            policy, proportion(policy.run.final), against.get(policy.label), corrected.get(policy.label),
            against[policy.label].verdict(p=corrected[policy.label]) if policy.label in against else None,
            beside.get(policy.label), to_constant.get(policy.label),
            to_constant[policy.label].verdict(p=constant_p[policy.label]) if policy.label in to_constant else None,
            loops_to_match([float(share) for share in policy.accuracy], target),
        )
        for policy in policies
    ]


def check_comparable(policies: list[Policy]) -> list[Policy]:
    """The policies with the baseline first; refused where they are of different puzzles or horizons."""
    if not policies:
        raise InvalidUse("A report needs at least one run. Name the folders that `looptaps run` wrote.")
    base = next((policy for policy in policies if policy.kind == "unit"), policies[0])
    rest = [policy for policy in policies if policy is not base]
    labels = [policy.label for policy in policies]
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise InvalidUse(f"Two runs are called {twice!r}. Give them different names.")
    for policy in rest:
        for what, mine, theirs in (("tasks", policy.task, base.task),
                                   ("horizons", policy.run.correct.shape[1], base.run.correct.shape[1]),
                                   ("numbers of puzzles", len(policy.run.ids), len(base.run.ids))):
            if mine != theirs:
                raise InvalidUse(f"{policy.label} and {base.label} are of different {what}: {mine} and {theirs}. "
                                 "Report runs of the same puzzles and loops.")
        if not np.array_equal(policy.run.ids, base.run.ids):
            raise InvalidUse(f"{policy.label} and {base.label} ran different puzzles. Report runs of the same puzzles.")
    return [base, *rest]


def _constant_beside(policy: Policy, policies: list[Policy]) -> str | None:
    if policy.kind != "rule":
        return None
    near = [(abs(float(spec(other.controller).eta) - policy.run.mean_eta), other.label)
            for other in policies if other.kind == "constant" and other.site == policy.site]
    found = min(near, default=None)
    return found[1] if found is not None and found[0] <= SAME_ETA else None


def site_pairs(policies: Sequence[Policy]) -> list[tuple[Policy, Policy]]:
    """Inner and outer control by the same rule, all else being equal."""
    def key(policy: Policy) -> tuple[Any, ...]:
        meta = policy.run.meta
        control = {name: value for name, value in meta["control"].items() if name not in ("site", "outer_at")}
        return policy.controller, sorted(control.items()), meta["strategy"]

    rules = [policy for policy in policies if policy.kind == "rule"]
    return [(inner, outer) for inner in rules for outer in rules
            if inner.site == "inner" and outer.site == "outer" and key(inner) == key(outer)]


def verdict(rows: list[Row]) -> str:
    """What was found, in two or three plain sentences."""
    base = rows[0]
    n, loops = base.policy.run.correct.shape
    said = [f"On {n:,} puzzles with {loops} loops, {base.policy.label} solves {100 * base.accuracy.value:.1f} %."]
    rules = [row for row in rows[1:] if row.policy.kind == "rule"] or rows[1:]
    for kind, word in (("better", "more"), ("worse", "fewer")):
        found = [row for row in rules if row.verdict == kind]
        if found:
            names = ", ".join(f"{row.policy.label} ({_points(row.difference)})" for row in found if row.difference)
            said.append(f"{names} solve{'s' if len(found) == 1 else ''} significantly {word}.")
    if rules and not any(row.verdict in ("better", "worse") for row in rules):
        said.append("None of the others differs from it significantly." if len(rules) > 1 else
                    f"{rules[0].policy.label} does not differ from it significantly.")
    tested = [row for row in rules if row.to_constant is not None]
    if tested:
        won = [row.policy.label for row in tested if row.constant_verdict == "better"]
        said.append(f"{', '.join(won)} also beat{'s' if len(won) == 1 else ''} the constant at the same mean eta."
                    if won else "No rule beats the constant at its own mean eta significantly.")
    elif any(row.policy.kind == "rule" for row in rules):
        said.append("No constant at a rule's mean eta was run, so whether adapting matters is open.")
    return " ".join(said)


def _points(found: Paired) -> str:
    return f"{100 * found.difference:+.1f} points [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def puzzles_needed(rows: list[Row], difference: float = 0.01) -> int:
    """How many puzzles would show such a paired difference, at the disagreement seen here.

    About (1.96 / difference)^2 times the share of puzzles that two policies answer differently.
    """
    shares = [(row.difference.gained + row.difference.lost) / len(row.policy.run) for row in rows if row.difference]
    typical = float(np.median(shares)) if shares else 0.0
    return int(np.ceil(typical * (1.96 / difference) ** 2))
