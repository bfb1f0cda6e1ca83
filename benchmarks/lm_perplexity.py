"""SmolLM2-135M with a looped window: perplexity over windows, stages and policies, on the same text, paired.

Text: windows of 512 tokens from Python's help topics, the docstrings of its standard library and this repository's
licence, spread evenly over each. Scope `sequence`, steps eta/K. Everything below the window is computed once for all
policies, and so is a state that two policies share to the last bit; `attach` gives the same losses, which is checked on
the first window of text. The layers' products run in bfloat16 by autocast (`--products fp32`: in float32); states,
norms, energies, logits and losses are float32. The record says how much that changes on a few windows of text.

A policy is compared with the unlooped model and with the loop at the unit step, a rule also with the constant at its
mean eta: differences of the mean loss by window of text, bootstrapped over those windows.

    python benchmarks/lm_perplexity.py                                # one window of layers, a few windows of text
    python benchmarks/lm_perplexity.py --full --work runs/lm-ppl      # the record; goes on where it was stopped
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.language import RULES, open_smollm2, percent_change, text_sample, write_record
from torch import Tensor

import looptaps as lt
from looptaps.controllers.base import Sample
from looptaps.evaluation.provenance import now
from looptaps.hf.blocks import block_step
from looptaps.hf.measure import token_losses
from looptaps.loop.step import begin_memory

LENGTH = 512
# Windows of text by source; then what is run, in this order: layers and K.
MAIN = (12, 15)
SHORT = {"topics": 3, "licence": 1}, ((MAIN, 2),)
FULL = {"topics": 60, "docstrings": 40, "licence": 4}, (
    (MAIN, 2), (MAIN, 3), ((14, 17), 3), ((10, 13), 3), ((14, 17), 2), ((10, 13), 2))
CONSTANTS = {MAIN: ("constant 0.8", "constant 1.2")}


class Memo:
    """A function of states that is not run again for a state it has seen, bit for bit."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        self.function, self.seen = function, []

    def __call__(self, x: Tensor) -> Any:
        for known, value in self.seen:
            if torch.equal(known, x):
                return value
        value = self.function(x)
        self.seen.append((x, value))
        return value


class Parts:
    """The model taken apart: embeddings, layers with the arguments of an unpadded text, final norm and head."""

    def __init__(self, model: Any, example: Tensor, products: str) -> None:
        self.model, self.layers, self.products = model, model.model.layers, products
        seen: dict[str, Any] = {}
        hook = self.layers[0].register_forward_pre_hook(lambda _, __, kwargs: seen.update(kwargs), with_kwargs=True)
        model(example[None], use_cache=False)
        hook.remove()
        self.arguments = seen

    def run(self, x: Tensor, first: int, last: int) -> Tensor:
        with in_bfloat16() if self.products == "bf16" else nullcontext():
            for layer in self.layers[first:last + 1]:
                x = layer(x, **self.arguments)
        return x

    def loss(self, x: Tensor, ids: Tensor) -> float:
        logits = self.model.lm_head(self.model.model.norm(x))[0, :-1].float()
        return float(torch.nn.functional.cross_entropy(logits, ids[1:]))


def in_bfloat16() -> AbstractContextManager[Any]:
    return torch.autocast("cpu", torch.bfloat16)


def rule_of(name: str) -> Any:
    if name == "unit":
        return lt.Standard()
    constant = name.startswith("constant ")
    return lt.Constant(float(name.split()[1])) if constant else lt.spec(f"{name}@blocks")


def looped(rule: Any, x: Tensor, block: Callable[[Tensor], Tensor], loops: int) -> tuple[Tensor, list[float]]:
    scope = Sample()
    bound = lt.Control(rule).rule(gain=1 / loops)
    memory, etas = begin_memory(bound, x, scope), []
    for _ in range(loops):
        step = block_step(bound, x, block(x), memory, scope, loops)
        x, memory = step.x, step.memory
        etas.append(float(memory.eta))
    return x, etas


@torch.no_grad()
def measure(parts: Parts, texts: Tensor, window: tuple[int, int], loops: int, names: list[str],
            file: Path) -> dict[str, list[dict[str, Any]]]:
    """Loss and etas of every policy on every text; what `file` holds already is not run again."""
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    first, last = window
    done = {(line["text"], line["policy"]): line for line in lines if line["loops"] == loops}
    with file.open("a") as log:
        for number, ids in enumerate(texts):
            missing = [name for name in names if (number, name) not in done]
            if not missing:
                continue
            x = parts.run(parts.model.model.embed_tokens(ids[None]), 0, first - 1)
            block = Memo(lambda h: parts.run(h, first, last))
            rest = Memo(lambda h, ids=ids: parts.loss(parts.run(h, last + 1, len(parts.layers) - 1), ids))
            for name in missing:
                state, etas = (block(x), []) if name == "base" else looped(rule_of(name), x, block, loops)
                line = {"text": number, "loops": loops, "policy": name, "loss": rest(state), "etas": etas}
                done[number, name] = line
                log.write(json.dumps(line) + "\n")
            log.flush()
            print(f"# layers {first}-{last}, K = {loops}: text {number + 1}/{len(texts)}", flush=True)
    return {name: [done[n, name] for n in range(len(texts))] for name in names}


