"""SmolLM2-135M: what a rule costs in decoding, over the same loop at the unit step.

Layers 12-15 run K = 3 times; the unit step and the six rules (scope `token`) decode the same number of tokens from the
same prompt, in turns within one process, in an order that moves on by one from round to round. A rule's overhead in a
round is its time over the unit step's of that round, minus 1; printed is the median over rounds with its 95 % bootstrap
interval. Times are the process's own CPU seconds on one thread, so that other processes on the machine do not count;
wall-clock seconds stand beside them. Twice the unit step under another name shows what the method cannot resolve.

    python benchmarks/lm_decode_overhead.py             # a few rounds
    python benchmarks/lm_decode_overhead.py --full      # the record
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch
from common.language import RULES, open_smollm2, write_record
from scipy import stats

import looptaps as lt
from looptaps.evaluation.provenance import now

WINDOW, LOOPS, NEW, LIMIT = (12, 15), 3, 16, 5.0
PROMPT = "The ocean is a vast and mysterious place, and those who study it say that"


@torch.no_grad()
def decode(model: Any, ids: torch.Tensor, rule: Any) -> tuple[float, float]:
    """CPU and wall-clock seconds of decoding NEW tokens greedily; the prompt's own pass and one token are left out."""
    with lt.hf.attach(model, rule, layers=WINDOW, loops=LOOPS, scope="token"):
        out = model(ids, use_cache=True)
        for n in range(NEW + 1):
            if n == 1:
                cpu, wall = time.process_time(), time.perf_counter()
            out = model(out.logits[:, -1:].argmax(-1), past_key_values=out.past_key_values, use_cache=True)
        return time.process_time() - cpu, time.perf_counter() - wall


def overhead(rule: np.ndarray, unit: np.ndarray) -> dict[str, Any]:
    percent = 100 * (rule / unit - 1)
    found = stats.bootstrap((percent,), np.median, n_resamples=10_000, method="percentile",
                            rng=np.random.default_rng(0)).confidence_interval
    return {"percent": round(float(np.median(percent)), 2),
            "interval_95": [round(float(found.low), 2), round(float(found.high), 2)]}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, help="default 3; 24 with --full")
    options.add_argument("--full", action="store_true", help="write the record")
    given = options.parse_args()
    torch.set_num_threads(1)
    started = now()
    model, tokenizer = open_smollm2()
    ids = tokenizer(PROMPT, return_tensors="pt").input_ids
    policies = {"unit": lt.Standard(), "unit again": lt.Standard(),
                **{name: lt.spec(f"{name}@blocks") for name in RULES}}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in policies}
    for rule in policies.values():
        decode(model, ids, rule)
    names = list(policies)
    for number in range(given.rounds or (24 if given.full else 3)):
        for name in names[number % len(names):] + names[:number % len(names)]:
            times[name].append(decode(model, ids, policies[name]))
    arrays = {name: np.array(values) for name, values in times.items()}
    rows = {}
    for name, values in arrays.items():
        rows[name] = {"cpu_ms_per_token": round(1000 * float(np.median(values[:, 0])) / NEW, 2)}
        if name != "unit":
            rows[name] |= {"overhead_cpu": overhead(values[:, 0], arrays["unit"][:, 0]),
                           "overhead_wall": overhead(values[:, 1], arrays["unit"][:, 1])}
        print(name, rows[name], flush=True)
    if given.full:
        write_record("lm_decode_overhead", __doc__, started, model, layers=list(WINDOW), loops=LOOPS, scope="token",
                     new_tokens=NEW, rounds=len(times["unit"]), limit_percent=LIMIT, policies=rows)


if __name__ == "__main__":
    main()
