"""A run that is killed goes on as if nothing had happened."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from looptaps.errors import InvalidFile, InvalidUse
from looptaps.train import Trainer, parse_recipe
from looptaps.train import checkpointing as files
from looptaps.train.recipe import Recipe


def lines(path: Path) -> list[dict]:
    return list(files.Lines(path).read())


def losses(folder: Path) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in lines(folder / "log.jsonl")}


def command(recipe: Path, out: Path, *more: str) -> list[str]:
    run = [sys.executable, "-m", "looptaps", "train", "--recipe", str(recipe), "--out", str(out)]
    return [*run, "--threads", "1", *more]


def test_after_kill_9_the_losses_equal_those_of_an_uninterrupted_run(tmp_path: Path, tiny_text: str) -> None:
    recipe = tmp_path / "recipe.toml"
    # A checkpoint every 0.3 s, so that the kill falls between checkpoints and, at times, into the writing of one.
    text = tiny_text.replace("steps = 20", "steps = 200").replace("every = 1000", "every = 50")
    recipe.write_text("checkpoint_minutes = 0.005\n" + text)
    subprocess.run(command(recipe, tmp_path / "whole"), check=True, capture_output=True)

    killed = tmp_path / "killed"
    with subprocess.Popen(command(recipe, killed), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while len(losses(killed)) < 60 or not (killed / "last.pt").exists():
            assert process.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
    stopped = files.load(killed / "last.pt")["step"]
    assert 0 < stopped <= 150

    subprocess.run(command(recipe, killed, "--resume"), check=True, capture_output=True)
    expected, got = losses(tmp_path / "whole"), losses(killed)
    following = range(stopped + 1, stopped + 51)
    assert [got[step] for step in following] == [expected[step] for step in following]
    assert got == expected
    whole = tmp_path / "whole"
    exact = [[(line["step"], line["exact"]) for line in lines(run / "curve.jsonl")] for run in (whole, killed)]
    assert exact[0] == exact[1]
    weights = [(run / "model" / "model.safetensors").read_bytes() for run in (whole, killed)]
    assert weights[0] == weights[1]


def tiny(text: str, **changes) -> Recipe:
    return parse_recipe(text).model_copy(update=changes)


@pytest.mark.parametrize("case", ["unit", "accumulate", "control", "rows", "looped"])
def test_every_kind_of_run_goes_on_exactly(tmp_path: Path, tiny_text: str, case: str) -> None:
    text, data = tiny_text, []
    if case == "accumulate":
        text = text.replace("batch_size = 16", "batch_size = 8\naccumulate = 2")
    if case == "control":
        text += "[control]\ncontroller = 'taps-adam@trm'\n[loss]\npenalty_mu = 0.01\npenalty_kappa = 0.5\n"
    if case == "rows":
        rows = Path(__file__).parents[1] / "data" / "sudoku_extreme"
        data = sorted(rows.glob("*.csv"))[:1]
        text = text.replace("box = [2, 2], ", "").replace("[data]", "[data]\nrows_held_out = 3")
    if case == "looped":
        text = text.replace('"trm"', '"looped"').replace(", H_cycles = 2", "")
    recipe = parse_recipe(text)
    whole = Trainer(recipe, tmp_path / "a", data=data)
    expected = [whole.train_step() for _ in range(14)]
    first = Trainer(recipe, tmp_path / "b", data=data)
    got = [first.train_step() for _ in range(7)]
    first.save()
    again = Trainer(recipe, tmp_path / "b", data=data, resume=True)
    got += [again.train_step() for _ in range(7)]
    assert got == expected
    assert again.meter.sums == whole.meter.sums


def test_a_run_can_start_from_the_checkpoint_before_another_ones_decay(tmp_path: Path, tiny_text: str) -> None:
    text = tiny_text.replace("warmup = 5", "warmup = 5\nkind = 'constant'\ndecay_from = 0.5\nfinal = 0.0")
    Trainer(parse_recipe(text), tmp_path / "first").run()
    assert losses(tmp_path / "first")[20] is not None
    rates = [line["lr"] for line in lines(tmp_path / "first" / "log.jsonl")]
    assert rates[8] == rates[4] == 3e-3
    assert rates[-1] == 0
    longer = parse_recipe(text.replace("steps = 20", "steps = 40"))
    trainer = Trainer(longer, tmp_path / "second", start=tmp_path / "first" / "before-decay.pt")
    assert trainer.step == 10
    trainer.run()
    both = losses(tmp_path / "second")
    assert sorted(both) == list(range(1, 41))
    assert [both[k] for k in range(1, 12)] == [losses(tmp_path / "first")[k] for k in range(1, 12)]
    stages = json.loads((tmp_path / "second" / "run.json").read_text())["stages"]
    assert [(stage["from_step"], stage["recipe"]["schedule"]["steps"]) for stage in stages] == [(0, 20), (10, 40)]


def test_a_run_that_ended_before_its_first_checkpoint_leaves_nothing_to_the_next(
    tmp_path: Path, tiny_text: str
) -> None:
    def stop(step: int, _loss: float) -> None:
        if step == 7:
            raise KeyboardInterrupt

    text = tiny_text.replace("every = 1000", "every = 5")
    with pytest.raises(KeyboardInterrupt):
        Trainer(parse_recipe(text), tmp_path / "run").run(stop)
    assert [line["step"] for line in lines(tmp_path / "run" / "log.jsonl")] == [1, 2, 3, 4, 5, 6]
    assert [line["step"] for line in lines(tmp_path / "run" / "curve.jsonl")] == [5]
    other = parse_recipe("seed = 1\n" + text.replace("steps = 20", "steps = 5"))
    for name in ("run", "clean"):
        Trainer(other, tmp_path / name).run()
    assert list(losses(tmp_path / "run").items()) == list(losses(tmp_path / "clean").items())
    curves = [[(line["step"], line["exact"]) for line in lines(tmp_path / run / "curve.jsonl")]
              for run in ("run", "clean")]
    assert curves[0] == curves[1]
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert re.findall(r"^\| (\d+) \|", card, re.MULTILINE) == ["5"]


def test_what_cannot_be_resumed_is_said(tmp_path: Path, tiny_text: str) -> None:
    recipe = parse_recipe(tiny_text)
    run = tmp_path / "run"
    with pytest.raises(InvalidFile, match="no checkpoint"):
        Trainer(recipe, run, resume=True)
    Trainer(recipe, run).save()
    with pytest.raises(InvalidUse, match="already holds a run"):
        Trainer(recipe, run)
    for change, word in (({"batch_size": 8}, "batch_size"), ({"seed": 1}, "seed")):
        with pytest.raises(InvalidUse, match=f"recipe's {word}"):
            Trainer(recipe.model_copy(update=change), run, resume=True)
    whole = (run / "last.pt").read_bytes()
    (run / "last.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidFile, match="damaged"):
        Trainer(recipe, run, resume=True)
    torch.save({"weights": torch.ones(1)}, run / "last.pt")
    with pytest.raises(InvalidFile, match="no checkpoint of a training run"):
        Trainer(recipe, run, resume=True)


@pytest.mark.filterwarnings("error")
def test_a_checkpoint_with_code_in_it_is_refused_and_not_run(tmp_path: Path, tiny_text: str) -> None:
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    for write in (torch.save, lambda state, path: path.write_bytes(pickle.dumps(state))):
        write({"format": 1, "trap": Trap()}, tmp_path / "last.pt")
        with pytest.raises(InvalidFile, match="holds something other than tensors and plain values"):
            Trainer(parse_recipe(tiny_text), tmp_path, resume=True)
        assert not (tmp_path / "ran").exists()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.write_atomically(path, lambda file: file.write(b"old"))

    def fail(file) -> None:
        file.write(b"half of the n")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        files.write_atomically(path, fail)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_line_that_a_kill_cut_short_is_left_out(tmp_path: Path) -> None:
    log = files.Lines(tmp_path / "log.jsonl")
    for step in (1, 2, 3):
        log.append({"step": step})
    with open(log.path, "a") as file:
        file.write('{"step": 4, "lo')
    assert [line["step"] for line in log.read()] == [1, 2, 3]
    log.cut(2)
    log.append({"step": 3})
    assert [line["step"] for line in log.read()] == [1, 2, 3]
