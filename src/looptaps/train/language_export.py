"""From a run's folder to a small language model that can be shipped: weights, tokenizer, and a card."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from looptaps.tasks.chains import VOCABULARY
from looptaps.train import checkpointing as files
from looptaps.train.language_recipe import LanguageRecipe, language_recipe_from


def chains_tokenizer() -> Any:
    """The task's characters as a tokenizer of transformers."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({token: index for index, token in enumerate(VOCABULARY)}, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", padding_side="left")


def export_language(run: str | Path, out: str | Path | None = None) -> Path:
    """Write the averaged weights of a run's last checkpoint as a folder for `from_pretrained`; returns where."""
    from looptaps.train.language import build_ouro

    run = Path(run)
    out = Path(out) if out is not None else run / "model"
    state = files.load(run / "last.pt")
    recipe = language_recipe_from(state["recipe"], str(run / "last.pt"))
    model = build_ouro(recipe.model, recipe.seed)
    model.load_state_dict({key.removeprefix("module."): value for key, value in state["ema"].items()
                           if key.startswith("module.")})
    model.save_pretrained(out)
    chains_tokenizer().save_pretrained(out)
    sha256 = hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()
    curve = list(files.Lines(run / "curve.jsonl").read())
    count = sum(p.numel() for p in model.parameters())
    card = _card(recipe, state, count, sha256, curve)
    files.write_atomically(out / "README.md", lambda file: file.write(card.encode()))
    return out


def _card(recipe: LanguageRecipe, state: dict[str, Any], count: int, sha256: str, curve: list[dict[str, Any]]) -> str:
    steps = list(curve[-1]["exact"]) if curve else []
    lines = [
        "---", "library_name: looptaps", "tags: [ouro, looped-transformer, chained-assignments]",
        "license: apache-2.0", "---", "", f"# {recipe.name}", "",
        f"An Ouro-shaped language model with {count:,} parameters that answers chained assignments "
        "(`b=3+4;k=b-9;?k` is answered by `8`), trained by `looptaps lm train` and nothing else.", "",
        f"- {state['step']:,} steps of {recipe.batch_size:,} texts, {state['wall'] / 60:.1f} minutes on "
        f"{state['device']}, seed {recipe.seed}, {recipe.precision}",
        f"- `model.safetensors` sha256 {sha256}", f"- recipe sha256 {recipe.digest}", "", "## Curve", "",
        f"Right answers in % by number of recurrent steps, averaged weights, on {recipe.validation.questions:,} fixed "
        f"questions about programs of {max(recipe.data.statements)} statements (seed {recipe.validation.seed}).", "",
        "| step | minutes | " + " | ".join(f"{k} steps" for k in steps) + " |", "|" + "---|" * (2 + len(steps)),
    ]
    for line in curve:
        cells = [f"{100 * line['exact'][k]:.1f}" for k in steps]
        lines.append(f"| {line['step']} | {line['seconds'] / 60:.1f} | " + " | ".join(cells) + " |")
    lines += ["", "## Recipe", "", "```json", json.dumps(state["recipe"], indent=2), "```", ""]
    return "\n".join(lines)
