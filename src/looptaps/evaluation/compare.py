"""Runs side by side: accuracy, paired differences, and the time to the baseline's accuracy, as a `Comparison`.

Refuses runs of different puzzles, seeds or horizons: their differences would say nothing about policies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from looptaps.errors import InvalidUse, unknown
from looptaps.evaluation.comparison import Against, Comparison, Facts, Kind, Matched, Pair, Row, Share
from looptaps.evaluation.matched import Crossing, clock, crossings, speedup, spread
from looptaps.evaluation.records import Run
from looptaps.evaluation.statistics import Interval, holm, paired, proportion
from looptaps.specs import spec

SAME_ETA = 0.0101  # a constant this close to a rule's mean eta is the one that belongs beside it
_MUST_AGREE = (("task.sha256", "puzzles"), ("task.n", "numbers of puzzles"), ("seed", "seeds"), ("loops", "horizons"))


def named(runs: Sequence[Run]) -> dict[str, Run]:
    """Each run by its name; by its folder where two have the same name."""
    names = [run.name for run in runs]
    found = {run.name if names.count(run.name) == 1 else str(run.folder): run for run in runs}
    if len(found) < len(runs):
        twice = next(str(run.folder) for run in runs if [str(r.folder) for r in runs].count(str(run.folder)) > 1)
        raise InvalidUse(f"The run in {twice} is named twice. Name each folder once.")
    return found


def compare(runs: Sequence[Run] | Mapping[str, Run], *, baseline: str | None = None, title: str = "") -> Comparison:
    """The comparison of finished runs on the same puzzles.

    Args:
        runs: what `load_run` gives; or name -> run.
        baseline: the name that the others are compared with; left out, the first unit step, or else the first run.
        title: of the comparison.
    """
    by_name = dict(runs) if isinstance(runs, Mapping) else named(runs)
    if not by_name:
        raise InvalidUse("compare needs at least one run. Name the folders that `looptaps run` wrote.")
    base = _baseline(by_name, baseline)
    check_comparable(by_name, base)
    rank = {"unit": 0, "rule": 1, "constant": 2}
    rest = sorted((name for name in by_name if name != base), key=lambda name: rank[kind_of(by_name[name])])
    order = [base, *rest]
    by_name = {name: by_name[name] for name in order}
    beside = {name: constant for name in order if (constant := constant_beside(name, by_name))}
    found = crossings(by_name[base], by_name)
    return Comparison(
        title=title,
        facts=_facts(by_name[base], list(by_name.values())),
        base=base,
        rows=tuple(_row(name, run, by_name[base], beside.get(name), found[name]) for name, run in by_name.items()),
        pairs=(*_pairs([(base, name) for name in order[1:]], "baseline", by_name),
               *_pairs([(constant, name) for name, constant in beside.items()], "constant", by_name),
               *_pairs(site_pairs(by_name), "site", by_name)),
    )


def _baseline(runs: Mapping[str, Run], asked: str | None) -> str:
    if asked is not None:
        if asked not in runs:
            raise unknown("baseline", asked, runs)
        return asked
    units = [name for name, run in runs.items() if kind_of(run) == "unit"]
    plain = [name for name in units if str(runs[name].meta["strategy"]).startswith("fixed-depth:")]
    return (plain or units or list(runs))[0]


def kind_of(run: Run) -> Kind:
    """`unit` and `constant` have a fixed step; everything else is a rule."""
    name = str(run.meta["controller"]).partition(":")[0]  # a rule of another package need not be installed here
    kinds: dict[str, Kind] = {"standard": "unit", "constant": "constant", "schedule": "constant"}
    return kinds.get(name, "rule")


def check_comparable(runs: Mapping[str, Run], base: str) -> None:
    """Refuse runs that did not do the same work, with the reason."""
    for name, run in runs.items():
        for field, what in _MUST_AGREE:
            mine, theirs = _field(run, field), _field(runs[base], field)
            if mine != theirs:
                raise InvalidUse(f"{name} and {base} are of different {what}: {field} is {_short(mine)} and "
                                 f"{_short(theirs)}. Compare runs of the same puzzles, seed and loops.")
        if not np.array_equal(run.ids, runs[base].ids):
            raise InvalidUse(f"{name} and {base} hold different ids. Compare runs of the same puzzles.")


def _field(run: Run, field: str) -> object:
    at: object = run.meta
    for key in field.split("."):
        assert isinstance(at, dict)
        at = at[key]
    return at


def _short(value: object) -> str:
    return value[:12] if isinstance(value, str) else str(value)


def constant_beside(name: str, runs: Mapping[str, Run]) -> str | None:
    """The constant at a rule's mean eta, everything else being the same; None if it was not run."""
    rule = runs[name]
    if kind_of(rule) != "rule":
        return None
    near = [
        (abs(float(spec(str(other.meta["controller"])).eta) - rule.mean_eta), label)
        for label, other in runs.items()
        if str(other.meta["controller"]).startswith("constant:") and _alike(other, rule, ("site", "outer_at"))
    ]
    found = min(near, default=None)
    return found[1] if found is not None and found[0] <= SAME_ETA else None


