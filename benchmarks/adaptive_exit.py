"""Adaptive exit against fixed depth: accuracy, updates saved, and what of that arrives on the clock.

All strategies see the same generated minimal puzzles in one run, batch by batch, in turns (fixed, exit, refilled,
fixed, ...), each with the unit step and with TAPS. Printed for each: exact accuracy with its 95 % interval (Wilson),
mean effective updates, seconds, and

    share        updates left, of fixed depth's
    of possible  saved updates, of those that could be saved if unsolved puzzles ran to the end and solved ones stopped
                 at the first allowed loop (k_min) after their answer was final
    speedup      seconds of fixed depth / seconds (median over repeats of the whole set)
    of share     speedup * share: 1 means that every update saved arrives on the clock (contract: 0.9, refilled 0.95)

    python benchmarks/adaptive_exit.py                         # the bundled Sudoku model, 4,096 puzzles
    python benchmarks/adaptive_exit.py --model trm:runs/x/model.safetensors --puzzles 512 --batch 64
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from scipy.stats import binomtest
from torch import Tensor

import looptaps as lt
from looptaps.tasks import Task, open_task, score

FIXED, EXIT, REFILL = "fixed depth", "adaptive exit", "adaptive exit, refilled"


def batches(task: Task, size: int) -> list[tuple[Tensor, dict[str, Tensor]]]:
    return [(part.ids, part.batch) for part in task.batches(size)]


def run_all(strategy: lt.strategies.StoppingRule, model: object, task: Task, control: object, size: int) -> lt.Result:
    return lt.Result.join([strategy.run(model, batch, control, ids=ids) for ids, batch in batches(task, size)])


def serve_all(strategy: lt.strategies.StoppingRule, model: object, task: Task, control: object,
              size: int) -> lt.Result:
    done = list(lt.serve_loop(strategy, model, task.batches(size), control, batch_size=size))
    order = torch.cat([part.ids for part in done]).argsort()
    return lt.Result.join([part.result for part in done]).select(order)


def fewest_loops(model: object, task: Task, control: object, size: int, loops: int, k_min: int) -> Tensor:
    """Per puzzle: the first allowed loop from which its answer is final and right, or all loops."""
    needed = []
    for ids, batch in batches(task, size):
        result = lt.FixedDepth(loops).run(model, batch, control, ids=ids, trace=True)
        assert result.trace is not None
        final = (result.trace.answers == result.trace.answers[-1]).all(-1)
        changed = torch.where(final, 0, torch.arange(1, loops + 1).unsqueeze(1)).amax(0)
        solved = score(result.output, batch).exact
        needed.append(torch.where(solved, (changed + 1).clamp(min=k_min), loops))
    return torch.cat(needed)


def main() -> None:
    parser = argparse.ArgumentParser(description="Adaptive exit against fixed depth.")
    parser.add_argument("--model", default="trm:sudoku")
    parser.add_argument("--task", default=None, help="default: generated minimal 9x9 Sudoku, seed 0")
    parser.add_argument("--puzzles", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--loops", type=int, default=32)
    parser.add_argument("--controllers", nargs="+", default=["standard", "taps-adam@trm"])
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()

    model = lt.load_model(args.model).eval()
    task = open_task(args.task or f"sudoku:generated:n={args.puzzles}:seed=0")
    labels = {"inputs": torch.from_numpy(task.inputs.astype("int64")),
              "labels": torch.from_numpy(task.labels.astype("int64"))}
    fixed, adaptive = lt.FixedDepth(args.loops), lt.AdaptiveExit(max_loops=args.loops)
    ways: dict[str, Callable[[object], lt.Result]] = {
        FIXED: lambda control: run_all(fixed, model, task, control, args.batch),
        EXIT: lambda control: run_all(adaptive, model, task, control, args.batch),
        REFILL: lambda control: serve_all(adaptive, model, task, control, args.batch),
    }
    controls = {text: lt.spec(text) for text in args.controllers}
    seconds: dict[tuple[str, str], list[float]] = {}
    results: dict[tuple[str, str], lt.Result] = {}
    for repeat in range(args.repeats):
        for text, control in controls.items():
            for way, go in ways.items():
                start = time.perf_counter()
                results[text, way] = go(control)
                seconds.setdefault((text, way), []).append(time.perf_counter() - start)
        print(f"# repeat {repeat + 1} of {args.repeats} done", flush=True)

    print(f"# {args.model}, {task.origin}, {len(task)} puzzles, batch {args.batch}, {args.loops} loops, "
          f"{torch.get_num_threads()} threads, torch {torch.__version__}")
    header = ("controller", "strategy", "exact %", "95 % interval", "updates", "seconds", "share", "of possible",
              "speedup", "of share")
    print(" | ".join(header))
    for text, control in controls.items():
        least = fewest_loops(model, task, control, args.batch, args.loops, adaptive.k_min)
        full = results[text, FIXED].updates
        possible = float((full - full * least / args.loops).sum())
        slow = statistics.median(seconds[text, FIXED])
        for way in ways:
            result, took = results[text, way], statistics.median(seconds[text, way])
            right = score(result.output, labels).exact
            interval = binomtest(int(right.sum()), len(task)).proportion_ci(method="wilson")
            share = float(result.updates.sum() / full.sum())
            saved = float((full - result.updates).sum())
            of_possible = f"{saved / possible:.3f}" if possible else "-"
            print(" | ".join((
                text, way, f"{100 * float(right.float().mean()):.2f}",
                f"{100 * interval.low:.2f}..{100 * interval.high:.2f}",
                f"{float(result.updates.float().mean()):.1f}", f"{took:.2f}", f"{share:.3f}",
                of_possible, f"{slow / took:.2f}", f"{slow / took * share:.3f}",
            )))


if __name__ == "__main__":
    main()
