"""Compiled Sudoku: solver, full grids, minimal puzzles, symmetric copies.

Everything works for any box of `box_rows` x `box_cols` cells (2x2: 4x4 grid, 2x3: 6x6, 3x3: 9x9). Inside, a grid is a
flat uint8 array with 0 for blank and 1..N for digits; the candidates of a cell are the bits of a uint32. Only the
last functions (`generate_puzzles`, `stream_samples`, `copy_rows`) speak tokens, digit plus one.

All stand in one file because numba's on-disk cache notices changes in the file of the outermost function only.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from looptaps.errors import InvalidValue
from looptaps.tasks.random64 import TRAIN, TRAIN_GRID, U8, U64, below, compiled, held_out, shuffle, start

I16 = npt.NDArray[np.int16]


class Geometry(NamedTuple):
    """Which cells exclude each other: all that the kernels need to know about a size."""

    units: I16  # (3N, N): rows, then columns, then boxes
    peers: I16  # (N*N, 3N - box_rows - box_cols - 1)
    box: npt.NDArray[np.int64]  # (box_rows, box_cols)

    @property
    def n(self) -> int:
        """Digits, and the side of the grid."""
        return int(self.units.shape[1])


@lru_cache
def geometry(box_rows: int = 3, box_cols: int = 3) -> Geometry:
    """Units and peers of a grid whose boxes have `box_rows` x `box_cols` cells.

    >>> geometry(2, 3).n, geometry(3, 3).peers.shape
    (6, (81, 20))
    """
    for name, value in (("box_rows", box_rows), ("box_cols", box_cols)):
        if not 2 <= value <= 4:
            raise InvalidValue(
                f"Sudoku.{name} must be 2, 3 or 4, but is {value!r}. "
                "Use (2, 2) for 4x4, (2, 3) for 6x6, (3, 3) for 9x9."
            )
    n = box_rows * box_cols
    rows, cols = np.divmod(np.arange(n * n), n)
    boxes = rows // box_rows * (n // box_cols) + cols // box_cols
    units = np.stack([np.flatnonzero(group == i) for group in (rows, cols, boxes) for i in range(n)])
    same = (rows[:, None] == rows) | (cols[:, None] == cols) | (boxes[:, None] == boxes)
    peers = np.stack([np.flatnonzero(line & (np.arange(n * n) != i)) for i, line in enumerate(same)])
    return Geometry(units.astype(np.int16), peers.astype(np.int16), np.array([box_rows, box_cols]))


@compiled
def _assign(cand: Any, fixed: U8, cell: int, peers: I16, work: Any) -> bool:
    """Fix a cell that has one candidate left, and every cell that thereby comes down to one."""
    work[0] = cell
    top = 1
    while top > 0:
        top -= 1
        at = work[top]
        if fixed[at]:
            continue
        fixed[at] = 1
        bit = cand[at]
        for peer in peers[at]:
            left = cand[peer]
            if left & bit:
                left &= ~bit
                cand[peer] = left
                if left == 0:
                    return False
                if left & (left - np.uint32(1)) == 0:
                    work[top] = peer
                    top += 1
    return True


@compiled
def _hidden_singles(cand: Any, fixed: U8, units: I16, peers: I16, work: Any) -> bool:
    """Place digits that fit one cell of a unit only, until nothing changes. False at a contradiction."""
    n = units.shape[1]
    full = np.uint32((1 << n) - 1)
    changed = True
    while changed:
        changed = False
        for u in range(units.shape[0]):
            once = np.uint32(0)
            twice = np.uint32(0)
            for cell in units[u]:
                m = cand[cell]
                twice |= once & m
                once |= m
            if once != full:
                return False
            hidden = once & ~twice
            if hidden == 0:
                continue
            for cell in units[u]:
                if fixed[cell] == 0:
                    m = cand[cell] & hidden
                    if m:
                        if m & (m - np.uint32(1)):
                            return False
                        cand[cell] = m
                        changed = True
                        if not _assign(cand, fixed, cell, peers, work):
                            return False
    return True


@compiled
def _search(cands: Any, fixeds: Any, units: I16, peers: I16, limit: int, out: U8, state: U64, work: Any) -> Any:
    """Depth-first search below level 0, which must be propagated: (solutions up to limit, guesses, guesses to first).

    Branches on the cell with the fewest candidates. With a random state its digits are tried in random order.
    """
    cells = peers.shape[0]
    at = np.empty(cells + 1, np.int64)
    left = np.zeros(cells + 1, np.uint32)
    solutions = 0
    guesses = 0
    first = 0
    depth = 0
    fresh = True
    while depth >= 0:
        cand = cands[depth]
        if fresh:
            best = 99
            pick = -1
            for cell in range(cells):
                if fixeds[depth, cell] == 0:
                    m = cand[cell]
                    count = 0
                    while m:
                        m &= m - np.uint32(1)
                        count += 1
                    if count < best:
                        best = count
                        pick = cell
                        if count == 2:
                            break
            if pick < 0:
                solutions += 1
                if solutions == 1:
                    first = guesses
                    for cell in range(cells):
                        m = cand[cell]
                        digit = 0
                        while m:
                            m >>= np.uint32(1)
                            digit += 1
                        out[cell] = digit
                if solutions >= limit:
                    break
                depth -= 1
                fresh = False
                continue
            at[depth] = pick
            left[depth] = cand[pick]
        m = left[depth]
        if m == 0:
            depth -= 1
            fresh = False
            continue
        bit = m & (~m + np.uint32(1))
        if state.size:
            count = 0
            rest = m
            while rest:
                rest &= rest - np.uint32(1)
                count += 1
            rest = m
            for _ in range(below(state, count)):
                rest &= rest - np.uint32(1)
            bit = rest & (~rest + np.uint32(1))
        left[depth] = m & ~bit
        guesses += 1
        cands[depth + 1] = cand
        fixeds[depth + 1] = fixeds[depth]
        cands[depth + 1, at[depth]] = bit
        fresh = _assign(cands[depth + 1], fixeds[depth + 1], at[depth], peers, work) and _hidden_singles(
            cands[depth + 1], fixeds[depth + 1], units, peers, work
        )
        if fresh:
            depth += 1
    return solutions, guesses, first


@compiled
def _load(puzzle: U8, cand: Any, fixed: U8, peers: I16, n: int, work: Any) -> bool:
    """Set up candidates from clues. False when two clues clash."""
    cand[:] = np.uint32((1 << n) - 1)
    fixed[:] = 0
    for cell in range(puzzle.size):
        if puzzle[cell]:
            bit = np.uint32(1) << np.uint32(puzzle[cell] - 1)
            if cand[cell] & bit == 0:
                return False
            cand[cell] = bit
            if not _assign(cand, fixed, cell, peers, work):
                return False
    return True


@compiled
def solve(puzzle: U8, units: I16, peers: I16, out: U8, limit: int) -> Any:
    """(solutions up to `limit`, guesses) and the first solution in `out`.

    With limit 2, `guesses` counts every guess until the solution is found and proved to be the only one; 0 means that
    naked and hidden singles suffice.
    """
    cells = peers.shape[0]
    n = units.shape[1]
    cands = np.empty((cells + 2, cells), np.uint32)
    fixeds = np.empty((cells + 2, cells), np.uint8)
    work = np.empty(2 * cells, np.int64)
    if not _load(puzzle, cands[0], fixeds[0], peers, n, work):
        return 0, 0
    if not _hidden_singles(cands[0], fixeds[0], units, peers, work):
        return 0, 0
    solutions, guesses, _ = _search(cands, fixeds, units, peers, limit, out, np.empty(0, np.uint64), work)
    return solutions, guesses


@compiled
def solve_all(puzzles: U8, units: I16, peers: I16, limit: int, solutions: U8, counts: Any, guesses: Any) -> None:
    """`solve` for every row of (B, N*N)."""
    for row in range(puzzles.shape[0]):
        counts[row], guesses[row] = solve(puzzles[row], units, peers, solutions[row], limit)


@compiled
def minimal(state: U64, units: I16, peers: I16, puzzle: U8, solution: U8) -> None:
    """A random full grid, and a puzzle of it from which no clue can be removed.

    Clues are tried in random order; one stays only if without it, and without its digit in that cell, some solution
    exists. One pass suffices: a clue that was needed stays needed when others go.
    """
    cells = peers.shape[0]
    n = units.shape[1]
    cands = np.empty((cells + 2, cells), np.uint32)
    fixeds = np.empty((cells + 2, cells), np.uint8)
    work = np.empty(2 * cells, np.int64)
    scratch = np.empty(cells, np.uint8)
    nothing = np.empty(0, np.uint64)
    cands[0] = np.uint32((1 << n) - 1)
    fixeds[0] = 0
    # A random first band fixes most of the freedom evenly; searching from an empty grid would favour some grids.
    for cell in range(n):
        scratch[cell] = cell + 1
    shuffle(state, scratch[:n])
    for cell in range(n):
        cands[0, cell] = np.uint32(1) << np.uint32(scratch[cell] - 1)
        _assign(cands[0], fixeds[0], cell, peers, work)
    _search(cands, fixeds, units, peers, 1, solution, state, work)

    order: Any = np.arange(cells)
    shuffle(state, order)
    puzzle[:] = solution
    for place in range(cells):
        cell = order[place]
        puzzle[cell] = 0
        _load(puzzle, cands[0], fixeds[0], peers, n, work)
        own = np.uint32(1) << np.uint32(solution[cell] - 1)
        needed = False
        if fixeds[0, cell] == 0:
            cands[0, cell] &= ~own
            m = cands[0, cell]
            alive = True
            if m & (m - np.uint32(1)) == 0:
                alive = _assign(cands[0], fixeds[0], cell, peers, work)
            if alive and _hidden_singles(cands[0], fixeds[0], units, peers, work):
                found, _, _ = _search(cands, fixeds, units, peers, 1, scratch, nothing, work)
                needed = found > 0
        if needed:
            puzzle[cell] = solution[cell]


@compiled
def _axis_order(state: U64, n: int, band: int, out: Any) -> None:
    """A random order of n lines that keeps bands of `band` lines together."""
    bands = np.arange(n // band)
    shuffle(state, bands)
    inner = np.arange(band)
    for i in range(bands.size):
        shuffle(state, inner)
        for j in range(band):
            out[i * band + j] = bands[i] * band + inner[j]


@compiled
def symmetric_copy(state: U64, box: Any, puzzle: U8, solution: U8, new_puzzle: U8, new_solution: U8) -> None:
    """Relabel digits, permute bands, rows, stacks and columns, and (square boxes) transpose, all at random."""
    n = box[0] * box[1]
    digits = np.arange(1, n + 1)
    shuffle(state, digits)
    rows = np.empty(n, np.int64)
    cols = np.empty(n, np.int64)
    _axis_order(state, n, box[0], rows)
    _axis_order(state, n, box[1], cols)
    transpose = box[0] == box[1] and below(state, 2) == 1
    for i in range(n):
        for j in range(n):
            source = rows[i] * n + cols[j]
            target = j * n + i if transpose else i * n + j
            clue = puzzle[source]
            new_puzzle[target] = digits[clue - 1] if clue else 0
            new_solution[target] = digits[solution[source] - 1]


@compiled
def add_clues(state: U64, extra: int, puzzle: U8, solution: U8) -> None:
    """Fill `extra` random blanks with their solution, but leave at least one blank."""
    blanks = np.flatnonzero(puzzle == 0)
    shuffle(state, blanks)
    for cell in blanks[: max(0, min(extra, blanks.size - 1))]:
        puzzle[cell] = solution[cell]


@compiled
def generate_puzzles(
    seed: int, domain: int, first: int, extra: int, test: bool, box: Any, units: Any, peers: Any, inputs: U8, labels: U8
) -> None:
    """Puzzles first.. of a seed, as tokens, from the test sixteenth or from the rest."""
    puzzle = np.empty(inputs.shape[1], np.uint8)
    solution = np.empty(inputs.shape[1], np.uint8)
    for i in range(inputs.shape[0]):
        state = start(domain, seed, first + i)
        tries = 0
        while True:
            # Symmetric copies are cheap, so they are used to reach the wanted part; now and then a new base, lest a
            # very symmetric small puzzle has no copy there.
            if tries % 256 == 0:
                minimal(state, units, peers, puzzle, solution)
            tries += 1
            symmetric_copy(state, box, puzzle, solution, inputs[i], labels[i])
            add_clues(state, below(state, extra + 1), inputs[i], labels[i])
            inputs[i] += np.uint8(1)
            labels[i] += np.uint8(1)
            if held_out(inputs[i]) == test:
                break


@compiled
def _fill(seed: int, rank: int, first: int, last: int, units: Any, peers: Any, puzzles: U8, solutions: U8) -> None:
    """Generate bases first..last-1 into their places of the ring."""
    for base in range(first, last):
        place = base % puzzles.shape[0]
        minimal(start(TRAIN_GRID + 16 * rank, seed, base), units, peers, puzzles[place], solutions[place])


@compiled
def _draw(
    seed: int, rank: int, position: int, lowest: int, extra: int, box: Any,
    puzzles: U8, solutions: U8, inputs: U8, labels: U8,
) -> None:  # fmt: skip
    """One sample as tokens, from the bases lowest..lowest+pool-1."""
    state = start(TRAIN + 16 * rank, seed, position)
    pool = puzzles.shape[0]
    while True:
        place = (lowest + below(state, pool)) % pool
        symmetric_copy(state, box, puzzles[place], solutions[place], inputs, labels)
        add_clues(state, below(state, extra + 1), inputs, labels)
        inputs += np.uint8(1)
        if not held_out(inputs):
            labels += np.uint8(1)
            return


@compiled
def stream_samples(
    seed: int, rank: int, position: int, filled: int, copies: int, extras: Any, box: Any, units: Any, peers: Any,
    puzzles: U8, solutions: U8, inputs: U8, labels: U8,
) -> int:  # fmt: skip
    """All samples of one call; new bases are generated when their time comes. Returns how many there are now."""
    for i in range(inputs.shape[0]):
        lowest = (position + i) // copies
        _fill(seed, rank, filled, lowest + puzzles.shape[0], units, peers, puzzles, solutions)
        filled = max(filled, lowest + puzzles.shape[0])
        _draw(seed, rank, position + i, lowest, extras[i], box, puzzles, solutions, inputs[i], labels[i])
    return filled


@compiled
def copy_rows(
    seed: int, positions: Any, box: Any, extra: int, inputs: U8, labels: U8, out: U8, out_labels: U8
) -> None:
    """Random symmetric copies of fixed rows (tokens in, tokens out)."""
    puzzle = np.empty(inputs.shape[1], np.uint8)
    answer = np.empty(inputs.shape[1], np.uint8)
    for i in range(positions.size):
        state = start(TRAIN, seed, positions[i])
        puzzle[:] = inputs[i] - np.uint8(1)
        answer[:] = labels[i] - np.uint8(1)
        while True:
            symmetric_copy(state, box, puzzle, answer, out[i], out_labels[i])
            add_clues(state, below(state, extra + 1), out[i], out_labels[i])
            out[i] += np.uint8(1)
            if not held_out(out[i]):
                out_labels[i] += np.uint8(1)
                break
