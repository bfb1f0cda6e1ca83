"""Records of `benchmarks/` as tables: every figure with its interval, and a caption that says how it was measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from looptaps.errors import InvalidFile
from looptaps.evaluation.recipe_record import TextTable

Rows = tuple[tuple[str, ...], ...]
# A table's own title (empty where the record has but one), its columns, its rows.
Part = tuple[str, tuple[str, ...], Rows]
Figures = dict[str, Any]


def record_tables(path: Path) -> list[TextTable]:
    """The tables of a record, by its name; one of no known name holds percentages by policy."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        said = _caption(record)
        parts = list(LAYOUTS.get(record.get("name", ""), _percentages)(record["figures"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise InvalidFile(f"{path} is no record of policies and figures ({type(error).__name__}: {error}). Make it "
                          "anew with the script in benchmarks/ of its name.") from error
    return [TextTable(title=f"{path.stem}: {title}" if title else path.stem, columns=columns, rows=rows,
                      caption=said if number + 1 == len(parts) else "")
            for number, (title, columns, rows) in enumerate(parts)]


def made_by(path: Path) -> str:
    """The command that makes this record: its own words, where it is there."""
    own = json.loads(path.read_text(encoding="utf-8")).get("command") if path.exists() else None
    return own or f"python benchmarks/{path.stem}.py --full"


def _caption(record: dict[str, Any]) -> str:
    model, device = record.get("model"), record["device"]
    how = record.get("measured", "").partition(" python benchmarks/")[0]  # how it is called is no part of it
    facts = [how.rstrip(".")] if how else []
    if model is not None:
        name = model.get("name") or model["spec"]
        dtype = model.get("dtype") or (model.get("config") or {}).get("forward_dtype", "")
        facts.append(", ".join(part for part in (name, f"{model['parameters']:,} parameters", dtype) if part))
    if "puzzles" in record:
        facts.append(f"{record['puzzles']['count']:,} puzzles ({record['puzzles']['origin']}), batches of "
                     f"{record['puzzles']['batch_size']}")
    threads = f", {device['threads']} thread{'s' * (device['threads'] > 1)}" if "threads" in device else ""
    changes = " with changes" if record.get("dirty") else ""
    if "command" in record:
        facts.append(f"Made by `{record['command']}`")
    return (". ".join(facts) + f". {device['name']}{threads}; commit {(record['commit'] or 'unknown')[:10]}{changes}; "
            f"{record['finished'][:10]}.")


def _percentages(figures: Figures) -> Iterator[Part]:
    """Policies as rows, measures as columns: the percentage, and every difference."""
    policies = figures["policies"]
    first = next(iter(policies.values()))
    measures = [name for name, value in first.items() if isinstance(value, dict) and "percent" in value]
    columns = ("policy", *(f"{name}, % of {first[name]['questions']}" for name in measures))
    yield "", columns, tuple((name, *(_percentage(found[m]) for m in measures)) for name, found in policies.items())


def _percentage(found: dict[str, Any]) -> str:
    others = [f"{name} {_points(value)}" for name, value in found.items() if name.startswith("minus ")]
    return "; ".join([_value(found, "percent", 1), *others])


def _adaptive_exit(figures: Figures) -> Iterator[Part]:
    columns = ("policy", "exact, %", "minus its fixed depth, points", "updates", "share of updates",
               "saved of savable", "speedup", "speedup × share")
    rows = []
    for name, row in figures["policies"].items():
        clock = row.get("clock", {})
        rows.append((name, _value(row["accuracy"], "percent", 2), _points(row["against_fixed_depth"]),
                     _value(row["updates"], "mean", 1), _value(row.get("share"), "value", 3),
                     _value(row.get("saved_of_savable"), "value", 3), _value(clock.get("speedup"), "value", 2),
                     _value(clock.get("speedup_of_share"), "value", 3)))
    yield "", columns, tuple(rows)
    for field in ("empty", "path_length"):
        groups = {name: row.get("by_difficulty", {}).get(field, []) for name, row in figures["policies"].items()}
        lines = [(name, f"{one['from']:g} to {one['to']:g}", f"{one['puzzles']:,}", _three(one["accuracy_percent"], 2),
                  _three(one["updates_mean"], 1)) for name, found in groups.items() for one in found]
        if lines:
            yield f"by {field}", ("policy", field, "puzzles", "exact, %", "mean updates"), tuple(lines)


def _fixed_point(figures: Figures) -> Iterator[Part]:
    targets = figures["targets"]
    columns = ("method", *(f"updates to {target['accuracy']['percent']:.1f} % (unit step, {budget})"
                           for budget, target in targets.items()), "at the end, %", "minus unit, points", "mean eta")
    rows = []
    for name, row in figures["methods"].items():
        reached = [_value(cell, "mean", 1) if cell["reached"] else "N/R" for cell in row["updates_to_reach"].values()]
        rows.append((name, *reached, _value(row["terminal"], "percent", 1), _points(row["terminal_against_unit"]),
                     f"{row['mean_eta']:.3f}"))
    yield "", columns, tuple(rows)


def _rollouts(figures: Figures) -> Iterator[Part]:
    cells = figures["cells"]
    budgets = list(next(iter(cells.values()))["budgets"])
    last = budgets[-1]
    plain = ", ".join(f"{rule} {_value(found, 'percent', 1)}" for rule, found in figures["plain"].items())
    columns = ("noise, rule", *(f"best-Q of {n}, %" for n in budgets), f"mode of {last}", f"any of {last}",
               f"best-Q of {last} minus unit, points", "mean eta")
    rows = []
    for name, row in cells.items():
        most = row["budgets"][last]
        rows.append((name, *(_value(row["budgets"][n]["best-q"], "percent", 1) for n in budgets),
                     _value(most["mode"], "percent", 1), _value(most["any"], "percent", 1),
                     _points(most["best-q"]["against_unit"]), f"{row['mean_eta']:.3f}"))
    yield f"without noise {plain} %", columns, tuple(rows)


def _control_axes(figures: Figures) -> Iterator[Part]:
    columns = ("policy", "exact, %", "minus unit, points", "minus the default, points", "loops to unit's", "mean eta",
               "seconds over unit's")
    rows = []
    for name, row in figures["policies"].items():
        rows.append((name, _value(row["accuracy"], "percent", 2), _points(row["against_unit"]),
                     _points(row.get("against_default")), str(row["loops_to_unit"] or "N/R"), f"{row['mean_eta']:.3f}",
                     f"{row['seconds_of_unit']['median']:.3f}"))
    yield "", columns, tuple(rows)


def _controller_overhead(figures: Figures) -> Iterator[Part]:
    rows = tuple((name, f"{row['median']:.3f}", " to ".join(f"{value:.3f}" for value in row["quartiles"]))
                 for name, row in figures["seconds_of_the_unit_step"].items())
    yield "", ("rule", "seconds over unit's, median", "quartiles"), rows


def _perplexity(figures: Figures) -> Iterator[Part]:
    columns = ("policy", "perplexity", "mean eta", "change to the plain model, %", "to the loop at unit step, %",
               "to the constant at its mean eta, %")
    for title, policies in figures["tables"].items():
        rows = []
        for name, row in policies.items():
            changes = (_signed(row.get(f"change_to_{base}"), "percent", 2) for base in ("base", "unit",
                                                                                      "matched_constant"))
            rows.append((name, f"{row['perplexity']:.3f}", f"{row['eta_bar']:.3f}" if "eta_bar" in row else "-",
                         *changes))
        yield f"layers {title}, {figures['tokens_scored']:,} tokens", columns, tuple(rows)


def _ouro_steps(figures: Figures) -> Iterator[Part]:
    own = str(figures["own_steps"])
    for title, table in figures["tables"].items():
        policies = {name: row for name, row in table.items() if isinstance(row, dict)}
        steps = list(next(iter(policies.values()))["right"])
        columns = ("policy", *(f"{step} steps, %" for step in steps), f"minus unit at {own}, points (Holm's p)",
                   f"minus the constant at its mean eta, at {own} (Holm's p)")
        rows = []
        for name, row in policies.items():
            pairs = [_tested(row.get(f"minus_{base}", {}).get(own)) for base in ("unit", "matched_constant")]
            rows.append((name, *(_value(row["right"][step], "percent", 1) for step in steps), *pairs))
        yield f"{title}, {table['questions']:,} questions", columns, tuple(rows)


def _decode_overhead(figures: Figures) -> Iterator[Part]:
    columns = ("policy", "CPU time over unit's, %", "wall-clock over unit's, %")
    rows = tuple((name, *(_signed(row.get(f"overhead_{clock}"), "percent", 2) for clock in ("cpu", "wall")))
                 for name, row in figures["policies"].items())
    yield "", columns, rows


def _medians(name: str, column: str) -> Callable[[Figures], Iterator[Part]]:
    def layout(figures: Figures) -> Iterator[Part]:
        rows = [(what, f"{row['median']:,}", f"{row['least']:,} to {row['most']:,}")
                for what, row in figures[name].items()]
        if "ratio" in figures:
            row = figures["ratio"]
            rows.append(("ratio", f"{row['median']}", f"{row['least']} to {row['most']}"))
        yield "", ("", column, "least to most"), tuple(rows)

    return layout


LAYOUTS: dict[str, Callable[[Figures], Iterator[Part]]] = {
    "adaptive_exit": _adaptive_exit,
    "fixed_point": _fixed_point,
    "rollouts": _rollouts,
    "control_axes": _control_axes,
    "controller_overhead": _controller_overhead,
    "generators": _medians("per_cpu_second", "per CPU second, median"),
    "train_throughput": _medians("sample_steps_per_cpu_second", "samples × steps per CPU second, median"),
    "lm_multiple_choice": _percentages,
    "lm_perplexity": _perplexity,
    "lm_ouro_steps": _ouro_steps,
    "lm_decode_overhead": _decode_overhead,
}


def _value(found: dict[str, Any] | None, name: str, digits: int) -> str:
    """`12.3 [11.9, 12.7]`; "-" where there is none."""
    if found is None:
        return "-"
    low, high = ("?" if end is None else f"{end:,.{digits}f}" for end in found["interval_95"])
    return f"{found[name]:,.{digits}f} [{low}, {high}]"


def _three(found: list[float], digits: int) -> str:
    value, low, high = found
    return f"{value:,.{digits}f} [{low:,.{digits}f}, {high:,.{digits}f}]"


def _signed(found: dict[str, Any] | None, name: str, digits: int) -> str:
    if found is None:
        return "-"
    low, high = found["interval_95"]
    return f"{found[name]:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"


def _points(found: dict[str, Any] | None) -> str:
    return _signed(found, "points", 2)


def _tested(found: dict[str, Any] | None) -> str:
    said = _signed(found, "points", 2)
    return f"{said} ({found['p_holm']:.2g})" if found is not None and "p_holm" in found else said
