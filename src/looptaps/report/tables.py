"""A comparison as rows of text: the same in the terminal, on the page, and as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from looptaps.errors import unknown
from looptaps.evaluation.comparison import Comparison, Row
from looptaps.report.policy import Policy
from looptaps.report.words import crossing, p_value, points, share, times

ACCURACY = ("policy", "solved % [95 %]", "minus {base}, points", "Holm p", "verdict", "minus constant at mean eta")
COMPUTE = ("policy", "loops to {base}'s", "speedup there", "time / {base}", "mean loops", "mean updates", "mean eta")
FACTS = ("policy", "model", "task", "controller", "strategy", "puzzles", "device", "dtype", "seconds", "versions")


def accuracy_columns(found: Comparison) -> tuple[str, ...]:
    """Heads of `accuracy_cells`."""
    return tuple(column.format(base=found.base) for column in ACCURACY)


def accuracy_cells(found: Comparison, row: Row) -> tuple[str, ...]:
    """What a policy solved, and how that compares."""
    pair, constant = found.pair(row.name, "baseline"), found.pair(row.name, "constant")
    beside = "not run" if row.kind == "rule" else ""
    return (
        row.name,
        share(row.accuracy),
        "" if pair is None else points(pair),
        "" if pair is None else p_value(pair.p_holm),
        "" if pair is None else pair.verdict,
        beside if constant is None else f"{points(constant)} {constant.verdict} ({constant.a})",
    )


def compute_columns(found: Comparison) -> tuple[str, ...]:
    """Heads of `compute_cells`."""
    return tuple(column.format(base=found.base) for column in COMPUTE)


def compute_cells(row: Row) -> tuple[str, ...]:
    """What a policy cost; N/R: the baseline's final accuracy was not reached."""
    return (
        row.name,
        crossing(row.matched),
        times(row.matched),
        "-" if row.matched.ratio is None else f"{row.matched.ratio:.3f}",
        f"{row.loops:.1f}",
        f"{row.updates:,.0f}",
        f"{row.mean_eta:.3f}",
    )


def columns(found: Comparison) -> tuple[str, ...]:
    """Both tables side by side."""
    return accuracy_columns(found) + compute_columns(found)[1:]


def cells(found: Comparison, row: Row) -> tuple[str, ...]:
    """One policy as `columns` names it."""
    return accuracy_cells(found, row) + compute_cells(row)[1:]


def caption(found: Comparison) -> str:
    """What was measured, on what, in one line: no table goes without it."""
    facts = found.facts
    models = {row.model: row.parameters for row in found.rows}
    sized = "; ".join(f"{spec} ({count:,} parameters)" for spec, count in models.items())
    plain = [row.strategy for row in found.rows if not row.strategy.startswith("fixed-depth:")]
    strategies = f"; {', '.join(dict.fromkeys(plain))}" if plain else ""
    threads = f"{facts.threads} CPU thread{'s' * (facts.threads != 1)}"
    title = f"{found.title}. " if found.title else ""
    return (f"{title}{facts.puzzles:,} puzzles ({facts.task}), {facts.loops} loops, "
            f"seed {facts.seed}{strategies}; {sized}; {facts.device}, {threads}, {facts.dtype}"
            f"{', compiled' if facts.compiled else ''}, batches of {facts.batch_size}. Intervals are 95 %; differences "
            f"are paired by puzzle.")


def markdown(found: Comparison) -> str:
    """A table in GitHub's Markdown, with its caption."""
    return f"{md_table(columns(found), [cells(found, row) for row in found.rows])}\n{caption(found)}\n"


def md_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows as a Markdown table; bars inside cells are escaped."""
    def line(parts: Sequence[str]) -> str:
        return "| " + " | ".join(part.replace("|", "\\|") for part in parts) + " |"

    rule = "|" + "---|" * len(heads)
    return "\n".join([line(heads), rule, *map(line, rows)]) + "\n"


def csv_text(found: Comparison) -> str:
    """Plain numbers, one row per policy, for spreadsheets; empty where there is none."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["policy", "kind", "controller", "site", "every", "strategy", "puzzles", "accuracy", "low", "high",
                     "difference", "difference_low", "difference_high", "p", "p_holm", "verdict", "constant",
                     "minus_constant", "minus_constant_low", "minus_constant_high", "minus_constant_verdict", "loop",
                     "loop_low", "loop_high", "speedup", "speedup_low", "speedup_high", "time_ratio", "timing",
                     "mean_loops", "mean_updates", "mean_updates_high", "mean_eta", "seconds"])
    for row in found.rows:
        pair, beside, m = found.pair(row.name, "baseline"), found.pair(row.name, "constant"), row.matched
        of_pair = [pair.difference, pair.low, pair.high, pair.p, pair.p_holm, pair.verdict] if pair else [""] * 6
        of_constant = [beside.difference, beside.low, beside.high, beside.verdict] if beside else [""] * 4
        writer.writerow([row.name, row.kind, row.controller, row.site, row.every, row.strategy, found.facts.puzzles,
                         row.accuracy.value, row.accuracy.low, row.accuracy.high, *of_pair, row.constant, *of_constant,
                         m.loop, m.loop_low, m.loop_high, m.speedup, m.speedup_low, m.speedup_high, m.ratio, m.timing,
                         row.loops, row.updates, row.updates_high, row.mean_eta, row.seconds])
    return out.getvalue()


def latex(found: Comparison) -> str:
    """A booktabs table for a paper."""
    lines = [r"\begin{table}[t]", r"\centering", rf"\caption{{{_tex(caption(found))}}}", r"\small",
             rf"\begin{{tabular}}{{l{'r' * (len(columns(found)) - 1)}}}", r"\toprule",
             " & ".join(_tex(head) for head in columns(found)) + r" \\", r"\midrule"]
    lines += [" & ".join(_tex(cell) for cell in cells(found, row)) + r" \\" for row in found.rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"


_TEX = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "$": r"\$", "{": r"\{", "}": r"\}",
        "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def _tex(text: str) -> str:
    return "".join(_TEX.get(letter, letter) for letter in text)


WRITERS = {"md": markdown, "csv": csv_text, "json": Comparison.to_json, "latex": latex}


def as_text(found: Comparison, form: str) -> str:
    """The comparison as md, csv, json or latex."""
    if form not in WRITERS:
        raise unknown("format", form, ["table", *WRITERS])
    return WRITERS[form](found)


def facts(policy: Policy) -> tuple[str, ...]:
    """How a policy was run, as `FACTS` names it."""
    meta = policy.run.meta
    model, task, device, versions, git = (meta[name] for name in ("model", "task", "device", "versions", "git"))
    commit = "" if git["commit"] is None else f", commit {git['commit'][:10]}" + " with changes" * bool(git["dirty"])
    control = [f"{name}={meta['control'][name]}" for name in ("site", "every", "scope", "memory")]
    return (
        policy.label,
        f"{model['spec']}, {model['parameters']:,} parameters" + (f", sha256 {model['sha256'][:12]}" if model["sha256"]
                                                                  else ""),
        f"{task['spec']}, sha256 {task['sha256'][:12]}",
        " ".join([str(meta["controller"]), *control]),
        f"{meta['strategy']}, seed {meta['seed']}, batches of {meta['batch_size']}",
        f"{len(policy.run):,}",
        f"{device['name']}, {device['threads']} CPU thread{'s' * (device['threads'] != 1)}",
        str(meta["dtype"]),
        f"{meta['timing']['seconds']:,.1f} ({meta['timing']['protocol']})",
        f"looptaps {meta['looptaps']}, torch {versions['torch']}, Python {versions['python']}{commit}",
    )
