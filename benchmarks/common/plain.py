"""Records of what needs no trained model: speed of training and of generators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

import looptaps as lt
from common.command import command
from looptaps.evaluation.provenance import device_facts, git_state, now, versions

RESULTS = Path(__file__).parents[1] / "results"
SCHEMA = 1


def write_plain_record(name: str, measured: str, started: str, **figures: Any) -> None:
    """Write benchmarks/results/<name>.json: what was measured, how, on what, and the figures."""
    git, device = git_state(), torch.device("cpu")
    record = {
        "schema": SCHEMA,
        "name": name,
        "command": command(),
        "measured": " ".join(measured.split()),
        "device": device_facts(device),
        "versions": {"looptaps": lt.__version__, **versions(device)},
        "commit": git["commit"],
        "dirty": git["dirty"],
        "started": started,
        "finished": now(),
        "figures": figures,
    }
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    temporary.replace(path)
    print(f"# wrote {path.name}", flush=True)
