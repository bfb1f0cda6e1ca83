"""A tiny Ouro trained here: right answers by number of recurrent steps, six rules beside unit step and constants.

Held-out chained assignments (`b=3+4;k=b-9;?k` is answered by 8), one question each, from a seed that neither training
nor its validation uses: programs of 12 statements, the longest in training, and of 20, longer than any. A policy is
scored after every step of one run, since a step's eta depends on the steps before it alone. Every policy sees the same
questions: differences are paired, with bootstrap intervals, McNemar's exact p, and Holm's correction over the six
rules. Each rule stands beside the unit step and beside the constant at its own mean eta over the first 4 steps, the
model's own number.

    python benchmarks/lm_ouro_steps.py             # some questions, one eta per sequence
    python benchmarks/lm_ouro_steps.py --full      # the record
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.language import RULES, write_record

import looptaps as lt
from looptaps.evaluation.provenance import now
from looptaps.evaluation.statistics import holm, paired, proportion
from looptaps.hf.bundled import tiny_ouro_folder
from looptaps.hf.smollm import load_language_model
from looptaps.tasks.chains import Questions, questions
from looptaps.train.language import exact_by_steps

STEPS, REPORTED, MATCHED_AT, SEED = 6, (1, 2, 3, 4, 5, 6), 4, 20261119
CONSTANTS = (0.8, 1.2)
# Statements, scope of eta and questions of each table; tables of the same programs share unit step and constants.
SHORT = ((12, "sequence", 256),)
FULL = ((12, "sequence", 1024), (20, "sequence", 512), (12, "token", 1024))


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


class Fixed:
    """Unit step and constants on one set of questions, each run once."""

    def __init__(self, model: Any, asked: Questions, batch: int) -> None:
        self.run = lambda rule: run(model, rule, "sequence", asked, batch)[0]
        self.unit = self.run(lt.Standard())
        self.constants: dict[float, np.ndarray] = {}

    def constant(self, eta: float) -> np.ndarray:
        if eta not in self.constants:
            self.constants[eta] = self.run(lt.Constant(eta))
        return self.constants[eta]


def table(model: Any, scope: str, asked: Questions, batch: int, fixed: Fixed) -> dict[str, Any]:
    """All policies in one scope."""
    rows: dict[str, Any] = {"unit": {"right": by_step(fixed.unit)}}
    for name in RULES:
        right, etas = run(model, lt.spec(f"{name}@blocks"), scope, asked, batch)
        eta = round(float(etas[:MATCHED_AT].mean()), 3)
        rows[name] = {"right": by_step(right), "eta_steps": np.round(etas, 4).tolist(), f"eta_bar_{MATCHED_AT}": eta,
                      "minus_unit": against(fixed.unit, right),
                      "minus_matched_constant": against(fixed.constant(eta), right)}
    corrected(rows)
    for eta in sorted({*CONSTANTS, *fixed.constants}):
        right = fixed.constant(eta)
        rows[f"constant {eta}"] = {"right": by_step(right), "minus_unit": against(fixed.unit, right)}
    depth = asked.depth.numpy()
    rows["unit"]["right_by_depth"] = {
        str(d): {"questions": int((depth == d).sum()),
                 "percent": [round(100 * float(fixed.unit[depth == d, step - 1].mean()), 1) for step in REPORTED]}
        for d in sorted(set(depth.tolist()))}
    return rows


def shown(rows: dict[str, Any]) -> None:
    print(f"{'right %':16}" + "".join(f"{step:>9}" for step in REPORTED))
    for name, row in rows.items():
        print(f"{name:16}" + "".join(f"{row['right'][str(step)]['percent']:9.2f}" for step in REPORTED))
    print("minus unit, points [95 %]")
    for name in RULES:
        cells = [rows[name]["minus_unit"][str(step)] for step in (2, 3, 4, 6)]
        print(f"{name:16}" + "  ".join(f"{c['points']:+.2f} {c['interval_95']} p {c['p_holm']}" for c in cells),
              flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--model", type=Path, help="a folder that `looptaps lm train` exported (default: the bundled)")
    options.add_argument("--full", action="store_true", help="all tables, and the record")
    options.add_argument("--batch", type=int, default=16)
    options.add_argument("--threads", type=int, default=1)
    given = options.parse_args()
    torch.set_num_threads(given.threads)
    started = now()
    model, _ = load_language_model(given.model or tiny_ouro_folder())
    figures, fixed = {}, {}
    for statements, scope, count in FULL if given.full else SHORT:
        asked = questions(count, statements, SEED, reach=2, restart=0.05)
        if statements not in fixed:
            fixed[statements] = Fixed(model, asked, given.batch)
        name = f"{statements} statements, eta per {scope}"
        print(f"# {name}, {count} questions", flush=True)
        rows = table(model, scope, asked, given.batch, fixed[statements])
        figures[name] = {"questions": count, "mean_depth": round(float(asked.depth.double().mean()), 2), **rows}
        shown(rows)
        if given.full:
            write_record("lm_ouro_steps", __doc__, started, model, model_name="ouro-tiny", seed=SEED,
                         own_steps=model.config.total_ut_steps, tables=figures)


if __name__ == "__main__":
    main()
