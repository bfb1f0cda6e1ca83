"""What a controller adds to a loop: one outer loop with every rule against the unit step, interleaved.

Each repeat times an outer loop at the unit step and with the rule back to back, on the first batch of puzzles, and
takes the ratio. Reported: the median of the ratios with their quartiles, and the mean with its interval. Times
themselves depend on the machine and on what else it runs.

    python benchmarks/controller_overhead.py                        # a short run
    python benchmarks/controller_overhead.py --full --device cuda   # the record
"""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

import torch
from common.record import average, write_record
from common.setting import open_setting, parser, timed

import looptaps as lt
from looptaps.evaluation.provenance import now

RULES = ("constant:eta=0.9", "taps-gd", "taps-sign", "taps-momentum", "taps-rmsprop", "taps-adam", "taps-bb")


def main() -> None:
    options = parser("controller_overhead", __doc__, limit=16, full=256, batch_size=256)
    options.add_argument("--repeats", type=int, help="of each rule (default 5; --full 41)")
    setting = open_setting(options.parse_args())
    given, started = setting.options, now()
    repeats = max(given.repeats or (41 if given.full else 5), 2)
    model, device, batch = setting.model, setting.device, setting.batches[0].batch
    unit = lt.Control(lt.Standard())
    table: dict[str, Any] = {}
    print(f"{'rule':<20}{'median':>8}   quartiles")
    with torch.inference_mode():
        carry = model.begin(batch)
        for text in RULES:
            control, ratios = lt.Control(lt.spec(text)), []
            memory = model.advance(carry, control)[1]
            for repeat in range(repeats + 1):
                base = timed(device, partial(model.advance, carry, unit))[1]
                ruled = timed(device, partial(model.advance, carry, control, memory))[1]
                if repeat:  # the first one warms up
                    ratios.append(ruled / base)
            low, median, high = statistics.quantiles(ratios, n=4)
            table[text] = {"median": round(median, 4), "quartiles": [round(low, 4), round(high, 4)], **average(ratios)}
            print(f"{text:<20}{median:>8.3f}   {low:.3f} to {high:.3f}", flush=True)
    write_record(setting, __doc__.partition("\n\n")[2].partition("\n\n")[0], started, repeats=repeats,
                 rows=len(batch["inputs"]), seconds_of_the_unit_step=table)


if __name__ == "__main__":
    main()
