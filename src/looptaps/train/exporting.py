"""From a run's folder to a model that can be shipped: weights, config and a card that says how it came to be."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from looptaps.models import MODELS, save_model
from looptaps.train import checkpointing as files
from looptaps.train.recipe import Recipe, recipe_from


def export(run: str | Path, out: str | Path | None = None) -> Path:
    """Write the averaged weights of a run's last checkpoint with config and card; returns where.

    Args:
        run: the run's folder.
        out: a folder, or a single `.safetensors` file; left out, `<run>/model`.
    """
    run = Path(run)
    out = Path(out) if out is not None else run / "model"
    state = files.load(run / "last.pt")
    recipe = recipe_from(state["recipe"], str(run / "last.pt"))
    described = json.loads((run / "run.json").read_text(encoding="utf-8"))
    weights = {key.removeprefix("module."): value for key, value in state["ema"].items() if key.startswith("module.")}
    cls = MODELS[recipe.model.kind]
    model = cls.from_weights(cls.config_type.from_dict(described["config"]), weights, str(run / "last.pt"))
    save_model(model, out)
    written = out if out.suffix == ".safetensors" else out / "model.safetensors"
    digest = f"`{written.name}` sha256 {hashlib.sha256(written.read_bytes()).hexdigest()}"
    card = _card(recipe, state, described, digest, list(files.Lines(run / "curve.jsonl").read()))
    place = out.with_suffix(".md") if out.suffix == ".safetensors" else out / "README.md"
    files.write_atomically(place, lambda file: file.write(card.encode()))
    return out


def device_name(device: torch.device, processes: int = 1) -> str:
    """What a stage of a run was trained on, in words."""
    if device.type == "cuda":
        return f"{processes} x {torch.cuda.get_device_name(device)}"
    threads = torch.get_num_threads()
    return f"{processes} process{'es' * (processes > 1)} of {threads} CPU thread{'s' * (threads > 1)}"


def _card(
    recipe: Recipe, state: dict[str, Any], described: dict[str, Any], digest: str, curve: list[dict[str, Any]]
) -> str:
    devices = ", then ".join(dict.fromkeys(stage.get("device", "a CPU") for stage in state["stages"]))
    of_first = " of the first process alone" if state["world_size"] > 1 else ""
    lines = [
        "---", "library_name: looptaps", f"tags: [looped-transformer, {recipe.model.kind}, {recipe.data.task}]", "---",
        "", f"# {recipe.name}", "",
        f"{MODELS[recipe.model.kind].__name__} with {described['parameters']:,} parameters for {_puzzles(recipe)}, "
        "trained by `looptaps train` and nothing else.", "",
        f"- {state['step']:,} steps, {state['wall'] / 60:.1f} minutes on {devices} "
        f"({state['cpu'] / 60:.1f} CPU-minutes{of_first}), seed {recipe.seed}",
        f"- {digest}", "", "## Curve", "",
        "Exact accuracy in % by outer loop, averaged weights, on fixed puzzles that were not trained on.", "",
    ]
    names = [(name, loop) for name, by in curve[-1]["exact"].items() for loop in by] if curve else []
    lines.append("| step | minutes | " + " | ".join(f"{name} @{loop}" for name, loop in names) + " |")
    lines.append("|" + "---|" * (2 + len(names)))
    for line in curve:
        shares = [line["exact"].get(name, {}).get(loop) for name, loop in names]
        cells = ["" if share is None else f"{100 * share:.1f}" for share in shares]
        lines.append(f"| {line['step']} | {line['seconds'] / 60:.1f} | " + " | ".join(cells) + " |")
    lines += ["", "## Recipe", ""]
    for stage in state["stages"]:
        rows = f"rows of {json.dumps(stage['data'])} (file: sha256)" if stage["data"] else "generated puzzles alone"
        lines += [f"From step {stage['from_step']}, with {rows}:", "",
                  "```json", json.dumps(stage["recipe"], indent=2), "```", ""]
    return "\n".join(lines)


def _puzzles(recipe: Recipe) -> str:
    """What the recipe trains on, with its size: `9x9 Sudoku`, `14x14 mazes`."""
    if recipe.data.task == "sudoku":
        rows, columns = recipe.data.options.get("box", (3, 3))
        return f"{rows * columns}x{rows * columns} Sudoku"
    size = recipe.data.options.get("size", 30)
    return f"{size}x{size} mazes"
