"""How fast puzzles come: grids from nothing, a pool's symmetric copies, mazes, ratings; each on one core.

Every figure is the median over interleaved rounds, in CPU-seconds of this process, compilation and the first filling of
a pool left out. New minimal 9x9 Sudokus are generated one by one and checked for a unique solution at every removed
clue; a stream's samples are symmetric copies of a rolling pool of such puzzles, new ones entering all the time. The
contract: at least 100 new grids and 1,000 streamed samples per second of one core.

    python benchmarks/generators.py --record
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from common.plain import write_plain_record

from looptaps.evaluation.provenance import now
from looptaps.tasks import MazeStream, MazeStreamConfig, SudokuStream, SudokuStreamConfig
from looptaps.tasks.maze import generate_mazes
from looptaps.tasks.sudoku import generate, verify


def sides(seed: int = 0) -> dict[str, tuple[int, Callable[[int], object]]]:
    """By name: how many at a time, and how to make so many new ones."""
    drawn = iter(range(1, 1_000_000))
    streams = {
        "streamed 9x9 samples": (20_000, SudokuStream(SudokuStreamConfig(seed=seed))),
        "streamed 6x6 samples": (20_000, SudokuStream(SudokuStreamConfig(seed=seed, box=(2, 3)))),
        "streamed 30x30 maze samples": (500, MazeStream(MazeStreamConfig(seed=seed, pool=32))),
    }
    found: dict[str, tuple[int, Callable[[int], object]]] = {
        "new minimal 9x9": (400, lambda n: generate(n, next(drawn))),
        "new minimal 6x6": (4_000, lambda n: generate(n, next(drawn), box=(2, 3))),
        "new 30x30 mazes": (20, lambda n: generate_mazes(n, next(drawn))),
        **{name: (n, stream.take) for name, (n, stream) in streams.items()},
    }
    puzzles, answers = generate(1000, seed)
    found["rated and proved unique, 9x9"] = (1000, lambda n: verify(puzzles[:n], answers[:n]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/generators.json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    started, makers = now(), sides()
    for _, make in makers.values():
        make(2)  # compiles, fills pools
    rates: dict[str, list[float]] = {name: [] for name in makers}
    for _ in range(given.rounds):
        for name, (count, make) in makers.items():
            begin = time.process_time()
            make(count)
            rates[name].append(count / (time.process_time() - begin))
    found = {}
    for name, values in rates.items():
        found[name] = {"median": round(statistics.median(values)), "least": round(min(values)),
                       "most": round(max(values))}
        print(f"{name:30s} {found[name]['median']:8,d} per CPU-second (of {given.rounds} rounds: "
              f"{found[name]['least']:,d} to {found[name]['most']:,d})")
    if given.record:
        write_plain_record("generators", __doc__.partition("\n\n    python")[0], started, rounds=given.rounds,
                           per_cpu_second=found)


if __name__ == "__main__":
    main()
