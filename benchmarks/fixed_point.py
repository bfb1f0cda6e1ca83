"""Fixed points: the updates each method needs for the accuracies that FixedPoint reaches at 50, 100, 500, 1,000.

Every method runs each puzzle once, to `--updates` at most, and answers after every outer loop are kept; a smaller
budget is a prefix of that run (a puzzle that has converged keeps its answer and spends nothing more). The targets are
the unit step's accuracies at the largest whole loops within 50, 100, 500 and 1,000 updates. For each method: the
smallest budget that reaches the target, and the mean updates a puzzle has spent by then, with the interval of a
bootstrap over puzzles in which target and crossing are found anew; N/R where no budget reaches it. eps is above what
rounding alone moves a bfloat16 state. Beside the adaptive rules stand the constant at the first rule's mean scale, and
Anderson acceleration.

    python benchmarks/fixed_point.py --model trm:sudoku                         # a short run
    python benchmarks/fixed_point.py --full --device cuda --batch-size 512      # 1,024 puzzles, the record
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from common.record import against, average, brief, share, write_record
from common.setting import Setting, open_setting, parser, timed
from numpy.typing import NDArray
from scipy import stats

import looptaps as lt
from looptaps.evaluation.measure import Policy, measure
from looptaps.evaluation.provenance import now

RULES = ("taps-gd", "taps-sign", "taps-momentum", "taps-rmsprop", "taps-adam", "taps-bb")
TARGETS = (50, 100, 500, 1000)


class Run(NamedTuple):
    """One method: `correct` (N, T) at a budget of T loops, `spent` (N, T) updates by then, and its mean scale."""

    correct: NDArray[np.bool_]
    spent: NDArray[np.int64]
    converged: NDArray[np.bool_]
    eta: float
    seconds: float


def run(setting: Setting, strategy: Any, control: Any, loops: int, per_loop: int) -> Run:
    parts, seconds = [], 0.0
    for part in setting.batches:
        found, took = timed(setting.device, lambda part=part: measure(
            setting.model, part, Policy(control, strategy), loops))
        parts.append(found)
        seconds += took
    stopped = np.concatenate([part.loops for part in parts])
    spent = np.minimum(stopped[:, None], np.arange(1, loops + 1)) * per_loop
    converged = np.array([status == "CONVERGED" for part in parts for status in part.status])
    eta = np.concatenate([part.mean_eta for part in parts])
    return Run(np.concatenate([part.correct for part in parts]), spent, converged, float(eta.mean()), seconds)


def needed(target: NDArray[np.bool_], found: Run, resamples: int) -> dict[str, Any]:
    """The smallest budget whose accuracy is at least that of `target` (N,), and the mean updates spent by then."""

    def crossing(rows: Any, axis: int = -1) -> Any:
        rows = np.atleast_2d(np.moveaxis(rows, axis, -1))
        reached = found.correct[rows].mean(1) >= target[rows].mean(1)[:, None] - 1e-12
        first = np.where(reached.any(1), reached.argmax(1), -1)
        spent = found.spent[rows].mean(1)[np.arange(len(rows)), first]
        return np.where(first >= 0, spent, np.inf)

    rows = np.arange(len(target))
    updates = float(crossing(rows)[0])
    if not np.isfinite(updates):
        return {"reached": False}
    with np.errstate(invalid="ignore"):  # scipy also takes a standard deviation, which inf has none of
        drawn = stats.bootstrap((rows,), crossing, n_resamples=resamples, method="percentile", batch=50,
                                vectorized=True, rng=np.random.default_rng(0)).bootstrap_distribution
    low, high = np.quantile(np.asarray(drawn), [0.025, 0.975], method="inverted_cdf")
    first = int((found.correct.mean(0) >= target.mean() - 1e-12).argmax())
    return {"reached": True, "mean": round(updates, 1), "budget": int(found.spent[:, first].max()),
            "interval_95": [round(float(low), 1), round(float(high), 1) if np.isfinite(high) else None],
            "resamples_not_reached": float(np.isinf(np.asarray(drawn)).mean())}


def main() -> None:
    options = parser("fixed_point", __doc__, limit=16, full=1024, batch_size=256)
    options.add_argument("--updates", type=int, help="layer applications on z_L at most (default 120; --full 1008)")
    # On the bundled TRM in bfloat16 a solved puzzle's state keeps moving by rounding: 0.009 to 0.0125 at the unit step,
    # 0.006 at eta 0.7. An eps inside that band would let the damped rules stop and not the unit step.
    options.add_argument("--eps", type=float, default=0.02, help="the relative move at which a state stands still")
    options.add_argument("--resamples", type=int, default=1000)
    setting = open_setting(options.parse_args())
    given, started = setting.options, now()
    probe = lt.FixedDepth(1).run(setting.model, setting.batches[0].batch, lt.Standard())
    per_loop = int(probe.updates[0])
    loops = max((given.updates or (1008 if given.full else 120)) // per_loop, 1)
    rule = lt.FixedPoint(eps=given.eps, max_updates=loops * per_loop)
    anderson = lt.Anderson(max_loops=loops, eps=given.eps)

    methods: dict[str, tuple[Any, Any]] = {"unit": (rule, lt.Standard())}
    methods.update({text: (rule, lt.spec(text)) for text in (RULES if given.full else RULES[:1])})
    methods.update({"anderson": (anderson, lt.Standard()), "anderson, taps-gd": (anderson, lt.TapsGD())})
    runs: dict[str, Run] = {}
    for name, (strategy, control) in methods.items():
        runs[name] = run(setting, strategy, control, loops, per_loop)
        print(f"# {name}: {runs[name].seconds:.1f} s", flush=True)
    mean = round(runs[RULES[0]].eta, 4)
    runs[f"constant {mean}"] = run(setting, rule, lt.Constant(mean), loops, per_loop)

    unit = runs["unit"]
    at = {budget: min(budget // per_loop, loops) for budget in TARGETS if budget >= per_loop}
    targets = {budget: {"loops": loop, "updates": loop * per_loop, "accuracy": share(unit.correct[:, loop - 1]),
                        "spent": average(unit.spent[:, loop - 1])}
               for budget, loop in at.items()}
    table = {}
    for name, found in runs.items():
        table[name] = {
            "terminal": share(found.correct[:, -1]),
            "terminal_against_unit": against(unit.correct[:, -1], found.correct[:, -1]),
            "terminal_updates": average(found.spent[:, -1]),
            "converged_percent": round(100 * float(found.converged.mean()), 2),
            "mean_eta": round(found.eta, 4),
            "updates_to_reach": {str(budget): needed(unit.correct[:, loop - 1], found, given.resamples)
                                 for budget, loop in at.items()},
            "accuracy_percent_by_loop": [round(100 * float(value), 2) for value in found.correct.mean(0)],
            "spent_updates_by_loop": [round(float(value), 1) for value in found.spent.mean(0)],
            "seconds": round(found.seconds, 1),
        }
    print("method | " + " | ".join(f"{budget} ({brief(found['accuracy'])} %)" for budget, found in targets.items()))
    for name, row in table.items():
        cells = [f"{cell['mean']} {cell['interval_95']}" if cell["reached"] else "N/R"
                 for cell in row["updates_to_reach"].values()]
        print(f"{name} | " + " | ".join(cells) + f" | terminal {brief(row['terminal'])} %", flush=True)
    write_record(setting, __doc__.partition("\n\n")[2].partition("\n\n")[0], started, updates_per_loop=per_loop,
                 loops=loops, eps=given.eps, targets=targets, methods=table)


if __name__ == "__main__":
    main()
