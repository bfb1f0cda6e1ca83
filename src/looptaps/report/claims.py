"""What a comparison shows of the paper's claim: a sentence with intervals, and one word.

    reproduced       every rule does what the claim says
    in part          some do
    not reproduced   none does, and for some the interval excludes it
    undecided        the intervals are too wide to say
    shown            nothing is claimed of it that could be judged

A rule is better than the unit step where the corrected test says so. Where it does not, the claim is excluded if the
interval ends below the paper's own gain (`MARGIN` where the paper has no number); else it is open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from scipy import stats

from looptaps.evaluation.comparison import Against, Comparison, Pair, Row
from looptaps.evaluation.difficulty import mean_interval
from looptaps.evaluation.recipe_record import Estimate
from looptaps.evaluation.recipes import Cell
from looptaps.evaluation.records import Run
from looptaps.report.words import share

State = Literal["yes", "no", "open"]
MARGIN = 0.01  # a point: what is at most so much worse keeps the accuracy
RESAMPLES = 1000


def outcome(cell: Cell, found: Comparison, estimates: Sequence[Estimate] = ()) -> tuple[str, str]:
    """What this comparison shows of the cell's claim, and the word for it."""
    if cell.claim in _ESTIMATED:
        return _of_estimates(cell, estimates)
    if cell.claim == "z_H-costs":
        return _noise(found)
    rules = [row for row in found.rows if row.kind == "rule"]
    if not rules:
        base = found.rows[0]
        return f"{share(base.accuracy)} % at {base.updates:,.0f} updates.", "shown"
    against: Against = "site" if cell.claim == "inner-beats-outer" else "baseline"
    pairs = [pair for row in rules if (pair := found.pair(row.name, against)) is not None]
    if not pairs:
        return "no such comparison was run.", "undecided"
    text = _text(found, pairs, "inner against outer control" if against == "site" else f"against {found.base}")
    cost = max(row.updates for row in rules) / found.rows[0].updates
    if cost < 0.9 and against == "baseline":
        text = f"{text[:-1]}, at {100 * cost:.0f} % of its updates."
    if cell.claim == "shown-only":
        return text, "shown"
    if cell.claim in ("not-worse", "not-worse-for-less"):
        kept = [_kept(pair, found.facts.puzzles) for pair in pairs]
        if cell.claim == "not-worse-for-less" and cost >= 0.9:
            kept = ["no"] * len(kept)
        return text, _word(kept)
    solved = _word([_better(pair, _gain(cell, pair), found.facts.puzzles) for pair in pairs])
    if cell.claim != "better-and-sooner":
        return text, solved
    sooner, said = _sooner(found.rows[0], rules)
    return f"{text[:-1]}; {said}", _both(solved, _word(sooner))


def _text(found: Comparison, pairs: Sequence[Pair], against: str) -> str:
    better, worse = (sum(pair.verdict == word for pair in pairs) for word in ("better", "worse"))
    best, least = max(pairs, key=_difference), min(pairs, key=_difference)
    span = f"best {best.b} {_points(best)}" + ("" if best is least else f", worst {least.b} {_points(least)}")
    return (f"{against}, {better} of {len(pairs)} rules significantly better and {worse} worse; {span} points "
            f"(n = {found.facts.puzzles:,}).")


def _difference(pair: Pair) -> float:
    return pair.difference


def _points(pair: Pair) -> str:
    return f"{100 * pair.difference:+.1f} [{100 * pair.low:+.1f}, {100 * pair.high:+.1f}]"


def _gain(cell: Cell, pair: Pair) -> float:
    """The paper's gain for this rule; a point where it has none."""
    rule, base = cell.paper(pair.b), cell.paper(pair.a)
    if pair.against == "site":
        said = rule.get("site")
    else:
        here, there = rule.get("accuracy"), base.get("accuracy")
        said = here - there if isinstance(here, float) and isinstance(there, float) else None
    return said / 100 if isinstance(said, float) and said > 0 else MARGIN


def _ends(pair: Pair, puzzles: int) -> tuple[float, float]:
    """The interval; where no puzzle went one way, that way is open by the rule of three, which resampling misses."""
    three = 3 / puzzles
    return (pair.low if pair.lost else min(pair.low, -three)), (pair.high if pair.gained else max(pair.high, three))


