"""What a controller adds to a loop: TRM's outer loop with every rule against the unit step, interleaved.

    python benchmarks/controller_overhead.py [--width 128] [--batch 32] [--repeats 15] [--threads 1]

Prints, per rule, the median over repeats of (time with the rule / time at the unit step), each pair timed back to
back, with the quartiles. Times themselves depend on the machine and on what else it runs.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

import looptaps as lt
from looptaps.models.trm import TRM, TRMConfig

RULES = ["constant:eta=0.9", "taps-gd", "taps-sign", "taps-momentum", "taps-rmsprop", "taps-adam", "taps-bb"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("width", 128), ("batch", 32), ("repeats", 15), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    config = TRMConfig(
        vocab_size=11, seq_len=81, hidden_size=options.width, num_heads=4, puzzle_emb_ndim=0, mlp_t=True,
        pos_encodings="none", H_cycles=3, L_cycles=6, state_dtype="float32",
    )
    generator = torch.Generator().manual_seed(0)
    model = TRM(config, generator)
    batch = {"inputs": torch.randint(1, 11, (options.batch, 81), generator=generator)}
    print(f"TRM, width {options.width}, batch {options.batch}, {options.threads} thread(s), loops of 18 updates")
    print(f"{'rule':<20}{'median':>8}   quartiles")
    with torch.inference_mode():
        carry = model.begin(batch)
        unit = lt.Control(lt.Standard())
        for text in RULES:
            control, ratios = lt.Control(lt.spec(text)), []
            memory = model.advance(carry, control)[1]
            for _ in range(options.repeats):
                base = _seconds(lambda: model.advance(carry, unit))
                ruled = _seconds(lambda c=control, m=memory: model.advance(carry, c, m))
                ratios.append(ruled / base)
            low, median, high = statistics.quantiles(ratios, n=4)
            print(f"{text:<20}{median:>8.3f}   {low:.3f} to {high:.3f}")


def _seconds(call) -> float:  # type: ignore[no-untyped-def]
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
