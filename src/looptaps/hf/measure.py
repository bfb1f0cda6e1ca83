"""Small measurements on a causal language model: losses by token, choices by likelihood, decoding speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from looptaps.errors import invalid


def text_windows(tokenizer: Any, text: str, length: int, count: int) -> Tensor:
    """The first `count` windows of `length` tokens, (count, length), side by side and without overlap."""
    ids = tokenizer(text, return_tensors="pt").input_ids[0]
    found = len(ids) // length
    if found < count:
        raise invalid("text_windows", "count", f"at most {found}, the windows of {length} tokens in this text", count,
                      "Give more text, or ask for fewer or shorter windows.")
    windows: Tensor = ids[: count * length].reshape(count, length)
    return windows


@torch.no_grad()
def token_losses(model: Any, windows: Tensor, batch: int = 1) -> Tensor:
    """-log p of every token but the first of each window, (count, length - 1), in float32."""
    losses = []
    for begin in range(0, len(windows), batch):
        rows = windows[begin:begin + batch]
        logits = model(rows.to(model.device), use_cache=False).logits[:, :-1].float()
        targets = rows[:, 1:].to(logits.device)
        # Side by side: torch sums a vocabulary that lies across memory in an order that costs five digits.
        flat = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        losses.append(flat.view(targets.shape).cpu())
    return torch.cat(losses)


def perplexity(losses: Tensor) -> float:
    """exp of the mean loss by token."""
    return float(losses.double().mean().exp())


@torch.no_grad()
def choose(model: Any, tokenizer: Any, prompt: str, choices: Sequence[str]) -> int:
    """The choice of the highest log-likelihood per character after `prompt` (lm-eval's `acc_norm`)."""
    start = tokenizer(prompt, return_tensors="pt").input_ids
    scores = []
    for choice in choices:
        whole = tokenizer(f"{prompt} {choice}", return_tensors="pt").input_ids
        losses = token_losses(model, whole)[0, start.shape[1] - 1:]
        scores.append(-float(losses.sum()) / len(choice))
    return max(range(len(scores)), key=scores.__getitem__)


@torch.no_grad()
def decode_seconds(model: Any, ids: Tensor, new: int) -> float:
    """Seconds per greedily decoded token, the prompt's own pass left out."""
    cache = model(ids, use_cache=True)
    token, past = cache.logits[:, -1:].argmax(-1), cache.past_key_values
    begin = time.perf_counter()
    for _ in range(new):
        out = model(token, past_key_values=past, use_cache=True)
        token = out.logits[:, -1:].argmax(-1)
    token.cpu()  # waits for the device
    return (time.perf_counter() - begin) / new


def interleaved(runs: dict[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Every run `repeats` times, in turn, so that a change of the machine's load meets all of them alike."""
    results: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            results[name].append(run())
    return results