def _better(pair: Pair, gain: float, puzzles: int) -> State:
    if pair.verdict == "better":
        return "yes"
    return "no" if pair.verdict == "worse" or _ends(pair, puzzles)[1] < gain else "open"


def _kept(pair: Pair, puzzles: int) -> State:
    if _ends(pair, puzzles)[0] >= -MARGIN:
        return "yes"
    return "no" if pair.verdict == "worse" else "open"


def _sooner(base: Row, rules: Sequence[Row]) -> tuple[list[State], str]:
    """Sooner than all loops of the unit step, beyond resampling, and than the unit step itself is there."""
    own = base.matched.speedup or 1.0
    states: list[State] = []
    for row in rules:
        found = row.matched
        if found.speedup is None:
            states.append("no" if found.loop is None and found.reached < 0.025 else "open")
        elif found.speedup_low is not None and found.speedup_low > 1 and found.speedup > own:
            states.append("yes")
        else:
            states.append("no" if found.speedup_high is not None and found.speedup_high < max(own, 1) else "open")
    reached = [row for row in rules if row.matched.speedup is not None]
    if not reached:
        return states, f"no rule's speedup at the final accuracy of {base.name} is known."
    best = max(reached, key=lambda row: row.matched.speedup or 0)
    low, high = ("N/R" if end is None else f"{end:.2f}" for end in (best.matched.speedup_low,
                                                                    best.matched.speedup_high))
    return states, (f"at the final accuracy of {base.name} {states.count('yes')} are sooner, fastest {best.name} "
                    f"{best.matched.speedup:.2f}x [{low}, {high}], {base.name} itself {own:.2f}x.")


def _noise(found: Comparison) -> tuple[str, str]:
    """Noise on z_H against the same noise on z_L."""
    pairs = [pair for pair in found.pairs if pair.against == "baseline" and pair.b.startswith("z_H-")
             and found.row(pair.b).kind != "constant"]
    if not pairs:
        return "no such comparison was run.", "undecided"
    states: list[State] = ["yes" if pair.verdict == "worse" else "no" if _ends(pair, found.facts.puzzles)[0] > -MARGIN
                           else "open" for pair in pairs]
    most, least = min(pairs, key=_difference), max(pairs, key=_difference)
    return (f"against {found.base}, {states.count('yes')} of {len(pairs)} policies significantly worse with noise on "
            f"z_H; most {most.b} {_points(most)}, least {least.b} {_points(least)} points "
            f"(n = {found.facts.puzzles:,}).", _word(states))


def _word(states: Sequence[State]) -> str:
    if states and all(state == "yes" for state in states):
        return "reproduced"
    if "yes" in states:
        return "in part"
    return "not reproduced" if "no" in states else "undecided"


def _both(one: str, other: str) -> str:
    words = {one, other}
    if len(words) == 1:
        return one
    if words & {"reproduced", "in part"}:
        return "in part"
    return "not reproduced"


# Claims that accuracies alone cannot judge: how a number reads, and whether it must be above 0 or only not 0.
_ESTIMATED = {
    "harder-costs-more": ("rank correlation of empty cells and updates", "{:+.2f}", True),
    "fewer-updates": ("share of the fixed point's updates saved at its accuracy", "{:+.2f}", True),
    "schedule-changes": ("mean eta minus that of q = 1, inner", "{:+.3f}", False),
}


def _of_estimates(cell: Cell, estimates: Sequence[Estimate]) -> tuple[str, str]:
    what, form, above = _ESTIMATED[cell.claim]
    if not estimates:
        return "not measured.", "undecided"
    rules, units = [one for one in estimates if not one.unit], [one for one in estimates if one.unit]

    def beyond(least: float) -> list[State]:
        states: list[State] = []
        for one in rules:
            if (one.low is not None and one.low > least) or (not above and one.high is not None and one.high < least):
                states.append("yes")
            else:
                states.append("no" if above and (one.high is None or one.high <= least) else "open")
        return states

    def said(one: Estimate) -> str:
        value, low, high = ("N/R" if end is None else form.format(end) for end in (one.value, one.low, one.high))
        return f"{one.name} {value} [{low}, {high}]"

    ranked = sorted(rules, key=lambda one: -np.inf if one.value is None else one.value)
    span = said(ranked[-1]) if len(ranked) == 1 else f"from {said(ranked[0])} to {said(ranked[-1])}"
    states = beyond(0)
    text, word = f"{what}: {span}; so for {states.count('yes')} of {len(states)}", _word(states)
    for one in units:  # what the unit step does as well is not the rule's doing
        more = beyond(one.value or 0)
        text += f"; {said(one)}, which {more.count('yes')} exceed"
        word = _both(word, _word(more))
    return f"{text}.", word


