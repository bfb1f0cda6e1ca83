"""Traced puzzles as a few kilobytes of text, for the player on the page.

A board differs little from the one before it, so boards are stored as exclusive-or with their predecessor (the first
with the puzzle) and compressed: mostly zeros. Step sizes and balances are stored as bytes between their extremes
(255: nothing measured), which is finer than the chart's pixels; of long ones, the means of a few updates at a time.
Browsers inflate zlib streams by themselves.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from looptaps.errors import InvalidShape, InvalidUse
from looptaps.report.policy import STOPPED, Policy
from looptaps.tasks.board import SYMBOLS as DIGITS
from looptaps.tasks.board import shape_of

NOTHING = 255
LEVELS = 254
SERIES = 200  # numbers of a series at most, unless a puzzle makes more loops: what keeps a page under 3 MB


def pack(values: NDArray[np.uint8]) -> str:
    """Bytes as base64 of a zlib stream.

    >>> unpack(pack(np.arange(4, dtype=np.uint8)))
    array([0, 1, 2, 3], dtype=uint8)
    """
    return base64.b64encode(zlib.compress(np.ascontiguousarray(values, np.uint8).tobytes(), 9)).decode("ascii")


def unpack(text: str) -> NDArray[np.uint8]:
    """What `pack` was given, flat."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)


def encode_boards(boards: NDArray[np.uint8], inputs: NDArray[np.uint8]) -> tuple[str, list[int]]:
    """(n, H, cells) boards as text, and how many each puzzle has before it stopped."""
    frames = [int((rows != STOPPED).any(-1).sum()) for rows in boards]
    kept = boards.copy()
    before = np.concatenate([inputs[:, None], boards[:, :-1]], axis=1)
    for rows, earlier, frame in zip(kept, before, frames, strict=True):
        rows[:frame] ^= earlier[:frame]
        rows[frame:] = 0
    return pack(kept), frames


def decode_boards(text: str, frames: list[int], inputs: NDArray[np.uint8], loops: int) -> NDArray[np.uint8]:
    """The inverse of `encode_boards`; the page's script does the same."""
    boards = unpack(text).reshape(len(inputs), loops, -1).copy()
    for rows, first, frame in zip(boards, inputs, frames, strict=True):
        rows[:frame] = np.bitwise_xor.accumulate(np.concatenate([first[None], rows[:frame]]), axis=0)[1:]
        rows[frame:] = STOPPED
    return boards


