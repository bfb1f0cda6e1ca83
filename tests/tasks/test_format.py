"""Promises about the released npy format, Sudoku-Extreme's csv and the builders."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from looptaps.errors import InvalidFile, InvalidValue
from looptaps.tasks import MazeTask, SudokuTask, overlap
from looptaps.tasks.build import build_maze, build_sudoku
from looptaps.tasks.format import ARRAYS, Dataset, read_dataset, write_dataset
from looptaps.tasks.random64 import held_out
from looptaps.tasks.sudoku import generate
from looptaps.tasks.sudoku_csv import read_csv, write_csv

DATA = Path(__file__).parent.parent / "data"
MAZES = DATA / "maze_hard"
EXTREME = DATA / "sudoku_extreme"


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_released_files_are_written_again_byte_for_byte(tmp_path: Path) -> None:
    write_dataset(tmp_path / "copy", {split: read_dataset(MAZES / split) for split in ("train", "test")})
    assert files(tmp_path / "copy") == files(MAZES)


def test_hrm_files_lack_total_puzzles_and_are_written_again_so(tmp_path: Path) -> None:
    shutil.copytree(MAZES, tmp_path / "hrm")
    for split in ("train", "test"):
        meta = tmp_path / "hrm" / split / "dataset.json"
        meta.write_text(meta.read_text().replace(', "total_puzzles": 8', ""))
    dataset = read_dataset(tmp_path / "hrm" / "train")
    assert dataset.meta.variant == "hrm"
    write_dataset(tmp_path / "copy", {split: read_dataset(tmp_path / "hrm" / split) for split in ("train", "test")})
    assert files(tmp_path / "copy") == files(tmp_path / "hrm")


def test_arrays_stay_on_disk_and_keep_their_dtype() -> None:
    dataset = read_dataset(MAZES / "test")
    assert isinstance(dataset.inputs, np.memmap)
    assert dataset.inputs.dtype == np.uint8
    assert dataset.puzzle_indices.dtype == np.int32


def test_a_written_dataset_has_the_released_layout(tmp_path: Path) -> None:
    build_sudoku(tmp_path / "six", n=5, n_test=4, box=(2, 3), augment=3)
    written = files(tmp_path / "six")
    assert sorted(written) == sorted(
        ["identifiers.json", *(f"{s}/{f}" for s in ("train", "test")
                               for f in ("dataset.json", *(f"all__{a}.npy" for a in ARRAYS)))]
    )  # fmt: skip
    assert written["train/dataset.json"].decode() == (
        '{"pad_id": 0, "ignore_label_id": 0, "blank_identifier_id": 0, "vocab_size": 8, "seq_len": 36, '
        '"num_puzzle_identifiers": 1, "total_groups": 5, "mean_puzzle_examples": 1.0, "total_puzzles": 5, '
        '"sets": ["all"]}'
    )
    train = read_dataset(tmp_path / "six" / "train")
    assert train.inputs.shape == (20, 36)
    assert train.group_indices.tolist() == [0, 4, 8, 12, 16, 20]
    assert train.puzzle_indices.tolist() == list(range(21))


@pytest.mark.parametrize("variant", ["trm", "hrm"])
def test_builders_give_the_same_bytes_for_the_same_seed(tmp_path: Path, variant: str) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        build_sudoku(tmp_path / f"s{name}", n=6, n_test=3, seed=seed, box=(2, 3), augment=2, variant=variant)
        build_maze(tmp_path / f"m{name}", n=3, n_test=2, seed=seed, size=8, augment=True, variant=variant)
    for task in "sm":
        assert files(tmp_path / f"{task}a") == files(tmp_path / f"{task}b")
        assert files(tmp_path / f"{task}a") != files(tmp_path / f"{task}c")
        has_key = "total_puzzles" in json.loads((tmp_path / f"{task}a" / "test" / "dataset.json").read_text())
        assert has_key == (variant == "trm")


def test_built_datasets_are_valid_and_their_splits_disjoint(tmp_path: Path) -> None:
    build_sudoku(tmp_path / "s", n=6, n_test=6, box=(2, 3), augment=4)
    build_maze(tmp_path / "m", n=4, n_test=3, size=8, augment=True)
    for task, folder, rows in ((SudokuTask, "s", 30), (MazeTask, "m", 32)):
        train, test = (task.from_dataset(tmp_path / folder / split) for split in ("train", "test"))
        assert len(train) == rows
        assert len(overlap(train, test)) == 0
        assert not any(held_out(np.array(row)) for row in train.inputs)


def test_augmented_training_rows_are_int64_as_in_the_released_files_and_all_else_is_uint8(tmp_path: Path) -> None:
    build_sudoku(tmp_path / "plain", n=3, n_test=2, box=(2, 2))
    build_sudoku(tmp_path / "augmented", n=3, n_test=2, box=(2, 2), augment=1)
    build_maze(tmp_path / "maze", n=2, n_test=2, size=8, augment=True)
    found = {(folder, split): {str(getattr(read_dataset(tmp_path / folder / split), name).dtype)
                               for name in ("inputs", "labels")}
             for folder in ("plain", "augmented", "maze") for split in ("train", "test")}
    assert found.pop(("augmented", "train")) == {"int64"}
    assert set(map(tuple, found.values())) == {("uint8",)}


@pytest.mark.parametrize("box", [(3, 2), (4, 2), (2, 3)])
def test_a_built_dataset_opens_again_whatever_its_box(tmp_path: Path, box: tuple[int, int]) -> None:
    folder = build_sudoku(tmp_path / "d", n=6, n_test=6, box=box)
    for split in ("train", "test"):
        opened = SudokuTask.open(str(folder / split))
        expected, _ = generate(6, 0, box=box, test=split == "test")
        assert (np.asarray(opened.inputs) == expected).all()
        given = SudokuTask.from_dataset(folder / split, box=box)
        assert opened.difficulty["rating"].tolist() == given.difficulty["rating"].tolist()
    if box != (2, 3):
        with pytest.raises(InvalidValue, match="row 0 has no solution"):  # a box that is given is the one that counts
            SudokuTask.from_dataset(folder / "test", box=box[::-1])


def test_a_wrong_answer_is_wrong_in_either_box(tmp_path: Path) -> None:
    folder = build_sudoku(tmp_path / "d", n=3, n_test=3, box=(3, 2)) / "test"
    labels = np.load(folder / "all__labels.npy")
    np.save(folder / "all__labels.npy", labels[[1, 0, 2]])
    with pytest.raises(InvalidValue, match="sudoku: row 0 has"):
        SudokuTask.from_dataset(folder)


def test_sudoku_extreme_rows_become_a_dataset(tmp_path: Path) -> None:
    train, test = EXTREME / "train_1k_first_24.csv", EXTREME / "test_10k_first_24.csv"
    build_sudoku(tmp_path / "x", n=0, n_test=10, train_csv=train, test_csv=test)
    rows = read_csv(train)
    built = read_dataset(tmp_path / "x" / "train")
    assert (built.inputs == rows.inputs).all()
    assert (built.labels == rows.labels).all()
    assert len(read_dataset(tmp_path / "x" / "test").inputs) == 10
    with pytest.raises(InvalidValue, match="are in the test split too"):
        build_sudoku(tmp_path / "y", n=0, n_test=0, train_csv=train, test_csv=train)
    assert not (tmp_path / "y").exists()


def test_every_csv_row_of_the_slices_has_one_solution_its_answer() -> None:
    for path in sorted(EXTREME.glob("*.csv")):
        task = SudokuTask.from_csv(path, verified=True)
        assert len(task) in (8, 24)
    with_rating = read_csv(EXTREME / "train_1k_first_24.csv")
    assert with_rating.rating is not None
    assert with_rating.rating[0] == 22
    without = read_csv(EXTREME / "train_50k_first_8.csv")
    assert without.rating is None
    assert without.sources is None
    assert len(read_csv(EXTREME / "train_1k_first_24.csv", limit=3).inputs) == 3


def test_csv_is_written_as_it_is_read(tmp_path: Path) -> None:
    task = SudokuTask.generated(5, 0)
    write_csv(tmp_path / "x.csv", task.inputs, task.labels, task.difficulty["rating"], "here")
    rows = read_csv(tmp_path / "x.csv")
    assert (rows.inputs == task.inputs).all()
    assert rows.sources == ["here"] * 5
    assert SudokuTask.from_csv(tmp_path / "x.csv").fingerprint() == task.fingerprint()


def spoil_csv(change: Callable[[str], str], path: Path) -> Path:
    path.write_text(change((EXTREME / "train_1k_first_24.csv").read_text()))
    return path


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.replace("question", "puzzle", 1), "columns question and answer"),
        (lambda t: t[:-20], "line 25"),
        (lambda t: t.replace(".47.5", ".47x5", 1), "line 2: character 4 of the question is 'x'"),
        (lambda t: t.replace(".47.5", ".47é5", 1), "character 4 of the question is 'é'"),
        (lambda t: t.replace(".47.5", "47.5", 1), "line 2: the question must have 81 characters, but has 80"),
        (lambda t: t.replace(".47.5", ".48.5", 1), "line 2: the answer changes a clue"),
        (lambda t: t.replace(",22\n", ",hard\n", 1), "rating must be a whole number"),
        (lambda t: t.splitlines()[0], "has no rows"),
        (lambda t: "", "columns question and answer"),
    ],
)
def test_a_damaged_csv_is_one_sentence_with_its_line(tmp_path: Path, change: Callable[[str], str], words: str) -> None:
    with pytest.raises(InvalidFile, match=words):
        read_csv(spoil_csv(change, tmp_path / "bad.csv"))


def test_a_csv_row_with_several_solutions_is_found_on_demand(tmp_path: Path) -> None:
    path = spoil_csv(lambda t: t.replace("6....3.1...3.8", ".......1...3.8", 1), tmp_path / "b.csv")
    assert len(read_csv(path).inputs) == 24
    with pytest.raises(InvalidValue, match="row 1 has several solutions"):
        SudokuTask.from_csv(path, verified=True)


def meta(change: str, to: str) -> Callable[[Path], object]:
    return lambda d: (d / "dataset.json").write_text((d / "dataset.json").read_text().replace(change, to))


def array(name: str, make: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], object]:
    return lambda d: np.save(d / f"all__{name}.npy", make(np.load(d / f"all__{name}.npy")))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (array("inputs", lambda a: np.where(a == 4, 6, a)), "must be tokens in 0..5, but row 0 has 6"),
        (meta('"vocab_size": 6', '"vocab_size": 5'), "must be tokens in 0..4"),
        (array("labels", lambda a: a[:5]), "labels should be of shape"),
        (meta('"seq_len": 900', '"seq_len": 81'), "inputs should be of shape"),
        (meta('"total_groups": 8', '"total_groups": 9'), "group_indices should rise"),
        (array("puzzle_indices", lambda a: a[::-1]), "puzzle_indices should rise"),
        (array("puzzle_identifiers", lambda a: a + 1), "puzzle_identifiers should be in"),
        (array("inputs", lambda a: a.astype(np.float32)), "must hold integers"),
        (array("inputs", lambda a: a.astype(object)), "not a readable npy file"),
        (lambda d: (d / "all__labels.npy").unlink(), "is missing"),
        (lambda d: (d / "all__labels.npy").write_bytes((d / "all__labels.npy").read_bytes()[:500]), "cut off"),
        (lambda d: (d / "all__labels.npy").write_bytes(b""), "not a readable npy file"),
        (lambda d: (d / "dataset.json").write_text('{"pad_id": 0'), "not valid JSON"),
        (lambda d: (d / "dataset.json").write_text("[]"), "must have the keys"),
        (meta('"seq_len": 900, ', ""), "must have the keys"),
        (meta('"all"', '"../all"'), "sets is"),
        (meta('"vocab_size": 6', '"vocab_size": "6"'), "vocab_size is '6'"),
        (lambda d: (d / "dataset.json").unlink(), "has no dataset.json"),
    ],
)
def test_a_damaged_dataset_is_one_sentence(tmp_path: Path, spoil: Callable[[Path], object], words: str) -> None:
    shutil.copytree(MAZES / "train", tmp_path / "d")
    spoil(tmp_path / "d")
    with pytest.raises(InvalidFile, match=words) as caught:
        read_dataset(tmp_path / "d")
    assert "\n" not in str(caught.value)


def test_the_folder_above_the_splits_names_them() -> None:
    with pytest.raises(InvalidFile, match="Give one of its splits: test, train"):
        read_dataset(MAZES)


def test_another_tasks_folder_is_refused(tmp_path: Path) -> None:
    build_sudoku(tmp_path / "s", n=2, n_test=2, box=(2, 2))
    build_maze(tmp_path / "m", n=1, n_test=1, size=9, min_path=10)
    with pytest.raises(InvalidFile, match="mazes have 6 tokens"):
        MazeTask.from_dataset(build_sudoku(tmp_path / "t", n=2, n_test=2, box=(2, 3)) / "test")
    with pytest.raises(InvalidFile, match="another task"):
        SudokuTask.from_dataset(tmp_path / "m" / "test")


def test_nothing_is_written_on_error(tmp_path: Path) -> None:
    good = read_dataset(MAZES / "test")
    bad = Dataset.of(np.ones((2, 4), np.uint8), np.ones((2, 4), np.uint8), vocab_size=2)
    bad.inputs[0, 0] = 7
    with pytest.raises(InvalidValue, match="row 0 has 7"):
        write_dataset(tmp_path / "x", {"train": good, "test": bad})
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_is_interrupted_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fail_later(*args: object) -> None:
        calls.append(args)
        if len(calls) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(np, "save", fail_later)
    with pytest.raises(KeyboardInterrupt):
        write_dataset(tmp_path / "x", {"test": read_dataset(MAZES / "test")})
    assert list(tmp_path.iterdir()) == []


def test_an_existing_dataset_is_never_overwritten(tmp_path: Path) -> None:
    build_sudoku(tmp_path / "s", n=2, n_test=2, box=(2, 2))
    before = files(tmp_path / "s")
    with pytest.raises(InvalidValue, match="exists already"):
        build_sudoku(tmp_path / "s", n=3, n_test=2, box=(2, 2))
    assert files(tmp_path / "s") == before


def test_the_command_line_builds_the_same_bytes(tmp_path: Path) -> None:
    from looptaps.cli.data import app

    runner = CliRunner()
    options = ["--n", "4", "--n-test", "2", "--seed", "3"]
    result = runner.invoke(app, ["build", "sudoku", str(tmp_path / "a"), *options, "--box", "2x3", "--variant", "hrm"])
    assert result.exit_code == 0, result.output
    assert "4 puzzles, 4 rows of 36 cells" in result.output.replace("\n", "")
    build_sudoku(tmp_path / "b", n=4, n_test=2, seed=3, box=(2, 3), variant="hrm")
    assert files(tmp_path / "a") == files(tmp_path / "b")
    result = runner.invoke(app, ["build", "maze", str(tmp_path / "m"), *options, "--size", "8"])
    assert result.exit_code == 0, result.output
    result = runner.invoke(app, ["build", "sudoku", str(tmp_path / "e"), "--box", "nine"])
    assert isinstance(result.exception, InvalidValue)
    result = runner.invoke(app, ["demo", str(tmp_path / "demo.csv"), "--n", "3"])
    assert result.exit_code == 0, result.output
    assert (SudokuTask.bundled().inputs[:3] == read_csv(tmp_path / "demo.csv").inputs).all()