def estimates(cell: Cell, found: Comparison, runs: Mapping[str, Run], target: Run | None, paper: Mapping[str, object]
              ) -> tuple[Estimate, ...]:
    """The numbers that the claim of this cell needs beyond the comparison.

    Args:
        cell: with the claim.
        found: the comparison of the runs.
        runs: by name.
        target: the run whose accuracies are to be reached, for `fewer-updates`.
        paper: the paper's numbers for it, by budget.
    """
    rules = [row.name for row in found.rows if row.kind == "rule"]
    if cell.claim == "harder-costs-more":
        return tuple(one for name in rules if (one := _rank(name, runs[name])) is not None)
    if cell.claim == "schedule-changes":
        return tuple(_changes(rules, runs))
    if cell.claim == "fewer-updates" and target is not None:
        per_loop = float((target.updates / target.loops).mean())
        budgets = [int(text) for text in paper if text.isdecimal()]
        within = [budget for budget in budgets if 1 <= budget // per_loop <= target.correct.shape[1]]
        units = [row.name for row in found.rows if row.kind == "unit" and runs[row.name] is not target]
        return tuple(_saved(name, runs[name], target, max(within), per_loop).model_copy(update={"unit": name in units})
                     for name in units + rules) if within else ()
    return ()


def _rank(name: str, run: Run) -> Estimate | None:
    """Spearman's correlation, with Bonett and Wright's interval."""
    empty = run.difficulty.get("empty")
    if empty is None or len(np.unique(empty)) < 2 or len(np.unique(run.updates)) < 2 or len(run) < 5:
        return None
    value = float(stats.spearmanr(empty, run.updates).statistic)
    reach = 1.96 * np.sqrt((1 + value**2 / 2) / (len(run) - 3))
    middle = np.arctanh(np.clip(value, -0.9999, 0.9999))
    return Estimate(name=name, value=round(value, 4), low=round(float(np.tanh(middle - reach)), 4),
                    high=round(float(np.tanh(middle + reach)), 4))


def _changes(rules: Sequence[str], runs: Mapping[str, Run]) -> list[Estimate]:
    """Mean eta by puzzle, against the same rule with inner control at every update."""
    def plain(name: str) -> bool:
        control = runs[name].meta["control"]
        return bool(control["site"] == "inner" and control["every"] == 1)

    found = []
    for name in rules:
        own = [other for other in rules if plain(other) and runs[other].meta["controller"] ==
               runs[name].meta["controller"]]
        if own and not plain(name):
            one = mean_interval(runs[name].eta - runs[own[0]].eta)
            found.append(Estimate(name=name, value=round(one.value, 5), low=round(one.low, 5), high=round(one.high, 5)))
    return found


def _saved(name: str, run: Run, target: Run, budget: int, per_loop: float) -> Estimate:
    """1 minus the mean updates at the target's accuracy over the budget; puzzles are resampled for both alike."""
    n, loops = run.correct.shape
    aim = target.correct[:, int(budget // per_loop) - 1]
    spent = np.minimum(run.loops[:, None], np.arange(1, loops + 1)) * (run.updates / run.loops)[:, None]

    def share_saved(weights: np.ndarray) -> np.ndarray:  # (R, N) -> (R,); -inf: not reached
        reached = weights @ run.correct >= (weights @ aim)[:, None]
        first = reached.argmax(1)
        saved = 1 - (weights @ spent)[np.arange(len(weights)), first] / n / budget
        return np.where(reached.any(1), saved, -np.inf)

    value = float(share_saved(np.ones((1, n)))[0])
    drawn = share_saved(np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(np.float64))
    low, high = np.quantile(drawn, [0.025, 0.975], method="inverted_cdf")
    ends = [None if not np.isfinite(end) else round(float(end), 4) for end in (value, low, high)]
    return Estimate(name=name, value=ends[0], low=ends[1], high=ends[2])
