"""SmolLM2-135M on ARC-Challenge and HellaSwag through `taps-eval`: plain, looped, looped under a rule; paired.

`taps-eval run --model taps-hf` scores every policy on the same questions, 0 shots, normalised log-likelihood, in
bfloat16 with likelihoods in float32. Layers 12-15, K = 3, one eta per sequence. Differences are of right answers by
question, with bootstrap intervals and McNemar's exact p. `--constant` adds the constant at the rule's mean eta.

    python benchmarks/lm_multiple_choice.py --data FOLDER --rows 20             # FOLDER: the two .jsonl files
    python benchmarks/lm_multiple_choice.py --data FOLDER --rows 200 --full     # the record
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.language import FILE, open_smollm2, write_record

from looptaps.evaluation.provenance import now
from looptaps.evaluation.statistics import paired, proportion
from looptaps.hf.smollm import smollm2_folder
from looptaps.integrations.lm_eval_tasks import write_tasks

TASKS = {"taps_arc_challenge": "arc_challenge_validation.jsonl", "taps_hellaswag": "hellaswag_validation.jsonl"}
LOOP = "layers=12-15,loops=3,scope=sequence"
METRICS = ("acc_norm", "acc")


def evaluate(name: str, policy: str, work: Path, batch: int) -> None:
    """One policy through the command line; what is there already is not run again."""
    out = work / name
    if list(out.rglob("results*.json")):
        return
    options = f"pretrained={smollm2_folder()},gguf_file={FILE},dtype=bfloat16,softmax_dtype=float32,{policy}"
    command = [sys.executable, "-m", "looptaps.integrations.lm_eval", "run", "--model", "taps-hf", "--model_args",
               options, "--tasks", ",".join(TASKS), "--include_path", str(work / "tasks"), "--device", "cpu",
               "--batch_size", str(batch), "--output_path", str(out), "--log_samples"]
    print(f"# {name}: {policy}", flush=True)
    subprocess.run(command, check=True)


def read(name: str, work: Path) -> tuple[dict[str, dict[str, np.ndarray]], Any]:
    """Right or wrong by task, metric and question, and what results.json says of the loop."""
    answers = {}
    for task in TASKS:
        file = next((work / name).rglob(f"samples_{task}_*.jsonl"))
        rows = sorted((json.loads(line) for line in file.read_text().splitlines()), key=lambda row: row["doc_id"])
        answers[task] = {metric: np.array([row[metric] == 1.0 for row in rows]) for metric in METRICS}
    results = json.loads(next((work / name).rglob("results*.json")).read_text())
    return answers, results["config"]["taps"]


def difference(base: np.ndarray, other: np.ndarray) -> dict[str, Any]:
    found = paired(base, other)
    return {"points": round(100 * found.difference, 2), "gained": found.gained, "lost": found.lost,
            "interval_95": [round(100 * found.low, 2), round(100 * found.high, 2)], "p": float(f"{found.p:.3g}")}


def table(names: list[str], work: Path) -> dict[str, Any]:
    read_in = {name: read(name, work) for name in names}
    rows: dict[str, Any] = {}
    for name, (answers, loop) in read_in.items():
        row: dict[str, Any] = {"loop": loop}
        for task, by_metric in answers.items():
            for metric, right in by_metric.items():
                share = proportion(right)
                cell = {"questions": len(right), "percent": round(100 * share.value, 2),
                        "interval_95": [round(100 * share.low, 2), round(100 * share.high, 2)]}
                for other in names[:names.index(name)]:
                    cell[f"minus {other}"] = difference(read_in[other][0][task][metric], right)
                row[f"{task} {metric}"] = cell
        rows[name] = row
    return rows


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--data", type=Path, required=True, help=f"folder with {' and '.join(TASKS.values())}")
    options.add_argument("--rows", type=int, default=20, help="of HellaSwag; of ARC-Challenge too without --full")
    options.add_argument("--rule", default="taps-bb@blocks")
    options.add_argument("--constant", action="store_true", help="the constant at the rule's mean eta too")
    options.add_argument("--batch", type=int, default=8)
    options.add_argument("--full", action="store_true", help="all of ARC-Challenge, and the record")
    options.add_argument("--work", type=Path, default=Path("runs/lm-multiple-choice"))
    given = options.parse_args()
    started = now()
    slices = given.work / "data"
    slices.mkdir(parents=True, exist_ok=True)
    for task, file in TASKS.items():
        lines = (given.data / file).read_text(encoding="utf-8").splitlines(keepends=True)
        whole = given.full and task == "taps_arc_challenge"
        (slices / file).write_text("".join(lines if whole else lines[:given.rows]), encoding="utf-8")
    write_tasks(slices, given.work / "tasks")
    rule = given.rule
    policies = {"base": "controller=standard", "loop": f"controller=standard,{LOOP}", rule: f"controller={rule},{LOOP}"}
    for name, policy in policies.items():
        evaluate(name, policy, given.work, given.batch)
    names = list(policies)
    if given.constant:
        eta = round(read(rule, given.work)[1]["eta_bar"], 3)
        names.append(f"constant {eta}")
        evaluate(names[-1], f"controller=constant:eta={eta},{LOOP}", given.work, given.batch)
    rows = table(names, given.work)
    for name, row in rows.items():
        print(name, {key: cell["percent"] for key, cell in row.items() if key != "loop"})
    if given.full:
        torch.set_num_threads(1)
        model, _ = open_smollm2()
        write_record("lm_multiple_choice", __doc__, started, model, dtype="bfloat16", rows_hellaswag=given.rows,
                     batch_size=given.batch, policies=rows)


if __name__ == "__main__":
    main()
