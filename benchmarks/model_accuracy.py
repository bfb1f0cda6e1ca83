"""Exact accuracy by loop of one model under one policy, with its interval, as a record.

    python benchmarks/model_accuracy.py trm:sudoku sudoku:generated:n=4096:seed=1 --loops 32 --out records/...json

Runs batch by batch and rewrites the record after each, so a cut run leaves what it had; the record says how many
puzzles it covers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import time
from pathlib import Path

import numpy as np
import torch

import looptaps as lt
from looptaps.evaluation.curves import accuracy_curve, join_curves
from looptaps.evaluation.statistics import proportion
from looptaps.tasks import open_task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="trm:sudoku", help="a bundled model, or a kind and a path")
    parser.add_argument("task", nargs="?", default="sudoku:generated:n=64:seed=1", help="as open_task reads it")
    parser.add_argument("--controller", default="standard")
    parser.add_argument("--loops", type=int, default=32)
    parser.add_argument("--limit", type=int, help="the first so many puzzles")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true", help="compile the core (Inductor); bfloat16 rounding differs")
    parser.add_argument("--out", type=Path, default=Path("runs/model_accuracy.json"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model, task = lt.load_model(options.model), open_task(options.task)
    if options.compile:
        model.compile_core()
    n = min(options.limit or len(task), len(task))
    parts, started = [], time.process_time()
    for start in range(0, n, options.batch_size):
        rows = np.arange(start, min(start + options.batch_size, n))
        parts.append(accuracy_curve(model, task.select(rows), lt.spec(options.controller), options.loops))
        curve = join_curves(parts)
        final = proportion(curve.correct[:, -1])
        record = {
            "schema": 1,
            "model": options.model,
            "task": options.task,
            "task_fingerprint": task.fingerprint(),
            "controller": options.controller,
            "loops": options.loops,
            "compiled": options.compile,
            "puzzles": len(curve.ids),
            "exact_percent": round(100 * final.value, 2),
            "interval_95": [round(100 * final.low, 2), round(100 * final.high, 2)],
            "exact_percent_by_loop": [round(100 * share, 2) for share in curve.accuracy],
            "mean_eta": round(curve.mean_eta, 4),
            "cpu_seconds": round(time.process_time() - started, 1),
            "threads": options.threads,
            "batch_size": options.batch_size,
            "looptaps": lt.__version__,
            "commit": _commit(),
            "torch": torch.__version__,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        temporary = options.out.with_suffix(".tmp")
        temporary.write_text(json.dumps(record, indent=1) + "\n")
        temporary.replace(options.out)
    print(f"{options.model}, {record['task']}: {record['exact_percent']} % {record['interval_95']} of "
          f"{record['puzzles']} puzzles after {options.loops} loops, {record['cpu_seconds']} CPU-seconds")


def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
