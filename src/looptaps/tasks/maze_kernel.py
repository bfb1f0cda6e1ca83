"""Compiled mazes: breadth-first distances, the canonical shortest path, generation, symmetric copies.

A maze is an n x n grid of tokens, flat: wall 1, free 2, start 3, goal 4, path 5. Inside, grids carry a border of walls
(side n + 2), so that no neighbour needs a bounds check. All stand in one file because numba's on-disk cache notices
changes in the file of the outermost function only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from looptaps.tasks.random64 import TRAIN, TRAIN_MAZE, U8, U64, below, compiled, held_out, mix64, start

WALL, FREE, START, GOAL, PATH = 1, 2, 3, 4, 5
_MAX_TRIES = 20_000_000  # grids drawn for one maze before giving up: minutes where the usual is milliseconds


@compiled
def distances(grid: U8, side: int, source: int, dist: Any, queue: Any) -> int:
    """Moves from `source` to every cell of a bordered grid (-1 where there is no way); returns the cells reached.

    `queue` lists the reached cells, nearest first.
    """
    dist[:] = -1
    dist[source] = 0
    queue[0] = source
    head = 0
    tail = 1
    while head < tail:
        at = queue[head]
        head += 1
        further = dist[at] + 1
        for cell in (at + side, at - 1, at + 1, at - side):
            if grid[cell] != WALL and dist[cell] < 0:
                dist[cell] = further
                queue[tail] = cell
                tail += 1
    return int(tail)


@compiled
def bordered(tokens: U8, grid: U8) -> Any:
    """Copy an n x n maze into a bordered grid, path cells as free; returns (start, goal), -1 where missing."""
    n = int(np.sqrt(tokens.size))
    side = n + 2
    grid[:] = WALL
    begin = -1
    end = -1
    for i in range(n):
        for j in range(n):
            token = tokens[i * n + j]
            cell = (i + 1) * side + j + 1
            grid[cell] = WALL if token == WALL else FREE
            if token == START:
                begin = cell
            elif token == GOAL:
                end = cell
    return begin, end


@compiled
def draw_path(grid: U8, side: int, begin: int, end: int, dist: Any, queue: Any, label: U8) -> int:
    """Mark the canonical shortest path in `label` (n x n); returns its moves, -1 where there is none.

    Mazes have many shortest paths. The released labels (all 1,500 that were looked at) take, at each step from the
    start, the first of down, left, right, up that comes nearer to the goal; so do we.
    """
    distances(grid, side, end, dist, queue)
    moves = dist[begin]
    at = begin
    n = side - 2
    for _ in range(moves - 1):
        for cell in (at + side, at - 1, at + 1, at - side):
            if grid[cell] != WALL and dist[cell] == dist[at] - 1:
                at = cell
                break
        label[(at // side - 1) * n + at % side - 1] = PATH
    return int(moves)


@compiled
def generate_maze(state: U64, n: int, least: int, tokens: U8) -> int:
    """One maze whose shortest path has at least `least` moves, without its path; returns its moves, -1 on giving up.

    Walls are independent cells with a probability uniform in 0.3..0.5, start and goal are random, and mazes with a
    short path are thrown away. Written out like that, one in 200,000 is kept. So start and goal are searched for: grids
    with no two cells that far apart are left early, the pair is then drawn by a few alternating steps, and a grid is
    kept with a probability proportional to how many starts and goals there are (their product, up to (cells / 18)^2),
    because a grid with many such pairs would have been met that much more often.
    """
    side = n + 2
    grid = np.full(side * side, WALL, np.uint8)
    dist = np.empty(side * side, np.int32)
    queue = np.empty(side * side, np.int32)
    bound = max(1, n * n // 18)
    for _ in range(_MAX_TRIES):
        threshold = 19661 + below(state, 13107)  # 0.3..0.5 of 2^16
        word = np.uint64(0)
        left = 0
        for i in range(n):
            for j in range(n):
                if left == 0:
                    state[0] += np.uint64(0x9E3779B97F4A7C15)
                    word = mix64(state[0])
                    left = 4
                wall = np.int64(word & np.uint64(65535)) < threshold
                grid[(i + 1) * side + j + 1] = WALL if wall else FREE
                word >>= np.uint64(16)
                left -= 1
        begin = (below(state, n) + 1) * side + below(state, n) + 1
        if grid[begin] == WALL:
            continue
        reached = distances(grid, side, begin, dist, queue)
        if 2 * dist[queue[reached - 1]] < least:
            continue  # no two cells here are further apart than twice that
        begin = queue[reached - 1]
        reached = distances(grid, side, begin, dist, queue)
        if dist[queue[reached - 1]] < least:
            continue
        goals = 0
        starts = 0
        end = begin
        for step in range(5):
            starts = goals
            goals = 0
            while goals < reached and dist[queue[reached - 1 - goals]] >= least:
                goals += 1
            end = queue[reached - 1 - below(state, goals)]
            if step < 4:
                begin, end = end, begin
                reached = distances(grid, side, begin, dist, queue)
        if below(state, bound * bound) >= goals * starts:
            continue
        for i in range(n):
            for j in range(n):
                tokens[i * n + j] = grid[(i + 1) * side + j + 1]
        tokens[(begin // side - 1) * n + begin % side - 1] = START
        tokens[(end // side - 1) * n + end % side - 1] = GOAL
        return int(dist[end])
    return -1


@compiled
def turned(tokens: U8, turn: int, swap: bool, out: U8) -> None:
    """Copy a maze in one of 8 orientations (bit 0 transposes, 1 and 2 flip), with start and goal exchanged or not."""
    n = int(np.sqrt(tokens.size))
    for i in range(n):
        for j in range(n):
            a = n - 1 - i if turn & 2 else i
            b = n - 1 - j if turn & 4 else j
            token = tokens[b * n + a] if turn & 1 else tokens[a * n + b]
            if swap and token >= START and token <= GOAL:
                token = np.uint8(START + GOAL) - token
            out[i * n + j] = token


@compiled
def shorten(state: U64, least: int, tokens: U8) -> None:
    """Move the goal nearer: to a random cell at a distance uniform between `least` and what it was."""
    n = int(np.sqrt(tokens.size))
    side = n + 2
    grid = np.empty(side * side, np.uint8)
    dist = np.empty(side * side, np.int32)
    queue = np.empty(side * side, np.int32)
    begin, end = bordered(tokens, grid)
    reached = distances(grid, side, begin, dist, queue)
    was = dist[end]
    if was <= least:
        return
    wanted = least + below(state, was - least + 1)
    # The queue is sorted by distance, so the cells at one distance are neighbours in it.
    first = 0
    while dist[queue[first]] < wanted:
        first += 1
    last = first
    while last < reached and dist[queue[last]] == wanted:
        last += 1
    goal = queue[first + below(state, last - first)]
    tokens[(end // side - 1) * n + end % side - 1] = FREE
    tokens[(goal // side - 1) * n + goal % side - 1] = GOAL


@compiled
def label_mazes(inputs: U8, labels: U8, moves: Any) -> None:
    """The canonical answer of every maze, and its moves (-1: no way, -2: not exactly one start and one goal)."""
    n = int(np.sqrt(inputs.shape[1]))
    side = n + 2
    grid = np.empty(side * side, np.uint8)
    dist = np.empty(side * side, np.int32)
    queue = np.empty(side * side, np.int32)
    for row in range(inputs.shape[0]):
        labels[row] = inputs[row]
        begin, end = bordered(inputs[row], grid)
        if (inputs[row] == START).sum() != 1 or (inputs[row] == GOAL).sum() != 1:
            moves[row] = -2
        else:
            moves[row] = draw_path(grid, side, begin, end, dist, queue, labels[row])


@compiled
def check_mazes(inputs: U8, answers: U8, right: Any) -> None:
    """Whether each answer is its maze with one connected shortest path marked, whichever that is."""
    n = int(np.sqrt(inputs.shape[1]))
    side = n + 2
    grid = np.empty(side * side, np.uint8)
    marked = np.empty(side * side, np.uint8)
    dist = np.empty(side * side, np.int32)
    queue = np.empty(side * side, np.int32)
    for row in range(inputs.shape[0]):
        right[row] = False
        steps = 0
        same = True
        begin, end = bordered(inputs[row], grid)
        marked[:] = WALL
        for cell in range(n * n):
            answer = answers[row, cell]
            place = (cell // n + 1) * side + cell % n + 1
            if answer == PATH and inputs[row, cell] == FREE:
                steps += 1
                marked[place] = FREE
            elif answer != inputs[row, cell]:
                same = False
        if not same or begin < 0 or end < 0:
            continue
        marked[begin] = FREE
        marked[end] = FREE
        distances(grid, side, begin, dist, queue)
        shortest = dist[end]
        distances(marked, side, begin, dist, queue)
        # As many marked cells as the shortest path has, and a way through them: then they are that way and no more.
        right[row] = shortest > 0 and steps == shortest - 1 and dist[end] == shortest


@compiled
def generate_rows(seed: int, domain: int, first: int, n: int, least: int, test: bool, inputs: U8) -> bool:
    """Mazes first.. of a seed, from the test sixteenth or from the rest. False on giving up."""
    maze = np.empty(inputs.shape[1], np.uint8)
    for i in range(inputs.shape[0]):
        state = start(domain, seed, first + i)
        tries = 0
        while True:
            if tries % 16 == 0 and generate_maze(state, n, least, maze) < 0:
                return False
            tries += 1
            turned(maze, below(state, 8), below(state, 2) == 1, inputs[i])
            if held_out(inputs[i]) == test:
                break
    return True


@compiled
def stream_mazes(
    seed: int, rank: int, position: int, filled: int, copies: int, n: int, least: int, shortest: Any,
    mazes: U8, inputs: U8,
) -> int:  # fmt: skip
    """All samples of one call; new bases are generated when their time comes. Returns how many there are, or -1."""
    pool = mazes.shape[0]
    for i in range(inputs.shape[0]):
        lowest = (position + i) // copies
        for base in range(filled, lowest + pool):
            if generate_maze(start(TRAIN_MAZE + 16 * rank, seed, base), n, least, mazes[base % pool]) < 0:
                return -1
        filled = max(filled, lowest + pool)
        state = start(TRAIN + 16 * rank, seed, position + i)
        while True:
            place = (lowest + below(state, pool)) % pool
            turned(mazes[place], below(state, 8), below(state, 2) == 1, inputs[i])
            shorten(state, shortest[i], inputs[i])
            if not held_out(inputs[i]):
                break
    return filled


@compiled
def copy_mazes(seed: int, positions: Any, inputs: U8, labels: U8, out: U8, out_labels: U8) -> None:
    """Fixed rows in random orientations, answers turned along."""
    for i in range(positions.size):
        state = start(TRAIN, seed, positions[i])
        tries = 0
        while True:
            turn = below(state, 8)
            turned(inputs[i], turn, False, out[i])
            if not held_out(out[i]):
                turned(labels[i], turn, False, out_labels[i])
                break
            # A symmetric maze may have all its copies in the part kept for tests; then it is used as it is given.
            tries += 1
            if tries == 256:
                out[i] = inputs[i]
                out_labels[i] = labels[i]
                break