def table(found: dict[str, list[dict[str, Any]]], matched: dict[str, str]) -> dict[str, Any]:
    loss = {name: np.array([line["loss"] for line in lines]) for name, lines in found.items()}
    rows = {}
    for name, values in loss.items():
        etas = np.array([line["etas"] for line in found[name]])
        row: dict[str, Any] = {"perplexity": round(float(np.exp(values.mean())), 4)}
        if name != "base":
            row |= {"eta_stages": np.round(etas.mean(0), 4).tolist(), "eta_bar": round(float(etas.mean()), 4),
                    "change_to_base": percent_change(values - loss["base"])}
            if name != "unit":
                row["change_to_unit"] = percent_change(values - loss["unit"])
        if name in matched:
            row["matched_constant"] = matched[name]
            row["change_to_matched_constant"] = percent_change(values - loss[matched[name]])
        rows[name] = row
    return rows


@torch.no_grad()
def check(model: Any, parts: Parts, texts: Tensor, window: tuple[int, int]) -> dict[str, float]:
    """The largest difference of a loss: to `attach`; and of a change of loss: to products in float32."""
    products, changes = parts.products, {}
    for parts.products in dict.fromkeys((products, "fp32")):
        changes[parts.products] = []
        for ids in texts[:4]:
            x = parts.run(model.model.embed_tokens(ids[None]), 0, window[0] - 1)
            block = Memo(lambda h: parts.run(h, *window))
            base = parts.loss(parts.run(block(x), window[1] + 1, len(parts.layers) - 1), ids)
            for name in ("unit", "taps-momentum", "taps-adam"):
                state, _ = looped(rule_of(name), x, block, 3)
                loss = parts.loss(parts.run(state, window[1] + 1, len(parts.layers) - 1), ids)
                changes[parts.products].append(loss - base)
    parts.products = products
    # `loss` is now that of taps-adam on the last of these texts, in float32.
    with lt.hf.attach(model, rule_of("taps-adam"), layers=window, loops=3, scope="sequence"):
        attached = float(token_losses(model, texts[3:4]).mean())
    gap = np.subtract(changes[products], changes["fp32"])
    return {"loss_attach_minus_parts": abs(attached - loss), "change_of_loss_minus_fp32_max": float(np.abs(gap).max()),
            "change_of_loss_minus_fp32_mean": float(gap.mean()), "texts": 4}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--full", action="store_true", help="every window and text, and the record")
    options.add_argument("--products", choices=("bf16", "fp32"), default="bf16")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--work", type=Path, default=Path("runs/lm-perplexity"), help="where to go on from")
    given = options.parse_args()
    torch.set_num_threads(given.threads)
    started = now()
    model, tokenizer = open_smollm2()
    counts, runs = FULL if given.full else SHORT
    texts = text_sample(tokenizer, LENGTH, counts)
    parts = Parts(model, texts[0], given.products)
    given.work.mkdir(parents=True, exist_ok=True)
    checked = given.work / f"checks-{given.products}.json"
    if not checked.exists():
        checked.write_text(json.dumps({"started": started, **check(model, parts, texts, MAIN)}))
    checks = json.loads(checked.read_text())
    started = checks.pop("started")
    print(f"# {checks}", flush=True)
    figures: dict[str, Any] = {}
    for window, loops in runs:
        file = given.work / f"{'full' if given.full else 'short'}-{given.products}-{window[0]}-{window[1]}.jsonl"
        names = ["base", "unit", *RULES, *CONSTANTS.get(window, ())]
        found = measure(parts, texts, window, loops, names, file)
        means = {name: np.mean([line["etas"] for line in found[name]]) for name in RULES}
        matched = {name: f"constant {eta:.3f}" for name, eta in means.items()}
        found |= measure(parts, texts, window, loops, sorted(set(matched.values())), file)
        rows = figures[f"{window[0]}-{window[1]}, K={loops}"] = table(found, matched)
        for name, row in rows.items():
            print(f"{window[0]}-{window[1]} K={loops} {name:16} {row['perplexity']:9.4f}  "
                  f"{row.get('change_to_base', '')}", flush=True)
        if given.full:
            write_record("lm_perplexity", __doc__, started, model, windows_of_text=counts, length=LENGTH,
                         tokens_scored=len(texts) * (LENGTH - 1), products=given.products, checks=checks,
                         tables=figures)


if __name__ == "__main__":
    main()