def site_pairs(runs: Mapping[str, Run]) -> list[tuple[str, str]]:
    """(outer, inner) by the same controller, all else being equal."""
    def of(site: str) -> list[tuple[str, Run]]:
        return [(name, run) for name, run in runs.items()
                if run.meta["control"]["site"] == site and kind_of(run) != "unit"]

    return [(a, b) for b, inner in of("inner") for a, outer in of("outer")
            if inner.meta["controller"] == outer.meta["controller"]
            and _alike(inner, outer, ("every", "scope", "memory"))]


def _alike(one: Run, other: Run, control: tuple[str, ...]) -> bool:
    """Of one model and strategy, and the same in these fields of their control."""
    return (one.meta["model"]["sha256"] == other.meta["model"]["sha256"]
            and one.meta["strategy"] == other.meta["strategy"]
            and all(one.meta["control"][field] == other.meta["control"][field] for field in control))


def _pairs(names: list[tuple[str, str]], against: Against, runs: Mapping[str, Run]) -> list[Pair]:
    found = [paired(runs[a].final, runs[b].final) for a, b in names]
    corrected = holm([pair.p for pair in found])
    return [
        Pair(a=a, b=b, against=against, difference=pair.difference, low=pair.low, high=pair.high, gained=pair.gained,
             lost=pair.lost, p=pair.p, p_holm=p, verdict=pair.verdict(p=p))
        for (a, b), pair, p in zip(names, found, corrected, strict=True)
    ]


def _row(name: str, run: Run, base: Run, constant: str | None, crossing: Crossing) -> Row:
    meta, time = run.meta, clock(base, run)
    at = {where: speedup(run, time.ratio, loop)
          for where, loop in (("here", crossing.loop), ("early", crossing.low), ("late", crossing.high))}
    return Row(
        name=name, kind=kind_of(run), model=str(meta["model"]["spec"]), model_sha256=meta["model"]["sha256"],
        parameters=int(meta["model"]["parameters"]), controller=str(meta["controller"]),
        site=str(meta["control"]["site"]), every=int(meta["control"]["every"]), strategy=str(meta["strategy"]),
        accuracy=_share(proportion(run.final)), any=None if run.any is None else _share(proportion(run.any)),
        by_loop=tuple(round(share, 6) for share in run.accuracy), mean_eta=round(run.mean_eta, 6),
        loops=round(float(run.loops.mean()), 4), updates=round(float(run.updates.mean()), 3),
        updates_median=float(np.median(run.updates)), updates_max=int(run.updates.max()),
        updates_high=round(float(run.updates_high.mean()), 3), seconds=float(meta["timing"]["seconds"]),
        constant=constant,
        matched=Matched(
            loop=crossing.loop, loop_low=crossing.low, loop_high=crossing.high, reached=round(crossing.reached, 4),
            speedup=_rounded(at["here"]), speedup_low=_rounded(at["late"]), speedup_high=_rounded(at["early"]),
            ratio=_rounded(time.ratio), spread=spread(base, run), timing=time.timing, note=time.note,
        ),
    )  # fmt: skip


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 5)


def _share(found: Interval) -> Share:
    return Share(value=found.value, low=found.low, high=found.high)


def _facts(base: Run, runs: Sequence[Run]) -> Facts:
    meta = base.meta
    return Facts(
        task=str(meta["task"]["spec"]), task_sha256=str(meta["task"]["sha256"]), puzzles=len(base),
        loops=int(meta["loops"]), seed=int(meta["seed"]), batch_size=int(meta["batch_size"]),
        device=str(meta["device"]["name"]), threads=int(meta["device"]["threads"]), dtype=str(meta["dtype"]),
        compiled=bool(meta["compiled"]), torch=str(meta["versions"]["torch"]), looptaps=str(meta["looptaps"]),
        commit=meta["git"]["commit"], changed=meta["git"]["dirty"], finished=max(str(r.meta["finished"]) for r in runs),
    )  # fmt: skip