def thinning(updates: int, loops: int) -> int:
    """How many updates are averaged into one number: the fewest that divide a loop's and leave at most `SERIES`.

    >>> thinning(96, 32), thinning(576, 32)
    (1, 3)
    """
    per_loop = max(updates // loops, 1)
    return next((size for size in range(1, per_loop) if per_loop % size == 0 and updates / size <= SERIES), per_loop)


def thin(values: NDArray[Any], size: int) -> NDArray[np.float64]:
    """(n, U) -> (n, U / size): means over `size` neighbours, of those that were measured.

    >>> thin(np.array([[1.0, 3.0, 5.0, np.nan, np.nan, np.nan]]), 2)
    array([[ 2.,  5., nan]])
    """
    pad = -values.shape[1] % size
    groups = np.pad(np.asarray(values, np.float64), ((0, 0), (0, pad)), constant_values=np.nan)
    groups = groups.reshape(len(values), -1, size)
    known = np.isfinite(groups)
    counts = known.sum(-1)
    return np.where(counts > 0, np.where(known, groups, 0.0).sum(-1) / np.maximum(counts, 1), np.nan)


def encode_series(values: NDArray[Any]) -> dict[str, Any] | None:
    """(n, U) numbers as bytes between their extremes; None where nothing was measured at all."""
    values = np.asarray(values, np.float64)
    known = np.isfinite(values)
    if not known.any():
        return None
    low, high = float(values[known].min()), float(values[known].max())
    scale = LEVELS / (high - low) if high > low else 0.0
    levels = np.full(values.shape, NOTHING, np.uint8)
    levels[known] = np.rint((values[known] - low) * scale).astype(np.uint8)
    return {"low": low, "high": high, "data": pack(levels)}


def decode_series(series: dict[str, Any], shape: tuple[int, int]) -> NDArray[np.float64]:
    """The inverse of `encode_series`, to half a level."""
    levels = unpack(series["data"]).reshape(shape)
    step = (series["high"] - series["low"]) / LEVELS
    return np.where(levels == NOTHING, np.nan, series["low"] + levels * step)


def layout(task: str, cells: int) -> dict[str, Any]:
    """How a task's tokens are drawn: size of the board, a symbol per token, the token of an open cell, walls."""
    kind = task.partition(":")[0]
    if kind == "sudoku":
        rows, cols = shape_of(cells)
        side = rows * cols
        symbols = ["", "", *DIGITS[1 : side + 1]]
        return {"kind": kind, "width": side, "height": side, "box": [rows, cols], "symbols": symbols, "open": 1,
                "wall": None}
    side = round(cells**0.5)
    if kind == "maze" and side * side == cells:
        return {"kind": kind, "width": side, "height": side, "box": None, "symbols": ["?", "", "", "S", "G", "•"],
                "open": 2, "wall": 1}
    width, height = (side, side) if side * side == cells else (cells, 1)
    return {"kind": "other", "width": width, "height": height, "box": None, "symbols": [str(t) for t in range(255)],
            "open": None, "wall": None}


def player_data(policies: list[Policy], limit: int) -> dict[str, Any] | None:
    """Everything the player shows, as plain JSON values; None if no policy was traced.

    The puzzles are those that every traced policy recorded, `limit` of them at most.
    """
    traced = [(policy, policy.traces) for policy in policies if policy.traces is not None and len(policy.traces.ids)]
    if not traced:
        return None
    shared = set(traced[0][1].ids.tolist())
    for _, traces in traced[1:]:
        shared &= set(traces.ids.tolist())
    ids = np.array(sorted(shared)[:limit])
    if not len(ids):
        raise InvalidUse("The traced runs have no traced puzzle in common, so the player cannot show them side by "
                         "side. Trace the same puzzles in each run.")
    first = traced[0][1]
    rows = _rows(first.ids, ids)
    inputs, labels = first.inputs[rows], first.labels[rows]
    runs = []
    for policy, traces in traced:
        rows = _rows(traces.ids, ids)
        if traces.inputs.shape[1:] != inputs.shape[1:] or not np.array_equal(traces.inputs[rows], inputs):
            raise InvalidShape(f"{policy.label}: its traced puzzles are not those of {traced[0][0].label}, though they "
                               "have the same ids. Report runs of one task only.")
        boards, frames = encode_boards(traces.boards[rows], inputs)
        loops = int(traces.boards.shape[1])
        size = thinning(traces.eta.shape[1], loops)
        eta, balance = (thin(series[rows], size) for series in (traces.eta, traces.balance))
        correct = policy.run.correct[_rows(policy.run.ids, ids)]
        runs.append({
            "label": policy.label, "kind": policy.kind, "loops": loops, "updates": eta.shape[1],
            "thinned": size, "frames": frames, "boards": boards, "eta": encode_series(eta),
            "balance": encode_series(balance),
            "correct": ["".join("01"[int(right)] for right in row) for row in correct],
        })
    hard = policies[0].run.difficulty
    places = _rows(policies[0].run.ids, ids)
    notes = [", ".join(f"{field} {values[place]:g}" for field, values in hard.items() if np.isfinite(values[place]))
             for place in places]
    return {
        "layout": layout(policies[0].task, inputs.shape[1]),
        "ids": ids.tolist(), "notes": notes, "inputs": pack(inputs), "labels": pack(labels), "runs": runs,
        "start": _start(runs),
    }


def script_text(data: Any) -> str:
    """JSON that may stand inside a script element, whatever the strings in it say."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _rows(known: NDArray[Any], wanted: NDArray[Any]) -> NDArray[np.int64]:
    place = {int(id_): row for row, id_ in enumerate(known)}
    return np.array([place[int(id_)] for id_ in wanted], np.int64)


def _start(runs: list[dict[str, Any]]) -> dict[str, int]:
    """What the player shows first: unit beside a rule, on a puzzle that only the rule solves, if there is one."""
    left = next((i for i, run in enumerate(runs) if run["kind"] == "unit"), 0)
    right = next((i for i, run in enumerate(runs) if run["kind"] == "rule" and i != left), min(1, len(runs) - 1))
    pairs = list(zip(runs[left]["correct"], runs[right]["correct"], strict=True))
    only = [i for i, (a, b) in enumerate(pairs) if b[-1] == "1" and a[-1] == "0"]
    both = [i for i, (a, b) in enumerate(pairs) if a[-1] == b[-1] == "1" and a != b]
    return {"puzzle": (only or both or [0])[0], "left": left, "right": right}
