"""What the language benchmarks share: SmolLM2, text that every checkout has, intervals, and how a record is written."""

from __future__ import annotations

import ast
import json
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

import looptaps as lt
from common.command import command
from looptaps.errors import MissingExtra
from looptaps.evaluation.provenance import device_facts, git_state, model_facts, now, versions
from looptaps.hf.measure import text_windows
from looptaps.hf.smollm import FILE, load_language_model

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
RULES = ("taps-gd", "taps-sign", "taps-momentum", "taps-rmsprop", "taps-adam", "taps-bb")
SCHEMA = 1


def open_smollm2() -> tuple[Any, Any]:
    """(model, tokenizer); without the package the script ends here and says what to install."""
    try:
        return load_language_model()
    except MissingExtra as error:
        print(f"Nothing measured: {error}")
        sys.exit(0)


def text_sample(tokenizer: Any, length: int, counts: dict[str, int]) -> Tensor:
    """So many windows of `length` tokens from each source, spread evenly over it, as (windows, length)."""
    sources = {"topics": _topics, "docstrings": _docstrings, "licence": lambda: (ROOT / "LICENSE").read_text()}
    chosen = []
    for name, count in counts.items():
        text = sources[name]()
        most = len(tokenizer(text).input_ids) // length
        windows = text_windows(tokenizer, text, length, most)
        chosen.append(windows[np.linspace(0, most - 1, count).round().astype(int)])
    return torch.cat(chosen)


def _topics() -> str:
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))


def _docstrings() -> str:
    """Docstrings of 200 characters and more in the standard library's own sources, in order of module and line."""
    found = []
    for name in sorted(sys.stdlib_module_names):
        spec = None if name.startswith("_") or name in {"this", "antigravity", "idlelib"} else find_spec(name)
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node)
                if text is not None and len(text) >= 200:
                    found.append(text)
    return "\n\n".join(found)


def mean_interval(values: Any) -> tuple[float, float, float]:
    """A mean and its 95 % interval, by the percentile bootstrap over the entries (10,000 resamples)."""
    numbers = np.asarray(values, np.float64)
    if np.ptp(numbers) == 0:
        return (float(numbers[0]),) * 3
    found = stats.bootstrap((numbers,), np.mean, n_resamples=10_000, method="percentile",
                            rng=np.random.default_rng(0)).confidence_interval
    return float(numbers.mean()), float(found.low), float(found.high)


def percent_change(differences: Any) -> dict[str, Any]:
    """Differences of mean loss by window as a change of perplexity in percent, with its interval."""
    value, low, high = (100 * float(np.expm1(v)) for v in mean_interval(differences))
    return {"percent": round(value, 3), "interval_95": [round(low, 3), round(high, 3)]}


def write_record(name: str, measured: str, started: str, model: Any, *, model_name: str = FILE.removesuffix(".gguf"),
                 dtype: str = "float32", **figures: Any) -> None:
    """Write benchmarks/results/<name>.json: what was measured, how, on what, and the figures."""
    device = next(model.parameters()).device
    git = git_state()
    packages = {}
    for package in ("transformers", "lm-eval", "gguf"):
        try:
            packages[package] = version(package)
        except PackageNotFoundError:
            packages[package] = None
    facts = model_facts(model, None)
    record = {
        "schema": SCHEMA,
        "name": name,
        "command": command(),
        "measured": " ".join(measured.partition("\n    python ")[0].split()),  # without the usage
        "model": {"name": model_name, "parameters": facts["parameters"], "sha256": facts["sha256"],
                  "dtype": dtype},
        "device": device_facts(device),
        "versions": {"looptaps": lt.__version__, **versions(device), **packages},
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
