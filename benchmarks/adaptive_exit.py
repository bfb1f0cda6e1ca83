"""Adaptive exit against fixed depth: accuracy, updates saved, and what of that arrives on the clock.

Fixed depth, adaptive exit, and adaptive exit with refilled places run the same puzzles in one run, at the unit step
and with TAPS, in turns: segment by segment, every way on each, in an order that rotates. `share` is the updates left,
of fixed depth's. `saved_of_savable` is what the exit saved on puzzles that fixed depth solves, of what stopping each of
them at the first allowed loop from which its answer is final would have saved. `speedup` is seconds of fixed depth over
seconds, at the same batch size; `speedup_of_share` is speedup times share: 1 means that every update saved arrives on
the clock (its interval is over segments). It depends on the batch size: a loop of the last few rows costs more per row
than one of a full batch where fixed costs per call dominate, and less where a full batch does not fit the cache. Beside
TAPS stands the constant at its mean scale (accuracy and updates).

    python benchmarks/adaptive_exit.py                              # a short run
    python benchmarks/adaptive_exit.py --full                       # 4,096 generated minimal puzzles, the record
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import Any

import numpy as np
import torch
from common.record import against, average, brief, share, write_record
from common.setting import Setting, open_setting, parser, timed
from scipy import stats

import looptaps as lt
from looptaps.evaluation.difficulty import by_difficulty
from looptaps.evaluation.measure import Policy, warm_up
from looptaps.evaluation.provenance import now
from looptaps.tasks.base import TaskBatch, score

FIXED, EXIT, REFILL = "fixed depth", "adaptive exit", "adaptive exit, refilled"
WAYS = (FIXED, EXIT, REFILL)
UNIT, TAPS = "unit", "taps-gd"

Parts = list[TaskBatch]


def run(way: str, model: Any, parts: Parts, control: Any, loops: int) -> lt.Result:
    """All samples of the parts, in order."""
    if way == REFILL:
        # The batch size is that of the parts: a stream is read in pieces, however they are cut.
        size = max(len(part.ids) for part in parts)
        done = list(lt.serve_loop(lt.AdaptiveExit(max_loops=loops), model, parts, control, batch_size=size))
        order = torch.cat([served.ids for served in done]).argsort()
        result = lt.Result.join([served.result for served in done])
        return result.select(order.to(result.status.device))
    strategy = lt.FixedDepth(loops) if way == FIXED else lt.AdaptiveExit(max_loops=loops)
    return lt.Result.join([strategy.run(model, part.batch, control, ids=part.ids) for part in parts])


def first_final(model: Any, parts: Parts, control: Any, loops: int) -> tuple[lt.Result, torch.Tensor]:
    """Fixed depth, untimed, and (N,) the first loop from which each puzzle's answer is that of the last loop."""
    results, found = [], []
    for part in parts:
        result = lt.FixedDepth(loops).run(model, part.batch, control, ids=part.ids, trace="loops")
        assert result.trace is not None
        results.append(result)
        final = (result.trace.answers == result.trace.answers[-1]).all(-1)
        number = torch.arange(1, loops + 1, device=final.device).unsqueeze(1)
        found.append(torch.where(final, 0, number).amax(0).add(1).cpu())
    return lt.Result.join(results), torch.cat(found)


def right(result: lt.Result, parts: Parts) -> Any:
    """(N,) which answers are exact."""
    labels = {name: torch.cat([part.batch[name] for part in parts]) for name in ("inputs", "labels")}
    return score(result.output, labels).exact.cpu().numpy()


def ratio(top: Any, bottom: Any) -> dict[str, Any] | None:
    """Sum over sum, with the bootstrap's interval over puzzles."""
    top, bottom = np.asarray(top, np.float64), np.asarray(bottom, np.float64)
    if bottom.sum() <= 0:
        return None

    def value(a: Any, b: Any, axis: int = -1) -> Any:
        return a.sum(axis) / np.maximum(b.sum(axis), 1e-12)

    interval = stats.bootstrap((top, bottom), value, paired=True, n_resamples=2000, method="percentile", batch=100,
                               rng=np.random.default_rng(0)).confidence_interval
    return {"value": round(float(value(top, bottom)), 4),
            "interval_95": [round(float(interval.low), 4), round(float(interval.high), 4)]}


def clock(fixed: list[float], own: list[float], shares: list[float]) -> dict[str, Any]:
    """Speedup, and what of the share arrives: of all seconds together, and segment by segment."""
    pairs = [a / b for a, b in zip(fixed, own, strict=True)]
    arrived = [pair * part for pair, part in zip(pairs, shares, strict=True)]
    whole = sum(fixed) / sum(own)
    return {
        "seconds": round(sum(own), 2),
        "speedup": {"value": round(whole, 3), "interval_95": average(pairs)["interval_95"]},
        "speedup_of_share": {"value": round(whole * float(np.mean(shares)), 4),
                             "interval_95": average(arrived)["interval_95"],
                             "by_segment": [round(value, 3) for value in arrived]},
    }


