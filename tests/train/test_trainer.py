"""What a step does: slots, halting, bad samples, averaged weights, control."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import looptaps as lt
from looptaps.errors import InvalidValue
from looptaps.tasks import SudokuStream, SudokuStreamConfig
from looptaps.train import Trainer, parse_recipe
from looptaps.train import checkpointing as files
from looptaps.train.carry import StepOutput, empty_slots, refill, settle
from looptaps.train.exporting import export
from looptaps.train.recipe import HaltingRecipe
from looptaps.train.validation import averaged_weights


def outcome(q: list[float] | None, finite: list[bool], stopped: list[bool] | None = None) -> StepOutput:
    n, zero = len(finite), torch.zeros(())
    return StepOutput(zero, None, None, torch.zeros(n), torch.zeros(n, dtype=torch.bool),
                      None if q is None else torch.tensor(q), torch.tensor(finite),
                      None if stopped is None else torch.tensor(stopped), zero)


def test_only_slots_that_halted_get_a_fresh_sample() -> None:
    config = SudokuStreamConfig(box=(2, 2), pool=16)
    stream, reference = SudokuStream(config), SudokuStream(config)
    generator = torch.Generator().manual_seed(0)
    halting = HaltingRecipe(max_loops=4, exploration=0.0)
    slots = refill(empty_slots(stream, 3, torch.device("cpu")), stream, halting, generator)
    first = reference.take(3)["inputs"]
    assert torch.equal(slots.batch["inputs"], first)
    slots = settle(slots, outcome([-1.0, 1.0, -1.0], [True, True, False]), halting)
    assert slots.halted.tolist() == [False, True, True]
    slots = refill(slots, stream, halting, generator)
    fresh = reference.take(2)["inputs"]
    assert torch.equal(slots.batch["inputs"], torch.stack([first[0], fresh[0], fresh[1]]))
    assert slots.loops.tolist() == [1, 0, 0]
    for _ in range(3):
        slots = settle(slots, outcome([-1.0] * 3, [True] * 3), halting)
    assert slots.halted.tolist() == [True, False, False]  # four loops are the most


def test_exploration_makes_a_sample_think_longer() -> None:
    stream = SudokuStream(SudokuStreamConfig(box=(2, 2), pool=16))
    halting = HaltingRecipe(max_loops=8, exploration=0.25)
    slots = refill(empty_slots(stream, 4000, torch.device("cpu")), stream, halting, torch.Generator().manual_seed(1))
    share = (slots.least > 1).float().mean().item()
    assert share == pytest.approx(0.25, abs=0.03)
    assert sorted(slots.least.unique().tolist()) == [1, 2, 3, 4, 5, 6, 7, 8]
    after = settle(slots, outcome([1.0] * 4000, [True] * 4000), halting)
    assert torch.equal(after.halted, slots.least == 1)


def test_a_model_with_its_own_stopping_rule_halts_by_it() -> None:
    stream = SudokuStream(SudokuStreamConfig(box=(2, 2), pool=16))
    halting = HaltingRecipe(max_loops=8, exploration=0.0)
    slots = refill(empty_slots(stream, 2, torch.device("cpu")), stream, halting, torch.Generator())
    assert settle(slots, outcome([1.0, -1.0], [True] * 2, [False, True]), halting).halted.tolist() == [False, True]


def test_a_sample_with_nan_does_not_poison_the_run(tmp_path: Path, tiny_text: str) -> None:
    trainer = Trainer(parse_recipe(tiny_text), tmp_path / "run")
    for _ in range(3):
        trainer.train_step()
    before = [p.detach().clone() for p in trainer.model.parameters()]
    slots = trainer.slots[0]._replace(halted=torch.zeros(16, dtype=torch.bool))
    slots.carry.z_L[5] = torch.nan
    trainer.slots[0] = slots
    trainer.train_step()
    assert trainer.skipped == 1
    assert trainer.slots[0].halted[5]
    assert all(torch.equal(p, old) for p, old in zip(trainer.model.parameters(), before))
    losses = [trainer.train_step() for _ in range(5)]
    assert trainer.skipped == 1
    assert all(loss == loss and loss < 10 for loss in losses)
    assert all(p.isfinite().all() for p in [*trainer.model.parameters(), *trainer.ema.parameters()])


@pytest.mark.filterwarnings("error")
def test_a_run_that_diverges_stops_with_a_sentence(tmp_path: Path, tiny_text: str) -> None:
    trainer = Trainer(parse_recipe(tiny_text), tmp_path / "run")
    with torch.no_grad():
        trainer.model.lm_head.weight.fill_(torch.nan)
    for _ in range(9):
        trainer.train_step()
    with pytest.raises(InvalidValue, match=r"Training diverged: 10 steps in a row.*Lower optimizer.lr"):
        trainer.train_step()


def test_the_schedule_begins_with_the_first_step_that_is_taken(tmp_path: Path, tiny_text: str) -> None:
    trainer = Trainer(parse_recipe(tiny_text), tmp_path / "run")
    rates = []
    for step in range(4):
        weight = trainer.model.lm_head.weight
        own = weight.detach().clone()
        with torch.no_grad():
            weight.fill_(torch.nan if step < 2 else 0.1)
        rates.append(trainer.scheduler.get_last_lr()[0])
        trainer.train_step()
        if step < 2:
            with torch.no_grad():
                weight.copy_(own)
    assert trainer.skipped == 2
    assert rates[:3] == [3e-3 / 5] * 3  # warmup over 5 steps
    assert rates[3] > rates[2]


def test_averaged_weights_are_lent_and_given_back_bit_for_bit(tmp_path: Path, tiny_text: str) -> None:
    trainer = Trainer(parse_recipe(tiny_text), tmp_path / "run")
    for _ in range(4):
        trainer.train_step()
    own = [p.detach().clone() for p in trainer.model.parameters()]
    with averaged_weights(trainer.model, trainer.ema):
        pairs = zip(trainer.model.parameters(), trainer.ema.module.parameters())
        assert all(torch.equal(p, mean) for p, mean in pairs)
        assert not all(torch.equal(p, old) for p, old in zip(trainer.model.parameters(), own))
    assert all(torch.equal(p, old) for p, old in zip(trainer.model.parameters(), own))


def test_masters_and_states_are_float32_and_cores_bfloat16(tmp_path: Path, tiny_text: str) -> None:
    trainer = Trainer(parse_recipe(tiny_text), tmp_path / "run")
    trainer.train_step()
    assert {p.dtype for p in trainer.model.parameters()} == {torch.float32}
    assert trainer.slots[0].carry.z_L.dtype == torch.float32
    assert trainer.model.config.forward_dtype == "bfloat16"


def test_training_under_control_keeps_each_slots_memory_until_it_halts(tmp_path: Path, tiny_text: str) -> None:
    text = tiny_text + "[control]\ncontroller = 'taps-gd@trm'\n"
    trainer = Trainer(parse_recipe(text), tmp_path / "run")
    trainer.train_step()
    halted = torch.zeros(16, dtype=torch.bool)
    halted[3] = True
    trainer.slots[0] = trainer.slots[0]._replace(halted=halted)
    trainer.train_step()
    counts = trainer.slots[0].memory.rule.k
    assert counts[3] == 4
    assert set(counts.tolist()) == {4, 8}


def test_the_balance_penalty_changes_what_is_learned(tmp_path: Path, tiny_text: str) -> None:
    text = tiny_text + "[control]\ncontroller = 'taps-gd@trm'\n"
    ends = []
    for i, mu in enumerate((0.0, 10.0)):
        trainer = Trainer(parse_recipe(f"{text}[loss]\npenalty_mu = {mu}\npenalty_kappa = 0.5\n"), tmp_path / str(i))
        for _ in range(3):
            trainer.train_step()
        ends.append(trainer.model.L_level.layers[0].mlp.down_proj.weight.detach().clone())
        assert (trainer.meter.sums["penalty"] > 0) == (mu > 0)
    assert not torch.equal(*ends)


def test_the_export_is_the_averaged_model_with_its_story(tmp_path: Path, tiny_text: str) -> None:
    trainer = Trainer(parse_recipe(tiny_text), tmp_path / "run")
    out = trainer.run()
    model = lt.load_model("trm", out)
    mean = dict(trainer.ema.module.named_parameters())
    assert all(torch.equal(p, mean[name]) for name, p in model.named_parameters())
    card = (out / "README.md").read_text()
    assert f"`model.safetensors` sha256 {hashlib.sha256((out / 'model.safetensors').read_bytes()).hexdigest()}" in card
    assert re.search(r"^TRM with [\d,]+ parameters for 4x4 Sudoku, trained by", card, re.MULTILINE)
    assert "From step 0, with generated puzzles alone:" in card
    assert "seed 0" in card
    assert "generated @4" in card
    assert '"hidden_size": 32' in card
    assert {path.name for path in (tmp_path / "run").iterdir()} >= {"last.pt", "curve.jsonl", "log.jsonl", "run.json"}


def test_one_file_is_exported_with_a_card_that_names_it(tmp_path: Path, tiny_text: str) -> None:
    trainer = Trainer(parse_recipe(tiny_text), tmp_path / "run")
    trainer.run()
    out = export(tmp_path / "run", tmp_path / "mine.safetensors")
    sha256 = hashlib.sha256(out.read_bytes()).hexdigest()
    assert f"`mine.safetensors` sha256 {sha256}" in out.with_suffix(".md").read_text()
    assert lt.load_model("trm", out).config == trainer.model.config


def test_the_card_says_whose_cpu_minutes_it_counts(tmp_path: Path, tiny_text: str) -> None:
    trainer = Trainer(parse_recipe(tiny_text), tmp_path / "run")
    card = (trainer.run() / "README.md").read_text()
    assert re.search(r"\([\d.]+ CPU-minutes\), seed 0$", card, re.MULTILINE)
    state = files.load(trainer.last)
    files.save(trainer.last, {**state, "world_size": 2})
    card = (export(tmp_path / "run") / "README.md").read_text()
    assert re.search(r"\([\d.]+ CPU-minutes of the first process alone\), seed 0$", card, re.MULTILINE)


def test_tensorboard_gets_losses_and_accuracy_by_loop(tmp_path: Path, tiny_text: str) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    text = tiny_text.replace('tracker = "none"\n', "")  # it is the default
    assert parse_recipe(text).tracker == "tensorboard"
    Trainer(parse_recipe(text), tmp_path / "run").run()
    events = EventAccumulator(str(tmp_path / "run" / "tiny")).Reload()
    assert {"train/loss", "train/exact", "train/lr", "exact/generated/loop1", "exact/generated/loop4"} <= set(
        events.Tags()["scalars"]
    )
    logged = {line["step"]: line["loss"] for line in map(json.loads, (tmp_path / "run" / "log.jsonl").open())}
    assert {e.step: e.value for e in events.Scalars("train/loss")} == pytest.approx(logged)


def test_without_a_terminal_there_is_one_line_per_interval(tmp_path: Path, tiny_text: str) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(tiny_text.replace("log_every = 1", "log_every = 5"))
    command = [sys.executable, "-m", "looptaps", "train", "--recipe", str(recipe), "--out", str(tmp_path / "run")]
    done = subprocess.run([*command, "--threads", "1"], check=True, capture_output=True, text=True)
    intervals = [line for line in done.stderr.splitlines() if re.match(r" *[\d.]+ %  left \S+  step \d+  loss", line)]
    assert len(intervals) == 4
    assert "\x1b" not in done.stderr
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 2
    assert "already holds a run" in again.stderr
    assert "Traceback" not in again.stderr


def test_two_processes_train_one_model_and_go_on_exactly(tmp_path: Path, tiny_text: str) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(tiny_text.replace("steps = 20", "steps = 8\nkind = 'constant'\ndecay_from = 0.5"))
    # The second process looks late into the files that the first one writes: both must decide alike all the same.
    late = tmp_path / "late.py"
    late.write_text("import os, time\n"
                    "from looptaps.cli.main import main\n"
                    "from looptaps.train.checkpointing import Lines\n"
                    "read = Lines.read\n"
                    "Lines.read = lambda self: (time.sleep(1.5 * int(os.environ['RANK'])), read(self))[1]\n"
                    "main()\n")

    def launch(out: Path, *more: str) -> list[float]:
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d",
                   "--rdzv-endpoint", "localhost:0", str(late), "train", "--recipe", str(recipe)]
        env = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
        command += ["--out", str(out), "--threads", "1", *more]
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
        assert done.returncode == 0, done.stderr
        return [json.loads(line)["loss"] for line in (out / "log.jsonl").read_text().splitlines()]

    whole = launch(tmp_path / "whole")
    saved = torch.load(tmp_path / "whole" / "before-decay.pt", weights_only=True)
    assert (saved["step"], saved["world_size"]) == (4, 2)
    assert launch(tmp_path / "rest", "--resume-from", str(tmp_path / "whole" / "before-decay.pt")) == whole
    single = Trainer(parse_recipe(recipe.read_text()), tmp_path / "single")
    assert single.train_step() == whole[0]  # the first process has the samples that a single one would have
    assert single.train_step() != whole[1]  # but the gradient is of both
