"""Random numbers inside compiled code: splitmix64, keyed by (domain, seed, index).

Every puzzle and every training sample is a pure function of such a key. So nothing depends on batching or on the
numpy or numba version, any sample can be made alone, and resuming needs a position instead of a generator's state.

numba's on-disk cache watches only the file of the outermost function. Kernels that call these must be recompiled when
this file changes (delete `__pycache__`), so it holds nothing but the few lines that never should.

>>> state = start(TRAIN, 0, 0)
>>> [int(below(state, 6)) for _ in range(5)]
[3, 1, 5, 1, 2]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numba
import numpy as np
import numpy.typing as npt

P = ParamSpec("P")
R = TypeVar("R")

U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]

# Domains of the key: what the random numbers are for. Numbers once used keep their meaning for ever.
TRAIN_GRID, TRAIN, TEST, EPOCH, MIX, TRAIN_MAZE, TEST_MAZE, BUILD = range(8)


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile with numba, keeping the result on disk where that is possible.

    numba raises at import when neither the package nor the user's cache folder is writable; then the function is
    compiled anew in each process, which is slower but the same.
    """
    try:
        jitted: Callable[P, R] = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        jitted = numba.njit(nogil=True)(function)
    return jitted


@compiled
def mix64(z: Any) -> Any:
    """The bijective finaliser of splitmix64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled
def start(domain: int, seed: int, index: int) -> U64:
    """A fresh generator state for one key."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    key = mix64(np.uint64(seed) + golden * np.uint64(domain + 1))
    state = np.empty(1, np.uint64)
    state[0] = mix64(key + golden * np.uint64(index))
    return state


@compiled
def below(state: U64, n: int) -> int:
    """A uniform integer in 0..n-1 (bias below n / 2^32)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    high = mix64(state[0]) >> np.uint64(32)
    return np.int64((high * np.uint64(n)) >> np.uint64(32))  # type: ignore[return-value]


@compiled
def shuffle(state: U64, items: Any) -> None:
    """Fisher-Yates, in place."""
    for i in range(items.size - 1, 0, -1):
        j = below(state, i + 1)
        items[i], items[j] = items[j], items[i]


@compiled
def held_out(tokens: U8) -> bool:
    """Whether a puzzle belongs to the sixteenth of all puzzles that generated test sets are drawn from.

    It depends on the puzzle's tokens alone. Training streams never emit such a puzzle and generated test sets nothing
    else, so no training seed can ever meet a test puzzle.
    """
    h = np.uint64(0xCBF29CE484222325)
    for token in tokens:
        h = (h ^ np.uint64(token)) * np.uint64(0x100000001B3)
    return (mix64(h) & np.uint64(15)) == np.uint64(0)  # type: ignore[no-any-return]
