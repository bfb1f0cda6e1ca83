"""Promises about mazes: the released labels, the generator, answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from looptaps.errors import InvalidFile, InvalidShape, InvalidValue
from looptaps.tasks import MazeTask, open_task, overlap
from looptaps.tasks.maze import generate_mazes, maze_text, parse_maze, solve_maze, verify_mazes
from looptaps.tasks.maze_kernel import label_mazes
from looptaps.tasks.random64 import held_out

MAZES = Path(__file__).parent.parent / "data" / "maze_hard"


def plain_distance(maze: np.ndarray, source: int) -> dict[int, int]:
    """Breadth-first search in plain Python."""
    n = round(len(maze) ** 0.5)
    found, queue = {source: 0}, [source]
    for at in queue:
        i, j = divmod(at, n)
        for a, b in ((i + 1, j), (i, j - 1), (i, j + 1), (i - 1, j)):
            if 0 <= a < n and 0 <= b < n and maze[a * n + b] != 1 and a * n + b not in found:
                found[a * n + b] = found[at] + 1
                queue.append(a * n + b)
    return found


@pytest.mark.parametrize("split", ["train", "test"])
def test_our_rule_draws_exactly_the_released_labels(split: str) -> None:
    task = MazeTask.from_dataset(MAZES / split)
    labels = np.empty_like(task.labels)
    label_mazes(np.array(task.inputs), labels, np.zeros(len(task), np.int64))
    assert (labels == task.labels).all()
    assert (task.difficulty["path_length"] >= 109).all()


@pytest.mark.parametrize("size", [6, 10, 30])
def test_generated_paths_are_shortest_and_long_enough(size: int) -> None:
    inputs, labels = generate_mazes(8, 2, size=size)
    moves = verify_mazes(inputs, labels)
    for maze, count in zip(inputs, moves):
        distance = plain_distance(maze, int(np.argmax(maze == 3)))
        assert distance[int(np.argmax(maze == 4))] == count
    assert moves.min() >= {6: 18, 10: 31, 30: 109}[size]


def test_generated_mazes_look_like_maze_hard() -> None:
    inputs, labels = generate_mazes(150, 0)
    moves = verify_mazes(inputs, labels)
    assert abs((inputs == 1).mean() - 0.371) < 0.012  # 1,500 released mazes: 0.371, standard deviation 0.027
    assert abs(moves.mean() - 113.8) < 2.0  # released: 113.8, from 109 up
    assert abs((inputs[:, :30] != 1).mean() - (inputs[:, 450:480] != 1).mean()) < 0.06  # no frame of walls


def test_generated_mazes_are_the_same_everywhere_and_disjoint_from_training() -> None:
    task = MazeTask.generated(12, 1, size=8)
    assert task.fingerprint() == open_task(task.origin).fingerprint()
    assert all(held_out(row) for row in task.inputs)
    train, _ = generate_mazes(12, 1, size=8)
    assert not any(held_out(row) for row in train)
    assert len(overlap(task, train)) == 0
    assert (MazeTask.generated(5, 1, size=8).inputs == task.inputs[:5]).all()


def test_any_shortest_path_is_valid_but_only_the_canonical_one_exact() -> None:
    maze = parse_maze("S...\n....\n....\n...G")
    task = MazeTask.from_tokens(maze[None], solve_maze(maze)[0][None], origin="here")
    ids = task.ids
    assert maze_text(task.labels[0]).split("\n")[3] == "oooG"  # down first
    other = torch.from_numpy(parse_maze("Sooo\n...o\n...o\n...G").astype(np.int64))[None]
    assert task.valid(ids, other).tolist() == [True]
    assert not torch.equal(other, task.batch(ids)["labels"])
    for wrong in (
        "Sooo\n...o\n....\n...G",  # a gap
        "Sooo\n..oo\n...o\n...G",  # a cell too many
        "Sooo\n...o\n...o\n..oG",
        "Soo.\n..oo\n#..o\n...G",  # a wall that is not there
        "S...\n....\n....\n...G",
        "Goo.\n..oo\n...o\n...S",
    ):
        answer = torch.from_numpy(parse_maze(wrong).astype(np.int64))[None]
        assert task.valid(ids, answer).tolist() == [False]


def test_a_path_through_a_wall_is_not_valid() -> None:
    maze = parse_maze("S#G.\n....\n....\n....")
    task = MazeTask.from_tokens(maze[None], solve_maze(maze)[0][None], origin="here")
    through = torch.from_numpy(parse_maze("SoG.\n....\n....\n....").astype(np.int64))[None]
    assert task.difficulty["path_length"].tolist() == [4]
    assert not task.valid(task.ids, through).any()
    assert task.valid(task.ids, task.batch(task.ids)["labels"]).all()


def test_a_drawn_maze_reads_back() -> None:
    _, labels = generate_mazes(3, 0, size=9)
    assert all((parse_maze(maze_text(label)) == label).all() for label in labels)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("S..\n...\n..G", "here are 3 lines"),
        ("S...\n...\n....\n...G", "line 2 of 4 has 3 characters"),
        ("S..x\n....\n....\n...G", "but has 'x'"),
    ],
)
def test_a_badly_drawn_maze_is_one_sentence(text: str, words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        parse_maze(text)


def test_mazes_without_answer_are_one_sentence() -> None:
    with pytest.raises(InvalidValue, match="one S and one G"):
        solve_maze(parse_maze("S...\n....\n....\n...S"))
    with pytest.raises(InvalidValue, match="no way from S to G"):
        solve_maze(parse_maze("S#..\n##..\n....\n...G"))
    maze = parse_maze("S...\n....\n....\n...G")[None]
    with pytest.raises(InvalidValue, match="row 0 has an answer that is not a shortest path"):
        verify_mazes(maze, maze)
    with pytest.raises(InvalidShape, match="here are 15"):
        verify_mazes(maze[:, :15], maze[:, :15])


@pytest.mark.parametrize(
    ("source", "words"),
    [("maze:generated:size=3", "size must be an integer >= 4"), ("maze:generated:size=200", "size must be 4..100"),
     ("maze:generated:size=8:min_path=40", "at most 32"), ("maze:nowhere", "names no test set")],
)  # fmt: skip
def test_impossible_maze_sets_are_one_sentence(source: str, words: str) -> None:
    with pytest.raises((InvalidValue, InvalidFile), match=words):
        open_task(source)
