"""Parallel rollouts: accuracy by budget, where the noise goes, how strong it is, and under which rule.

One run of `--rollouts` rollouts per cell (noise on z_L or z_H, sigma, rule) at fixed depth; smaller budgets are its
prefixes, so all budgets of a cell share their draws, and all cells share seeds. For each budget: the exact accuracy of
the rollout with the best Q, of the most frequent answer, and whether any rollout is right (a metric, no selection).
Differences are to the unit step of the same cell, and to the plain run without noise, on the same puzzles. The plain
run of each rule must equal a rollout with sigma = 0 bit for bit, and that is checked here too.

    python benchmarks/rollouts.py                                               # a short run
    python benchmarks/rollouts.py --full --device cuda --batch-size 512         # 512 puzzles, 18 cells, the record
    python benchmarks/rollouts.py --full --resume                               # the cells that its record lacks
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from common.record import against, average, brief, earlier_record, share, write_record
from common.setting import Setting, open_setting, parser, timed
from numpy.typing import NDArray

import looptaps as lt
from looptaps.evaluation.provenance import device_facts, now
from looptaps.strategies import any_right, prefix
from looptaps.tasks.base import score

RULES = {"unit": "standard", "taps-adam": "taps-adam", "taps-gd": "taps-gd"}
WHERE = ("z_L", "z_H")
SIGMAS = (0.2, 0.6, 1.0)
BUDGETS = (1, 2, 5, 10, 25, 50, 100)


class Cell(NamedTuple):
    """One cell: by budget and way to choose, which puzzles were right (N,); updates and scale of a rollout."""

    right: dict[int, dict[str, NDArray[np.bool_]]]
    updates: NDArray[np.int64]
    eta: float
    seconds: float


def run(setting: Setting, control: Any, strategy: lt.Rollouts, budgets: list[int]) -> Cell:
    right: dict[int, dict[str, list[Any]]] = {n: {"best-q": [], "mode": [], "any": []} for n in budgets}
    updates, etas, seconds = [], [], 0.0
    for part in setting.batches:
        result, took = timed(setting.device, lambda part=part: strategy.run(
            setting.model, part.batch, control, seed=0, ids=part.ids))
        seconds += took
        assert result.rollouts is not None
        updates.append(result.rollouts.updates[0].cpu())
        etas.append(result.rollouts.mean_eta.mean(0).cpu())
        for n in budgets:
            for way in ("best-q", "mode"):
                answers = prefix(result, n, way).output  # type: ignore[arg-type]
                right[n][way].append(score(answers, part.batch).exact.cpu())
            batch = part.batch
            right[n]["any"].append(any_right(result, lambda a, b=batch: score(a, b).exact, n).cpu())
    joined = {n: {way: torch.cat(flags).numpy() for way, flags in ways.items()} for n, ways in right.items()}
    return Cell(joined, torch.cat(updates).numpy(), float(torch.cat(etas).mean()), seconds)


def bits(flags: NDArray[np.bool_]) -> str:
    return np.packbits(flags).tobytes().hex()


def flags_of(text: str, count: int) -> NDArray[np.bool_]:
    return np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8), count=count).astype(bool)


def without_noise(setting: Setting, depth: Any, max_rows: int) -> tuple[dict[str, Any], dict[str, bool]]:
    """Which puzzles each rule solves alone, and whether rollouts with sigma = 0 are that run, bit for bit."""
    plain, zero = {}, {}
    for rule, text in RULES.items():
        control, flags, same = lt.spec(text), [], True
        for part in setting.batches:
            alone = depth.run(setting.model, part.batch, control, ids=part.ids)
            still = lt.Rollouts(depth, n=2, sigma=0.0, max_rows=max_rows).run(
                setting.model, part.batch, control, ids=part.ids)
            table = still.rollouts
            same &= all(torch.equal(row, alone.output) for row in table.output)
            same &= all(torch.equal(row, alone.score) for row in table.score)
            flags.append(score(alone.output, part.batch).exact.cpu())
        plain[rule], zero[rule] = torch.cat(flags).numpy(), same
    return plain, zero


def described(cell: Cell, base: dict[str, Any] | None, plain: NDArray[np.bool_], where: str) -> dict[str, Any]:
    """A cell as the record holds it; `base` is the unit step's, None for itself."""
    row: dict[str, Any] = {"updates_per_rollout": average(cell.updates), "mean_eta": round(cell.eta, 4),
                           "seconds": round(cell.seconds, 1), "device": where, "budgets": {}}
    for budget, ways in cell.right.items():
        row["budgets"][str(budget)] = {}
        for way, right in ways.items():
            unit = right if base is None else flags_of(base["budgets"][str(budget)][way]["bits"], len(right))
            row["budgets"][str(budget)][way] = {
                **share(right), "against_unit": against(unit, right), "against_plain": against(plain, right),
                "bits": bits(right)}
    return row


def main() -> None:
    options = parser("rollouts", __doc__, limit=8, full=512, batch_size=512)
    options.add_argument("--rollouts", type=int, help="per cell (default 5; --full 25)")
    options.add_argument("--loops", type=int, default=16)
    options.add_argument("--max-rows", type=int, default=4096, help="rows at a time")
    options.add_argument("--resume", action="store_true", help="keep the cells that the record holds")
    setting = open_setting(options.parse_args())
    given, started = setting.options, now()
    n = given.rollouts or (25 if given.full else 5)
    budgets = sorted({budget for budget in BUDGETS if budget < n} | {n})
    depth = lt.FixedDepth(given.loops)
    facts = {"loops": given.loops, "rollouts": n, "seed": 0}
    earlier = earlier_record(setting, facts) if given.resume else None
    cells: dict[str, Any] = {}
    if earlier is not None:
        started, cells = earlier["started"], earlier["figures"]["cells"]
    plain, zero = without_noise(setting, depth, given.max_rows)

    print(f"where | sigma | rule | best-q of {n} | mode of {n} | any of {n} | best-q against unit | seconds")
    names = [(where, sigma, rule) for where in WHERE for sigma in (SIGMAS if given.full else SIGMAS[:1])
             for rule in RULES]
    for where, sigma, rule in names:
        name = f"{where}, sigma {sigma}, {rule}"
        if name not in cells:
            strategy = lt.Rollouts(depth, n=n, sigma=sigma, where=where, max_rows=given.max_rows)  # type: ignore[arg-type]
            cell = run(setting, lt.spec(RULES[rule]), strategy, budgets)
            base = None if rule == "unit" else cells[f"{where}, sigma {sigma}, unit"]
            cells[name] = described(cell, base, plain[rule], device_facts(setting.device)["name"])
            write_record(setting, __doc__.partition("\n\n")[2].partition("\n\n")[0], started, **facts,
                         cells_of=len(names), plain={rule: share(flags) for rule, flags in plain.items()},
                         sigma_zero_is_plain=zero, cells=cells)
        best = cells[name]["budgets"][str(n)]
        print(f"{where} | {sigma} | {rule} | " + " | ".join(brief(best[way]) for way in best)
              + f" | {brief(best['best-q']['against_unit'])} | {cells[name]['seconds']:.1f}", flush=True)
    print("sigma = 0 equals the plain run bit for bit: " + ", ".join(f"{rule} {same}" for rule, same in zero.items()))


if __name__ == "__main__":
    main()
