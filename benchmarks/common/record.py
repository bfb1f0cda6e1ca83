"""Records: what was measured, how, on what, and the figures with their 95 % intervals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import looptaps as lt
from common.command import command
from common.setting import Setting
from looptaps.evaluation.difficulty import mean_interval
from looptaps.evaluation.provenance import device_facts, git_state, model_facts, now, versions
from looptaps.evaluation.statistics import paired, proportion

# Every record says which layout it has.
SCHEMA = 1


def write_record(setting: Setting, measured: str, started: str, **figures: Any) -> None:
    """Write the record, if there is a place for it.

    Args:
        setting: what was run.
        measured: how, in words.
        started: when.
        figures: the numbers.
    """
    options = setting.options
    if options.out is None:
        return
    git = git_state()
    record = {
        "schema": SCHEMA,
        "name": options.name,
        "command": command(),
        "measured": " ".join(measured.split()),
        "model": {**model_facts(setting.model, _name(options.model)), "compiled": options.compile},
        "puzzles": {"origin": setting.task.origin, "count": len(setting.task),
                    "fingerprint": setting.task.fingerprint(), "batch_size": options.batch_size},
        "device": device_facts(setting.device),
        "versions": {"looptaps": lt.__version__, **versions(setting.device)},
        "commit": options.commit or git["commit"],
        "dirty": git["dirty"],
        "started": started,
        "finished": now(),
        "figures": figures,
    }
    path = Path(options.out)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    temporary.replace(path)
    print(f"# wrote {path}", flush=True)


def earlier_record(setting: Setting, facts: dict[str, Any]) -> dict[str, Any] | None:
    """The record that is there already, to go on with; one of other weights, puzzles or `facts` is refused."""
    path = setting.options.out
    if path is None or not Path(path).exists():
        return None
    record: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    model = model_facts(setting.model, None)
    there = {"weights": record["model"]["sha256"], "config": record["model"]["config"],
             "compiled": record["model"]["compiled"], "puzzles": record["puzzles"]["fingerprint"],
             **{name: record["figures"].get(name) for name in facts}}
    here = {"weights": model["sha256"], "config": json.loads(json.dumps(model["config"])),
            "compiled": setting.options.compile, "puzzles": setting.task.fingerprint(), **facts}
    other = [name for name in here if there[name] != here[name]]
    if other:
        raise SystemExit(f"{path} is of other {', '.join(other)}. Move it away, or leave --resume out.")
    return record


def share(flags: Any) -> dict[str, Any]:
    """A percentage with Wilson's interval."""
    found = proportion(np.asarray(flags, bool))
    return {"percent": _percent(found.value), "interval_95": [_percent(found.low), _percent(found.high)]}


def against(base: Any, other: Any) -> dict[str, Any]:
    """`other` minus `base` on the same puzzles, in points, with the bootstrap's interval and McNemar's p."""
    found = paired(np.asarray(base, bool), np.asarray(other, bool))
    return {"points": _percent(found.difference), "interval_95": [_percent(found.low), _percent(found.high)],
            "gained": found.gained, "lost": found.lost, "p": float(f"{found.p:.3g}")}


def average(values: Any) -> dict[str, Any]:
    """A mean with the interval of Student's t."""
    found = mean_interval(values)
    return {"mean": round(found.value, 3), "interval_95": [round(found.low, 3), round(found.high, 3)]}


def brief(found: dict[str, Any]) -> str:
    """`12.3 [11.9, 12.7]`."""
    value = next(found[name] for name in ("percent", "points", "mean") if name in found)
    low, high = found["interval_95"]
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def _name(model: str) -> str:
    """A bundled model's name, or a file's without its folder: a record tells weights by their sha256."""
    return model if "/" not in model else model.rpartition("/")[2]


def _percent(value: float) -> float:
    return round(100 * value, 3)
