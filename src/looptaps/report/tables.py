"""A comparison as rows of text, the same in the terminal and on the page."""

from __future__ import annotations

from looptaps.report.policy import Policy
from looptaps.report.summary import Row
from looptaps.report.words import points, share

COLUMNS = (
    "policy",
    "solved % [95 %]",
    "minus unit, points",
    "Holm p",
    "minus constant at mean eta",
    "loops to unit's",
    "mean eta",
)
FACTS = ("policy", "model", "task", "controller", "strategy", "puzzles", "device", "dtype", "seconds", "versions")


def cells(row: Row) -> tuple[str, ...]:
    """One policy as the columns show it; N/R: the baseline's final accuracy was not reached."""
    return (
        row.policy.label,
        share(row.accuracy),
        "" if row.difference is None else points(row.difference),
        "" if row.p is None else f"{row.p:.2g}",
        "" if row.to_constant is None else f"{points(row.to_constant)} to {row.constant}",
        "N/R" if row.loops is None else str(row.loops),
        f"{row.policy.run.mean_eta:.3f}",
    )


def facts(policy: Policy) -> tuple[str, ...]:
    """How a policy was run, as `FACTS` names it."""
    meta = policy.run.meta
    model, task, device, versions, git = (meta[name] for name in ("model", "task", "device", "versions", "git"))
    commit = "" if git["commit"] is None else f", commit {git['commit'][:10]}" + " with changes" * bool(git["dirty"])
    control = [f"{name}={meta['control'][name]}" for name in ("site", "every", "scope", "memory")
               if name in meta["control"]]
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

