"""Training throughput: `looptaps train` against a bare hand-written loop, interleaved in one run.

The bare loop is what one would write for this one model and nothing else: plain functions on a list of tensors, the
weights cast once per step, the same core compiled, AdamW, clipping, a moving average, carry and halting in place. Both
sides take the same samples from the same kind of stream. Printed: sample-steps per CPU-second of each, and the ratio
(1 means that the trainer costs nothing; the contract is at least 0.9).

    python benchmarks/train_throughput.py --record       # 9x9, batch 64: the record
    python benchmarks/train_throughput.py --box 2x3 --no-compile
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from common.plain import write_plain_record
from torch import Tensor

from looptaps.evaluation.provenance import now
from looptaps.tasks import SudokuStream, SudokuStreamConfig
from looptaps.train import Trainer, parse_recipe

WIDTH, TOKEN, CHANNEL, H_CYCLES, L_CYCLES, LAYERS, MOST = 128, 192, 256, 2, 3, 2, 16

RECIPE = """
name = "throughput"
batch_size = {batch}
tracker = "none"
[model]
kind = "trm"
compile = {compile}
[model.config]
hidden_size = 128
puzzle_emb_ndim = 0
pos_encodings = "none"
mlp_t = true
token_inner = 192
channel_inner = 256
L_layers = 2
H_cycles = 2
L_cycles = 3
forward_dtype = "bfloat16"
state_dtype = "float32"
[data]
options = {{box = [{rows}, {columns}]}}
extra = 16
[schedule]
steps = 1000000
[validation]
puzzles = 1
"""


def norm(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)


def swiglu(x: Tensor, w_in: Tensor, w_out: Tensor) -> Tensor:
    gate, up = F.linear(x, w_in).chunk(2, -1)
    return F.linear(F.silu(gate) * up, w_out)


def core(h: Tensor, injection: Tensor, weights: list[Tensor]) -> Tensor:
    """h <- norm(h + sublayer(h)), token mixing and MLP in turn; states float32, products bfloat16."""
    h = h + injection
    for i in range(LAYERS):
        t_in, t_out, c_in, c_out = weights[4 * i : 4 * i + 4]
        t = h.transpose(1, 2).to(torch.bfloat16, memory_format=torch.contiguous_format)
        h = norm(h.transpose(1, 2) + swiglu(t, t_in, t_out)).transpose(1, 2)
        h = norm(h + swiglu(h.to(torch.bfloat16), c_in, c_out))
    return h


class Bare:
    """The hand-written loop."""

    def __init__(self, box: tuple[int, int], batch: int, compiled: bool) -> None:
        torch.manual_seed(0)
        self.stream = SudokuStream(SudokuStreamConfig(box=box, extra=16))
        n, vocab = self.stream.seq_len, self.stream.vocab_size

        def matrix(out: int, inputs: int) -> Tensor:
            return (torch.randn(out, inputs) * inputs**-0.5).requires_grad_()

        self.embed, self.head = matrix(vocab, WIDTH), matrix(vocab, WIDTH)
        self.q_weight = torch.zeros(2, WIDTH, requires_grad=True)
        self.q_bias = torch.full((2,), -5.0, requires_grad=True)
        self.core = [m for _ in range(LAYERS) for m in (matrix(2 * TOKEN, n), matrix(n, TOKEN),
                                                        matrix(2 * CHANNEL, WIDTH), matrix(WIDTH, CHANNEL))]
        self.params = [self.embed, self.head, self.q_weight, self.q_bias, *self.core]
        self.mean = [p.detach().clone() for p in self.params]
        self.optimizer = torch.optim.AdamW(self.params, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        self.apply = torch.compile(core, dynamic=False) if compiled else core
        self.init = torch.randn(2, WIDTH)
        first = self.stream.take(batch)
        self.inputs, self.labels = first["inputs"], first["labels"]
        self.halted = torch.ones(batch, dtype=torch.bool)
        self.loops, self.least = torch.zeros(batch, dtype=torch.int64), torch.ones(batch, dtype=torch.int64)
        self.z_H = self.z_L = torch.zeros(batch, n, WIDTH)

    def step(self) -> float:
        rows = self.halted.nonzero().squeeze(1)
        if rows.numel():
            fresh = self.stream.take(int(rows.numel()))
            self.inputs[rows], self.labels[rows] = fresh["inputs"], fresh["labels"]
            longer = torch.where(torch.rand(len(rows)) < 0.1, torch.randint(2, MOST + 1, (len(rows),)), 1)
            self.loops[rows], self.least[rows] = 0, longer
            mask = self.halted[:, None, None]
            self.z_H, self.z_L = torch.where(mask, self.init[0], self.z_H), torch.where(mask, self.init[1], self.z_L)
        x = WIDTH**0.5 * F.embedding(self.inputs, self.embed)
        weights = [w.to(torch.bfloat16) for w in self.core]
        z_H, z_L = self.z_H, self.z_L
        for cycle in range(H_CYCLES):
            with torch.set_grad_enabled(cycle == H_CYCLES - 1):
                injection = z_H + x
                for _ in range(L_CYCLES):
                    z_L = self.apply(z_L, injection, weights)
                z_H = self.apply(z_H, z_L, weights)
        logits, q = F.linear(z_H, self.head), F.linear(z_H.mean(1), self.q_weight, self.q_bias)[:, 0]
        exact = (logits.argmax(-1) == self.labels).all(-1)
        loss = F.cross_entropy(logits.transpose(1, 2), self.labels)
        loss = loss + 0.5 * F.binary_cross_entropy_with_logits(q, exact.float())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.params, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        torch._foreach_lerp_(self.mean, [p.detach() for p in self.params], 0.002)
        self.z_H, self.z_L = z_H.detach(), z_L.detach()
        self.loops += 1
        self.halted = (self.loops >= MOST) | ((q.detach() > 0) & (self.loops >= self.least))
        return float(loss.detach())


def timed(step: Callable[[], float], steps: int) -> float:
    """CPU seconds per step."""
    begin = time.process_time()
    for _ in range(steps):
        step()
    return (time.process_time() - begin) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--box", default="3x3", help="box of the Sudoku (default 3x3)")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds; the medians are compared")
    parser.add_argument("--steps", type=int, default=4, help="steps of each side per round")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/train_throughput.json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    started = now()
    rows, columns = (int(part) for part in given.box.split("x"))
    text = RECIPE.format(batch=given.batch, rows=rows, columns=columns, compile=str(not given.no_compile).lower())
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(parse_recipe(text), folder)
        bare = Bare((rows, columns), given.batch, not given.no_compile)
        sides = {"bare loop": bare.step, "looptaps": trainer.train_step}
        for step in sides.values():
            timed(step, 3)  # compiling and first touches
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for turn in range(given.rounds):
            names = list(sides) if turn % 2 == 0 else list(sides)[::-1]
            for name in names:
                seconds[name].append(timed(sides[name], given.steps))
    found: dict[str, dict[str, float]] = {}
    for name, values in seconds.items():
        rates = sorted(given.batch / value for value in values)
        found[name] = {"median": round(statistics.median(rates), 1), "least": round(rates[0], 1),
                       "most": round(rates[-1], 1)}
        print(f"{name:10s} {found[name]['median']:7.1f} sample-steps per CPU-second (of {given.rounds} rounds: "
              f"{rates[0]:.1f} to {rates[-1]:.1f})")
    ratios = sorted(b / a for a, b in zip(seconds["looptaps"], seconds["bare loop"]))
    print(f"looptaps / bare loop: {statistics.median(ratios):.3f} (of rounds: {ratios[0]:.3f} to {ratios[-1]:.3f})")
    if given.record:
        write_plain_record(
            "train_throughput", __doc__.partition("\n\n    python")[0], started,
            box=given.box, batch_size=given.batch, compiled=not given.no_compile, rounds=given.rounds,
            steps_per_round=given.steps, sample_steps_per_cpu_second=found,
            ratio={"median": round(statistics.median(ratios), 3), "least": round(ratios[0], 3),
                   "most": round(ratios[-1], 3)},
        )


if __name__ == "__main__":
    main()
