"""Where, how often, over what and how long: every axis of `Control`, one at a time, against its default.

For each rule: inner and outer control (at cycles and at loops), q in {1, 2, 4}, memory that spans the rollout, a loop
or a cycle, and one eta per sample or per token. Every policy runs every puzzle to the end in turns, batch by batch.
Reported: exact accuracy after the last loop with its interval; the paired difference to the rule's default (inner,
q = 1, rollout, sample), to the unit step, and, for each rule's default, to the constant at its mean eta; the first
loop that reaches the unit step's terminal accuracy (the unit step's own is beside it); the mean eta; and seconds
relative to the unit step's (median over batches and repeats of ratios within a turn).

    python benchmarks/control_axes.py                                           # a short run
    python benchmarks/control_axes.py --full --device cuda --batch-size 512     # 4,096 puzzles, the record
"""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
from common.record import against, brief, share, write_record
from common.setting import Setting, open_setting, parser

import looptaps as lt
from looptaps.evaluation.measure import Policy, measure, warm_up
from looptaps.evaluation.provenance import now
from looptaps.evaluation.statistics import loops_to_match

RULES = ("taps-gd", "taps-adam")
DEFAULT = "inner, q = 1, memory of the rollout, per sample"
AXES: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    "q = 2": {"every": 2},
    "q = 4": {"every": 4},
    "outer, at cycles": {"site": "outer"},
    "outer, at cycles, q = 2": {"site": "outer", "every": 2},
    "outer, at loops": {"site": "outer", "outer_at": "loop"},
    "memory of a loop": {"memory": "loop"},
    "memory of a cycle": {"memory": "cycle"},
    "per token": {"scope": "token"},
}


class Column:
    """What one policy did, puzzle by puzzle."""

    def __init__(self, control: Any, rule: str | None = None, axis: str | None = None) -> None:
        self.control, self.rule, self.axis = control, rule, axis
        self.correct: list[Any] = []
        self.etas: list[Any] = []
        self.ratios: list[float] = []

    @property
    def by_loop(self) -> Any:
        """(N, H) right after each loop."""
        return np.concatenate(self.correct)

    @property
    def eta(self) -> float:
        """The mean scale."""
        return float(np.concatenate(self.etas).mean())


def run(setting: Setting, columns: dict[str, Column], unit: str, loops: int, repeats: int) -> None:
    """All columns batch by batch, in turns; the first repeat's answers are kept (they do not change), all its times."""
    depth = lt.FixedDepth(loops)
    for column in columns.values():
        warm_up(setting.model, setting.batches[0].batch, Policy(column.control, depth))
    for repeat in range(repeats):
        for number, part in enumerate(setting.batches):
            seconds: dict[str, float] = {}
            for name, column in columns.items():
                found = measure(setting.model, part, Policy(column.control, depth), loops)
                seconds[name] = found.seconds
                if repeat == 0:
                    column.correct.append(found.correct)
                    column.etas.append(found.mean_eta)
            for name, column in columns.items():
                column.ratios.append(seconds[name] / seconds[unit])
            print(f"# repeat {repeat + 1}, batch {number + 1} of {len(setting.batches)}", flush=True)


def main() -> None:
    options = parser("control_axes", __doc__, limit=16, full=4096, batch_size=256)
    options.add_argument("--loops", type=int, help="outer loops (default 4; --full 32)")
    options.add_argument("--rules", nargs="+", default=list(RULES), help=f"default: {' '.join(RULES)}")
    options.add_argument("--repeats", type=int, default=1)
    setting = open_setting(options.parse_args())
    given, started = setting.options, now()
    loops = given.loops or (32 if given.full else 4)

    columns = {"unit": Column(lt.Standard())}
    for rule in given.rules:
        for axis, changes in AXES.items():
            columns[f"{rule}: {axis}"] = Column(lt.Control(lt.spec(rule), **changes), rule, axis)
    run(setting, columns, "unit", loops, given.repeats)
    constants = {rule: Column(lt.Constant(round(columns[f"{rule}: {DEFAULT}"].eta, 4))) for rule in given.rules}
    # The constants can only be known now; the unit step runs beside them once more, for their seconds.
    run(setting, {"unit": Column(lt.Standard()), **constants}, "unit", loops, given.repeats)

    unit = columns["unit"].by_loop
    table: dict[str, Any] = {}
    rows = {**columns, **{f"constant at {rule}'s mean": column for rule, column in constants.items()}}
    for name, column in rows.items():
        curve = column.by_loop
        row = {
            "accuracy": share(curve[:, -1]),
            "against_unit": against(unit[:, -1], curve[:, -1]),
            "loops_to_unit": loops_to_match(list(curve.mean(0)), float(unit[:, -1].mean())),
            "mean_eta": round(column.eta, 4),
            "seconds_of_unit": {"median": round(statistics.median(column.ratios), 4),
                                "lowest": round(min(column.ratios), 4), "highest": round(max(column.ratios), 4)},
            "accuracy_percent_by_loop": [round(100 * float(value), 2) for value in curve.mean(0)],
        }
        if column.rule is not None and column.axis != DEFAULT:
            row["against_default"] = against(columns[f"{column.rule}: {DEFAULT}"].by_loop[:, -1], curve[:, -1])
        elif column.rule is not None:
            row["against_constant_at_its_mean"] = against(constants[column.rule].by_loop[:, -1], curve[:, -1])
        table[name] = row
    print("policy | exact % | against unit | against default | loops to unit | mean eta | seconds / unit's")
    for name, row in table.items():
        beside = brief(row["against_default"]) if "against_default" in row else "-"
        print(f"{name} | {brief(row['accuracy'])} | {brief(row['against_unit'])} | {beside} | {row['loops_to_unit']} | "
              f"{row['mean_eta']} | {row['seconds_of_unit']['median']}")
    write_record(setting, __doc__.partition("\n\n")[2].partition("\n\n")[0], started, loops=loops,
                 repeats=given.repeats, policies=table)


if __name__ == "__main__":
    main()
