"""A tiny Ouro trained here: right answers by number of recurrent steps, six rules beside unit step and constants.

Held-out chained assignments of 12 statements (`b=3+4;k=b-9;?k` is answered by 8), one question each, from a seed that
neither training nor its validation uses. A policy is scored after every step of one run, since a step's eta depends on
the steps before it alone. Every policy sees the same questions: differences are paired, with bootstrap intervals,
McNemar's exact p, and Holm's correction over the six rules. Each rule stands beside the unit step and beside the
constant at its own mean eta over the first 8 steps, the most that training ran.

    python benchmarks/lm_ouro_steps.py --model runs/ouro-tiny/model            # some questions
    python benchmarks/lm_ouro_steps.py --model runs/ouro-tiny/model --full     # the record
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.language import RULES, mean_interval, write_record

import looptaps as lt
from looptaps.evaluation.provenance import now
from looptaps.evaluation.statistics import holm, paired, proportion
from looptaps.tasks.chains import Questions, questions
from looptaps.train.language import exact_by_steps

STATEMENTS, STEPS, REPORTED, MATCHED_AT, SEED = 12, 12, (1, 2, 3, 4, 6, 8, 10, 12), 8, 20261119
CONSTANTS = (0.8, 0.9, 1.1, 1.2)


def run(model: Any, rule: Any, scope: str, asked: Questions, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Right or wrong, (questions, steps), and mean eta by step."""
    model.set_control(lt.Control(rule, scope=scope))
    right = exact_by_steps(model, asked, STEPS, batch).numpy()
    etas = model.trace.stage_means.numpy()
    model.set_control(None)
    return right, etas


def by_step(right: np.ndarray) -> dict[str, dict[str, Any]]:
    rows = {}
    for step in REPORTED:
        found = proportion(right[:, step - 1])
        rows[str(step)] = {"percent": round(100 * found.value, 2),
                           "interval_95": [round(100 * found.low, 2), round(100 * found.high, 2)]}
    return rows


def against(base: np.ndarray, other: np.ndarray) -> dict[str, dict[str, Any]]:
    """`other` minus `base` in points, by number of steps."""
    rows = {}
    for step in REPORTED:
        found = paired(base[:, step - 1], other[:, step - 1])
        rows[str(step)] = {"points": round(100 * found.difference, 2),
                           "interval_95": [round(100 * found.low, 2), round(100 * found.high, 2)],
                           "gained": found.gained, "lost": found.lost, "p": float(f"{found.p:.3g}")}
    return rows


def corrected(rows: dict[str, dict[str, Any]]) -> None:
    """Holm's p over the rules, for every number of steps and either baseline."""
    for baseline in ("minus_unit", "minus_matched_constant"):
        for step in map(str, REPORTED):
            values = holm([rows[name][baseline][step]["p"] for name in RULES])
            for name, value in zip(RULES, values, strict=True):
                rows[name][baseline][step]["p_holm"] = float(f"{value:.3g}")


def table(model: Any, scope: str, asked: Questions, batch: int) -> dict[str, Any]:
    """All policies in one scope."""
    unit, _ = run(model, lt.Standard(), scope, asked, batch)
    rows: dict[str, Any] = {"unit": {"right": by_step(unit)}}
    constants: dict[float, np.ndarray] = {}

    def constant(eta: float) -> np.ndarray:
        if eta not in constants:
            constants[eta], _ = run(model, lt.Constant(eta), scope, asked, batch)
            rows[f"constant {eta}"] = {"right": by_step(constants[eta]), "minus_unit": against(unit, constants[eta])}
        return constants[eta]

    for eta in CONSTANTS:
        constant(eta)
    for name in RULES:
        right, etas = run(model, lt.spec(f"{name}@blocks"), scope, asked, batch)
        eta = round(float(etas[:MATCHED_AT].mean()), 3)
        rows[name] = {"right": by_step(right), "eta_steps": np.round(etas, 4).tolist(), "eta_bar_8": eta,
                      "minus_unit": against(unit, right), "minus_matched_constant": against(constant(eta), right)}
    corrected(rows)
    depth = asked.depth.numpy()
    rows["unit"]["right_by_depth"] = {
        str(d): {"questions": int((depth == d).sum()),
                 "percent": [round(100 * float(unit[depth == d, step - 1].mean()), 1) for step in REPORTED]}
        for d in sorted(set(depth.tolist()))}
    return rows


def shown(rows: dict[str, Any]) -> None:
    print(f"{'right %':16}" + "".join(f"{step:>9}" for step in REPORTED))
    for name, row in rows.items():
        print(f"{name:16}" + "".join(f"{row['right'][str(step)]['percent']:9.2f}" for step in REPORTED))
    print("minus unit, points [95 %]")
    for name in RULES:
        cells = [rows[name]["minus_unit"][str(step)] for step in (4, 8, 12)]
        print(f"{name:16}" + "  ".join(f"{c['points']:+.2f} {c['interval_95']} p {c['p_holm']}" for c in cells),
              flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--model", type=Path, required=True, help="the folder that `looptaps lm train` exported")
    options.add_argument("--full", action="store_true", help="all questions, both scopes, and the record")
    options.add_argument("--batch", type=int, default=128)
    options.add_argument("--threads", type=int, default=1)
    given = options.parse_args()
    torch.set_num_threads(given.threads)
    started = now()
    lt.hf.register()
    model = lt.hf.OuroForCausalLM.from_pretrained(given.model, dtype=torch.float32).eval()
    count = 4096 if given.full else 512
    asked = questions(count, STATEMENTS, SEED, reach=2, restart=0.05)
    figures = {}
    for scope in ("sequence", "token") if given.full else ("sequence",):
        print(f"# eta per {scope}, {count} questions")
        figures[scope] = table(model, scope, asked, given.batch)
        shown(figures[scope])
    if given.full:
        spread = mean_interval(asked.depth.double().numpy())[0]
        write_record("lm_ouro_steps", __doc__, started, model, model_name="ouro-tiny", questions=count,
                     statements=STATEMENTS, seed=SEED, mean_depth=round(spread, 2),
                     released_steps=model.config.total_ut_steps, tables=figures)


if __name__ == "__main__":
    main()
