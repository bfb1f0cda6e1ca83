"""What a comparison showed, in the sentences that a reader remembers."""

from __future__ import annotations

import math
from statistics import median

from looptaps.evaluation.comparison import Comparison, Pair, Row
from looptaps.report.words import crossing, listed, percent


def verdict(found: Comparison) -> str:
    """Against the baseline, against the constants at the rules' mean etas, and on the clock."""
    base = found.rows[0]
    interval = f"[{percent(base.accuracy.low)}, {percent(base.accuracy.high)}]"
    said = [f"On {found.facts.puzzles:,} puzzles with {found.facts.loops} loops, {base.name} solves "
            f"{percent(base.accuracy.value)} % {interval}."]
    others = found.rows[1:]
    rules = [row for row in others if row.kind == "rule"] or list(others)
    if rules:
        said += [_against_base(found, rules), *_against_constants(found, rules), _clock(rules, base, found.facts.loops)]
    return " ".join(said)


def _against_base(found: Comparison, rules: list[Row]) -> str:
    said = []
    pairs = [pair for row in rules if (pair := found.pair(row.name, "baseline")) is not None]
    for kind, word in (("better", "more"), ("worse", "fewer")):
        which = [pair for pair in pairs if pair.verdict == kind]
        if len(which) > 3:
            low, high = min(which, key=_size), max(which, key=_size)
            span = f"{low.b} ({_points(low)})"
            span = f"from {span} to {high.b} ({_points(high)})" if low is not high else f"such as {span}"
            said.append(f"{len(which)} of {len(pairs)} solve significantly {word}, {span}.")
        elif which:
            names = listed([f"{pair.b} ({_points(pair)})" for pair in which])
            said.append(f"{names} solve{'s' if len(which) == 1 else ''} significantly {word}.")
    if not said:
        return ("None of the others differs from it significantly." if len(pairs) > 1
                else f"{pairs[0].b} does not differ from it significantly.")
    return " ".join(said)


def _against_constants(found: Comparison, rules: list[Row]) -> list[str]:
    tested = [pair for row in rules if (pair := found.pair(row.name, "constant")) is not None]
    if not tested:
        adaptive = any(row.kind == "rule" for row in rules)
        return ["No constant at a rule's mean eta was run, so whether adapting matters is open."] * adaptive
    missing = [row.name for row in rules if row.kind == "rule" and found.pair(row.name, "constant") is None]
    won = [pair.b for pair in tested if pair.verdict == "better"]
    lost = [pair.b for pair in tested if pair.verdict == "worse"]
    said = []
    if won:
        said.append(f"{listed(won)} beat{'s' if len(won) == 1 else ''} the constant at the same mean eta.")
    else:
        rules_with = f"{len(tested)} rule{'s' * (len(tested) > 1)} with such a constant"
        which = f"Of the {rules_with} none" if missing else "No rule"
        said.append(f"{which} beats the constant at its own mean eta significantly.")
    if lost:
        said.append(f"{listed(lost)} {'is' if len(lost) == 1 else 'are'} significantly worse than that constant.")
    if missing:
        said.append(f"That constant was not run for {listed(missing)}.")
    return said


def _clock(rules: list[Row], base: Row, loops: int) -> str:
    own = base.matched.speedup
    if base.matched.loop is None:
        return f"{base.name} solves nothing, so there is no accuracy to reach."
    there = [row for row in rules if row.matched.loop is not None]
    if not there:
        return f"None reaches the final accuracy of {base.name}, so there is no speedup (N/R)."
    reached = [row for row in there if row.matched.speedup is not None]
    if own is None or not reached:
        first = min(there, key=lambda row: row.matched.loop or 0)
        return (f"{first.name} is as accurate as {base.name} at its end after loop {crossing(first.matched)} of "
                f"{loops}, {base.name} itself after {crossing(base.matched)}; their times may not be compared.")
    best = max(reached, key=lambda row: row.matched.speedup or 0.0)
    said = (f"At that accuracy {best.name} is the fastest, {best.matched.speedup:.2f} times as fast as all loops of "
            f"{base.name}, which itself is there {own:.2f} times as fast.")
    separate = best.matched.timing == "separate"
    return said + " (They were timed in separate calls.)" * separate


def _size(pair: Pair) -> float:
    return pair.difference


def _points(pair: Pair) -> str:
    return f"{100 * pair.difference:+.1f} points [{100 * pair.low:.1f}, {100 * pair.high:.1f}]"


def puzzles_needed(found: Comparison, difference: float = 0.01) -> int:
    """How many puzzles would show such a paired difference, at the disagreement seen here.

    About (1.96 / difference)^2 times the share of puzzles that two policies answer differently.
    """
    shares = [(pair.gained + pair.lost) / found.facts.puzzles for pair in found.pairs if pair.against == "baseline"]
    return math.ceil(median(shares) * (1.96 / difference) ** 2) if shares else 0


def needed(found: Comparison) -> str:
    """What so many puzzles can tell, in a sentence."""
    count, wanted = found.facts.puzzles, puzzles_needed(found)
    if wanted == 0:
        return (f"On these {count:,} puzzles hardly any policy disagrees with {found.base}: they are too few, or too "
                "easy, to tell policies apart.")
    enough = f"{count:,} puzzles tell such policies apart" if count >= wanted else \
        f"{count:,} puzzles cannot tell such policies apart unless they differ a lot"
    return f"{enough}: by these answers, a difference of one point needs about {wanted:,}."
