"""Rewrite the golden trajectories: `python tests/core/golden/update.py`, only after a change meant to move them.

Each is a short rollout of a fixed core in float32, its etas and final checksum stored as hexadecimal floats. The core
uses only +, * and a division, which IEEE 754 rounds the same everywhere.
"""

import json
from pathlib import Path

import torch

import looptaps as lt

FILE = Path(__file__).with_name("trajectories.json")
SPECS = ["taps-gd", "taps-sign", "taps-momentum", "taps-rmsprop", "taps-adam", "taps-bb", "taps-adam@trm",
         "taps-bb@blocks:gain=0.3333333333333333", "constant:eta=0.87", "schedule:etas=1/1.2/0.9"]


def core(x: torch.Tensor) -> torch.Tensor:
    turned = x * 0.75 + x.roll(1, -1) * 0.25 - x.roll(-1, -2) * 0.125
    return turned / (1 + turned * turned * 0.0625) + 0.125


def trajectory(text: str) -> dict[str, list[str]]:
    x = (torch.arange(2 * 3 * 8, dtype=torch.float32).reshape(2, 3, 8) * 7 % 11 - 5) / 4
    signs = torch.tensor([1.0, -1.0])[:, None, None]  # one sample advances, the other alternates
    run = lt.iterate(lambda x: signs * core(x), x, lt.spec(text), 10, trace=True)
    found = {"eta": run.trace.eta, "state": run.x[:, 0, :2]}
    if run.trace.balance is not None:
        found["balance"] = run.trace.balance
    return {name: [value.hex() for value in tensor.double().flatten().tolist()] for name, tensor in found.items()}


if __name__ == "__main__":
    FILE.write_text(json.dumps({text: trajectory(text) for text in SPECS}, indent=1) + "\n")
    print(f"wrote {FILE}")
