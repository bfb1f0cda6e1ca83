"""Run a recipe: its cells into folders, resumable, and a comparison for each.

    out/<recipe>/<cell>/<policy>/run.json ...    (with subsets: out/<recipe>/<cell>.<number>/<policy>)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from looptaps.errors import InvalidUse, unknown
from looptaps.evaluation.compare import compare
from looptaps.evaluation.comparison import Comparison, Matched
from looptaps.evaluation.options import RunOptions, execute
from looptaps.evaluation.recipes import ALSO, Cell, Found, load_recipe
from looptaps.evaluation.records import Run

SUBSET = 10_000


@dataclass
class Bench:
    """Where recipes are run: folders, what replaces the recipes' own options, and models that are already loaded.

    Args:
        recipes: the folder of the recipes.
        out: the folder of the runs.
        small: the small version.
        overrides: fields of `looptaps run` that win over the recipe's.
        progress: told what is run, a policy's name, the puzzles of a batch, and how many there are.
    """

    recipes: Path
    out: Path
    small: bool
    overrides: dict[str, Any] = field(default_factory=dict)
    progress: Callable[[str, str, int, int], None] | None = None
    models: dict[Any, Any] = field(default_factory=dict)
    done: dict[str, dict[str, Run]] = field(default_factory=dict)


def run_recipe(found: Found, bench: Bench) -> dict[str, tuple[Cell, Comparison, dict[str, Run]]]:
    """All cells of a recipe: name -> (cell, comparison, runs by name)."""
    results = {}
    for cell in found.recipe.cell:
        if cell.left_out(bench.small):
            continue
        own = run_cell(found, cell, bench) or {}
        others = _others(cell, bench)
        runs = {**others, **{cell.named(name): run for name, run in own.items()}}
        if len(runs) < len(own) + len(others):
            raise InvalidUse(f"The cell {cell.name} of {found.name} has two runs of one name. Give it a label.")
        results[cell.name] = (cell, *compare_cells(runs, cell.title))
    return results


def run_cell(found: Found, cell: Cell, bench: Bench) -> dict[str, Run] | None:
    """The runs of a cell, by policy; None where the small version leaves it out.

    The constants at the rules' mean etas come last: a mean is that of all subsets, and its constant runs on all.
    """
    key = f"{found.name}.{cell.name}"
    if key in bench.done:
        return bench.done[key]
    options = cell.options(bench.small)
    if options is None:
        return None
    plain = RunOptions.model_validate({**options.model_dump(), **bench.overrides, "constants": False})
    runs = _on_subsets(plain, found, cell, bench)
    if options.constants:
        etas = sorted({round(run.mean_eta, 2) for run in runs.values() if run.adaptive})
        beside = tuple(text for eta in etas if (text := f"constant:eta={eta}") not in plain.controller)
        if beside:
            runs |= _on_subsets(plain.model_copy(update={"controller": beside}), found, cell, bench)
    bench.done[key] = runs
    return runs


def _on_subsets(options: RunOptions, found: Found, cell: Cell, bench: Bench) -> dict[str, Run]:
    """The runs of all policies on every subset, pooled."""
    parts = 1 if bench.small else cell.subsets
    pieces = []
    for number in range(parts):
        part = options if parts == 1 else options.model_copy(
            update={"rows": f"{number * SUBSET}:{(number + 1) * SUBSET}", "seed": number})
        where = bench.out / found.name / (cell.name if parts == 1 else f"{cell.name}.{number}")
        pieces.append(_execute(part, where, found, f"{found.name}.{cell.name}", bench))
    return {name: pool([piece[name] for piece in pieces]) for name in pieces[0]}


def compare_cells(runs: dict[str, Run], title: str) -> tuple[Comparison, dict[str, Run]]:
    """The comparison of runs from several calls, and those it shows.

    Each call has the unit step beside its rules, so that their clocks may be compared. Its answers are the same every
    time: the comparison shows the first, and takes the clocks of the other calls' rules from their own.
    """
    first: dict[Any, str] = {}
    again = []
    for name, run in runs.items():
        if run.meta["controller"] == "standard":
            setting = (run.meta["model"]["sha256"], run.meta["strategy"], run.meta["batch_size"])
            if first.setdefault(setting, name) != name:
                again.append(name)
    shown = {name: run for name, run in runs.items() if name not in again}
    found = compare(shown, title=title)
    clocks: dict[str, Matched] = {}
    for unit in again:
        group = runs[unit].meta["timing"]["group"]
        call = {name: run for name, run in runs.items() if run.meta["timing"]["group"] == group}
        clocks |= {row.name: row.matched for row in compare(call, baseline=unit).rows}
    rows = tuple(row.model_copy(update={"matched": clocks.get(row.name, row.matched)}) for row in found.rows)
    return found.model_copy(update={"rows": rows}), shown


def _execute(options: RunOptions, where: Path, found: Found, key: str, bench: Bench) -> dict[str, Run]:
    tell = bench.progress
    runs = execute(
        options, where, recipe={"name": found.name, "hash": found.sha256}, models=bench.models, several=True,
        progress=None if tell is None else lambda name, count, total: tell(key, name, count, total),
    )
    return runs


def _others(cell: Cell, bench: Bench) -> dict[str, Run]:
    """Runs of other cells that this comparison shows, too."""
    runs: dict[str, Run] = {}
    for place in cell.also:
        named = ALSO.fullmatch(place)
        assert named is not None
        found = load_recipe(named["recipe"], bench.recipes)
        made = run_cell(found, found.recipe.cell_named(named["cell"]), bench)
        if made is None:
            raise InvalidUse(f"The cell {cell.name} shows runs of {place}, which this version leaves out.")
        if named["run"] is None:
            runs |= {f"{named['label']}-{name}": run for name, run in made.items()}
        elif named["run"] in made:
            runs[named["label"]] = made[named["run"]]
        else:
            raise unknown(f"run of {place}", named["run"], made)
    return runs


def pool(runs: list[Run]) -> Run:
    """Runs of one policy on subsets that do not overlap, as one run."""
    first = runs[0]
    if len(runs) == 1:
        return first

    def joined(name: str) -> Any:
        parts = [getattr(run, name) for run in runs]
        return None if any(part is None for part in parts) else np.concatenate(parts)

    meta = dict(first.meta)
    meta["task"] = {**first.meta["task"], "spec": ", ".join(str(run.meta["task"]["spec"]) for run in runs),
                    "sha256": " ".join(str(run.meta["task"]["sha256"]) for run in runs), "n": sum(map(len, runs))}
    timing = [run.meta["timing"] for run in runs]
    meta["timing"] = {**timing[0], "batch_seconds": [s for one in timing for s in one["batch_seconds"]],
                      "seconds": sum(one["seconds"] for one in timing),
                      "group": " ".join(str(one["group"]) for one in timing)}
    meta["parts"] = [part for run in runs for part in run.meta["parts"]]
    return Run(
        folder=first.folder, meta=meta, ids=np.arange(sum(map(len, runs))), correct=joined("correct"),
        loops=joined("loops"), updates=joined("updates"), updates_high=joined("updates_high"), status=joined("status"),
        eta=joined("eta"), eta_by_loop=joined("eta_by_loop"), score=joined("score"), any=joined("any"),
        difficulty={name: np.concatenate([run.difficulty[name] for run in runs]) for name in first.difficulty},
        rows=[row for run in runs for row in run.rows],
    )  # fmt: skip
