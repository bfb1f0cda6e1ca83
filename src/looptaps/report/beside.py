"""Our numbers beside the paper's: a table for each cell of a recipe, and the views that some recipes ask for."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from looptaps.evaluation.comparison import Comparison, Row
from looptaps.evaluation.difficulty import by_difficulty
from looptaps.evaluation.recipe_record import Estimate, TextTable
from looptaps.evaluation.recipes import Cell, Recipe
from looptaps.evaluation.records import Run
from looptaps.report.claims import estimates
from looptaps.report.tables import caption
from looptaps.report.words import p_value, percent, points, share, times

Results = Mapping[str, tuple[Cell, Comparison, dict[str, Run]]]
NONE = ""


def tables(recipe: Recipe, results: Results) -> list[TextTable]:
    """All tables of a recipe that was run."""
    found = [cell_table(cell, comparison) for cell, comparison, _ in results.values()
             if cell.run or not recipe.views]
    for view in recipe.views:
        for cell, comparison, runs in results.values():
            if not cell.run or view == "updates-to-reach":
                made = _VIEWS[view](cell, comparison, runs, results)
                found += [made] if made is not None else []
    return found


def measured(results: Results) -> dict[str, tuple[Estimate, ...]]:
    """What claims need beyond comparisons, by cell; accuracies to reach are those of the cell `target`."""
    aim, target = None, None
    if "target" in results:
        aim, reached, runs = results["target"]
        target = runs[reached.base]
    said = {} if aim is None else aim.paper(results["target"][1].base)
    found = {name: estimates(cell, comparison, runs, target, said)
             for name, (cell, comparison, runs) in results.items()}
    return {name: values for name, values in found.items() if values}


def cell_table(cell: Cell, found: Comparison) -> TextTable:
    """A row for each policy; columns of the paper only where it has such numbers."""
    has = {name for row in found.rows for name in cell.paper(row.name)}
    sites = any(pair.against == "site" for pair in found.pairs)
    columns = ["policy", *["paper, %"] * ("accuracy" in has), "ours, % [95 %]",
               *["paper minus unit"] * ("accuracy" in has), f"ours minus {found.base} [95 %]", "Holm p", "verdict",
               "minus constant at mean eta", *["paper, inner minus outer"] * ("site" in has),
               *["ours, inner minus outer"] * sites, *["paper's speedup"] * ("speedup" in has), "our speedup [95 %]",
               *["paper's mean updates"] * ("updates" in has), "our mean updates",
               *["paper's median and most", "our median and most"] * ("median" in has),
               *["paper: saved, %", f"ours: saved of {found.base}'s, %"] * ("saved" in has), "mean eta"]  # fmt: skip
    rows = tuple(_cells(cell, found, row, has, sites) for row in found.rows)
    return TextTable(title=cell.title, caption=caption(found), columns=tuple(columns), rows=rows)


def _cells(cell: Cell, found: Comparison, row: Row, has: set[str], sites: bool) -> tuple[str, ...]:
    paper, unit = cell.paper(row.name), cell.paper(found.base)
    pair, beside, site = (found.pair(row.name, kind) for kind in ("baseline", "constant", "site"))
    said = [row.name]
    if "accuracy" in has:
        said.append(_number(paper.get("accuracy")))
    said.append(share(row.accuracy))
    if "accuracy" in has:
        here, there = paper.get("accuracy"), unit.get("accuracy")
        both = isinstance(here, float | int) and isinstance(there, float | int) and row.name != found.base
        said.append(f"{float(here) - float(there):+.2f}" if both else NONE)  # type: ignore[arg-type]
    said += [NONE if pair is None else points(pair), NONE if pair is None else p_value(pair.p_holm),
             NONE if pair is None else pair.verdict,
             ("not run" if row.kind == "rule" else NONE) if beside is None else f"{points(beside)} {beside.verdict}"]
    if "site" in has:
        said.append(_number(paper.get("site"), "+.2f"))
    if sites:
        said.append(NONE if site is None else f"{points(site)} {site.verdict}")
    if "speedup" in has:
        said.append(_number(paper.get("speedup"), ".3f"))
    said.append(times(row.matched))
    if "updates" in has:
        said.append(_number(paper.get("updates"), ",.1f"))
    said.append(f"{row.updates:,.1f}")
    if "median" in has:
        middle = [_number(paper[name], ",.0f") for name in ("median", "most") if name in paper]
        said += [", ".join(middle), f"{row.updates_median:,.0f}, {row.updates_max:,}"]
    if "saved" in has:
        own = 100 * (1 - row.updates / found.rows[0].updates)
        said += [_number(paper.get("saved"), ".1f"), NONE if row.name == found.base else f"{own:.1f}"]
    return (*said, f"{row.mean_eta:.3f}")


def _number(value: float | str | None, form: str = ".2f") -> str:
    if value is None:
        return NONE
    return value if isinstance(value, str) else format(value, form)


def difficulty_view(cell: Cell, found: Comparison, runs: Mapping[str, Run], results: Results) -> TextTable | None:
    """Share solved and effective updates in ranges of empty cells (path lengths for mazes)."""
    field = next((name for name in ("empty", "path_length") if name in runs[found.base].difficulty), None)
    if field is None:
        return None
    rows = []
    for row in found.rows:
        run = runs[row.name]
        for group in by_difficulty(run.difficulty[field], run.final, run.updates):
            quarters = group.quartiles
            rows.append((row.name, f"{group.low:g} to {group.high:g}", f"{group.puzzles}", share(group.accuracy),
                         f"{group.updates.value:,.0f}", f"{quarters[1]:,.0f} [{quarters[0]:,.0f}, {quarters[2]:,.0f}]"))
    return TextTable(title=f"{cell.title}: by difficulty", caption=caption(found), rows=tuple(rows),
                     columns=("policy", field, "puzzles", "ours, % [95 %]", "mean updates", "median [quartiles]"))


def updates_view(cell: Cell, found: Comparison, runs: Mapping[str, Run], results: Results) -> TextTable | None:
    """Mean effective updates until each accuracy that the cell `target` has after a budget; the paper's beside it."""
    if cell.name == "target":
        return None
    aim, reached, of = results["target"]
    base = of[reached.base]
    per_loop = float((base.updates / base.loops).mean())
    paper = aim.paper(reached.base)
    targets = {budget: _solved(base, int(int(budget) // per_loop)) for budget in paper if budget.isdecimal()}
    shares = {budget: NONE if count is None else percent(count / len(base)) for budget, count in targets.items()}
    rows = [(f"{reached.base}: accuracy, %", *(f"{_number(paper[b])} / {shares[b]}" for b in targets))]
    for row in found.rows:
        run, cells = runs[row.name], []
        for budget, target in targets.items():
            loop = None if target is None else next(
                (t for t in range(1, run.correct.shape[1] + 1) if int(run.correct[:, t - 1].sum()) >= target), None)
            own = "N/R" if loop is None else f"{_updates(run, loop):,.1f}"
            cells.append(f"{_number(cell.paper(row.name).get(budget), ',.1f')} / {own}")
        rows.append((row.name, *cells))
    return TextTable(title=f"{cell.title}: mean updates to the fixed point's accuracy (paper / ours)",
                     caption=caption(found), rows=tuple(rows),
                     columns=("policy", *(f"after {budget} updates" for budget in targets)))


def _solved(run: Run, loop: int) -> int | None:
    return int(run.correct[:, loop - 1].sum()) if 1 <= loop <= run.correct.shape[1] else None


def _updates(run: Run, loop: int) -> float:
    per_loop = run.updates / run.loops
    return float((np.minimum(run.loops, loop) * per_loop).mean())


def eta_view(cell: Cell, found: Comparison, runs: Mapping[str, Run], results: Results) -> TextTable | None:
    """Mean eta by loop with its spread over puzzles, and how much it moves from loop to loop."""
    rules = [row for row in found.rows if row.kind == "rule"]
    if not rules:
        return None
    marks = [mark for mark in (1, 2, 4, 8, 16, 32) if mark <= found.facts.loops]
    rows = []
    for row in rules:
        etas = runs[row.name].eta_by_loop
        moved = float(np.nansum(np.abs(np.diff(np.nanmean(etas, axis=0)))))
        rows.append((row.name, *(f"{np.nanmean(etas[:, m - 1]):.3f} ± {np.nanstd(etas[:, m - 1]):.3f}" for m in marks),
                     f"{moved:.3f}"))
    return TextTable(title=f"{cell.title}: eta by loop, mean ± standard deviation over puzzles", caption=caption(found),
                     columns=("policy", *(f"loop {mark}" for mark in marks), "total variation"), rows=tuple(rows))


_VIEWS = {"difficulty": difficulty_view, "updates-to-reach": updates_view, "step-sizes": eta_view}
