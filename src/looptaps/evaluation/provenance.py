"""Where a number comes from: code, weights, machine. What could not be found out is None, never a guess."""

from __future__ import annotations

import datetime
import hashlib
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch

import looptaps


def now() -> str:
    """UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def git_state() -> dict[str, Any]:
    """The commit of this package's checkout, and whether its sources differ from it. None outside of a checkout."""
    package = Path(looptaps.__path__[0])
    if _call("git", "-C", str(package), "ls-files", "--error-unmatch", "__init__.py") is None:
        return {"commit": None, "dirty": None}
    changes = _call("git", "-C", str(package), "status", "--porcelain", "--", str(package))
    return {
        "commit": _call("git", "-C", str(package), "rev-parse", "HEAD"),
        "dirty": None if changes is None else bool(changes),
    }


def model_facts(model: Any, text: str | None) -> dict[str, Any]:
    """Its text, kind, config, size, and the sha256 of all weights by name."""
    config = getattr(model, "config", None)
    weights = model.state_dict() if callable(getattr(model, "state_dict", None)) else None
    return {
        "spec": text or type(model).__name__,
        "kind": getattr(model, "kind", type(model).__name__),
        "config": config.to_dict() if config is not None and hasattr(config, "to_dict") else None,
        "parameters": sum(p.numel() for p in model.parameters()) if weights is not None else 0,
        "sha256": None if weights is None else _digest(weights),
    }


def device_facts(device: torch.device) -> dict[str, Any]:
    """Type, name and CPU threads."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return {"type": device.type, "name": name, "threads": torch.get_num_threads()}


def versions(device: torch.device) -> dict[str, Any]:
    """Of everything below this package."""
    driver = None
    if device.type == "cuda":
        found = _call("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
        driver = found.splitlines()[0].strip() if found else None
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "cuda": torch.version.cuda if device.type == "cuda" else None,
        "driver": driver,
    }


def _digest(weights: dict[str, torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(weights):
        value = weights[name].detach().cpu().contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.flatten().view(torch.uint8).numpy().tobytes() if value.numel() else b"")
    return digest.hexdigest()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def _call(*words: str) -> str | None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