def difficulty_table(setting: Setting, flags: Any, updates: Any) -> dict[str, Any]:
    """Accuracy and updates by every difficulty the puzzles have."""
    return {
        name: [{"from": group.low, "to": group.high, "puzzles": group.puzzles,
                "accuracy_percent": [round(100 * part, 2) for part in group.accuracy],
                "updates_mean": [round(part, 1) for part in group.updates], "updates_quartiles": group.quartiles}
               for group in by_difficulty(values, flags, updates)]
        for name, values in setting.task.difficulty.items()
    }


def main() -> None:
    options = parser("adaptive_exit", __doc__, limit=24, full=4096, batch_size=256)
    options.add_argument("--loops", type=int, help="of fixed depth, and the most of the others (default 6; --full 32)")
    options.add_argument("--segment", type=int, default=4, help="batches that are timed together")
    options.add_argument("--repeats", type=int, default=1)
    setting = open_setting(options.parse_args())
    given, started = setting.options, now()
    loops = given.loops or (32 if given.full else 6)
    model, device, parts = setting.model, setting.device, setting.batches
    segments = [parts[i : i + given.segment] for i in range(0, len(parts), given.segment)]
    controls: dict[str, Any] = {UNIT: lt.Standard(), TAPS: lt.spec(TAPS)}
    turns = [(name, way) for name in controls for way in WAYS]
    for control in controls.values():  # allocations and compilation, for batches of any size, are not what is measured
        warm_up(model, parts[0].batch, Policy(control))
    for name, way in turns:
        run(way, model, segments[0][:1], controls[name], min(loops, 5))

    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    results: dict[tuple[str, str], list[lt.Result]] = defaultdict(list)
    for repeat in range(given.repeats):
        for number, segment in enumerate(segments):
            first = (number + repeat) % len(turns)
            for name, way in turns[first:] + turns[:first]:
                result, took = timed(device, partial(run, way, model, segment, controls[name], loops))
                seconds[name, way].append(took)
                if repeat == 0:
                    results[name, way].append(result)
            print(f"# repeat {repeat + 1} of {given.repeats}, segment {number + 1} of {len(segments)}", flush=True)

    mean = round(float(lt.Result.join(results[TAPS, FIXED]).mean_eta.double().mean()), 4)
    beside = f"constant {mean}"
    controls[beside] = lt.Constant(mean)
    results[beside, EXIT] = [run(EXIT, model, parts, controls[beside], loops)]

    k_min = lt.AdaptiveExit(max_loops=loops).k_min
    unit = {way: right(lt.Result.join(results[UNIT, way]), parts) for way in WAYS}
    table: dict[str, Any] = {}
    for name, control in controls.items():
        again, final = first_final(model, parts, control, loops)
        full = lt.Result.join(results[name, FIXED] or [again])
        solved, all_updates = right(full, parts), full.updates.cpu().numpy()
        least = np.clip(final.numpy(), k_min, loops)
        savable = np.where(solved, all_updates * (1 - least / loops), 0.0)
        for way in WAYS:
            if way != FIXED and not results[name, way]:
                continue
            result = full if way == FIXED else lt.Result.join(results[name, way])
            flags, updates = right(result, parts), result.updates.cpu().numpy()
            row: dict[str, Any] = {
                "accuracy": share(flags), "against_fixed_depth": against(solved, flags),
                "against_unit": against(unit[way], flags), "updates": average(updates),
                "loops": average(result.loops.cpu().numpy()), "mean_eta": round(float(result.mean_eta.mean()), 4),
                "stopped": result.counts(), "by_difficulty": difficulty_table(setting, flags, updates),
            }
            if way != FIXED:
                saved = all_updates - updates
                row["loops_of_solved"] = average(result.loops.cpu().numpy()[solved]) if solved.any() else None
                row["share"] = ratio(updates, all_updates)
                row["saved_of_savable"] = ratio(np.where(solved, saved, 0), savable)
                row["saved_in_all_of_savable"] = ratio(saved, savable)
            if (name, way) in seconds:
                shares = [float(own.updates.sum() / fixed.updates.sum()) for own, fixed in
                          zip(results[name, way], results[name, FIXED], strict=True)] * given.repeats
                row["clock"] = clock(seconds[name, FIXED], seconds[name, way], shares)
            table[f"{name}, {way}"] = row

    print("policy | exact % | against fixed depth | updates | share | saved of savable | speedup | of share")
    for name, row in table.items():
        found = [row.get(column) for column in ("share", "saved_of_savable")]
        times = row.get("clock", {})
        found += [times.get("speedup"), times.get("speedup_of_share")]
        print(f"{name} | {brief(row['accuracy'])} | {brief(row['against_fixed_depth'])} | {brief(row['updates'])} | "
              + " | ".join("-" if cell is None else f"{cell['value']:.3f}" for cell in found))
    write_record(setting, __doc__.partition("\n\n")[2].partition("\n\n")[0], started, loops=loops,
                 repeats=given.repeats, segments=len(segments), batches_per_segment=given.segment, policies=table)


if __name__ == "__main__":
    main()
