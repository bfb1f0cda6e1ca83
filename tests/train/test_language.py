"""`looptaps lm train`: a small Ouro that learns, survives a kill, and comes out as a folder for from_pretrained."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from looptaps.cli.lm import app
from looptaps.errors import InvalidFile, InvalidUse, InvalidValue, UnknownName
from looptaps.tasks.chains import questions, tokens_of
from looptaps.train import checkpointing as files
from looptaps.train.language import LanguageTrainer, answer_losses, build_ouro, exact_by_steps
from looptaps.train.language_recipe import language_recipe_from, load_language_recipe

TINY = """
name = "tiny"
batch_size = 16
log_every = 5
checkpoint_minutes = 0.003
[model.config]
hidden_size = 16
intermediate_size = 32
num_hidden_layers = 1
num_attention_heads = 2
max_position_embeddings = 64
[data]
statements = [1, 2]
[steps]
least = 1
most = 3
[optimizer]
lr = 1e-2
[schedule]
steps = 30
warmup = 5
[validation]
every = 10
questions = 20
batch = 16
steps = [1, 2]
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


def lines(path: Path) -> list[dict]:
    return [{key: value for key, value in line.items() if key != "seconds"} for line in files.Lines(path).read()]


def test_the_loss_falls_and_the_export_answers_as_the_averaged_weights(recipe: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import looptaps as lt

    recipe.write_text(TINY.replace("steps = 30", "steps = 100"))
    trainer = LanguageTrainer(load_language_recipe(recipe), tmp_path / "run", device="cpu")
    folder = trainer.run()
    losses = [line["loss"] for line in lines(tmp_path / "run" / "log.jsonl")]
    assert losses[-1] < losses[0] - 0.2
    lt.hf.register()
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert tokenizer("b=3+4;?b").input_ids == tokens_of("b=3+4;?b").tolist()
    assert tokenizer.decode(tokens_of("b=3;?b")) == "b=3;?b"
    averaged = trainer.averaged()
    asked = questions(8, 2, seed=1)
    with torch.no_grad():
        logits = model(asked.text).logits
        assert torch.equal(logits, averaged(asked.text).logits)
        assert not torch.equal(logits, trainer.model.eval()(asked.text).logits)
    # generate's next token is the answer that exact_by_steps judges
    right = exact_by_steps(model, asked, model.config.total_ut_steps, 3)[:, -1]
    new = model.generate(asked.text, max_new_tokens=1, do_sample=False)[:, -1]
    assert torch.equal(new == asked.answer, right)
    card = (folder / "README.md").read_text()
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    for text in (digest, trainer.recipe.digest, "100 steps of 16 texts", "| 1 steps | 2 steps |", '"hidden_size": 16'):
        assert text in card


def test_after_kill_9_the_run_ends_with_the_same_weights_and_log(recipe: Path, tmp_path: Path) -> None:
    recipe.write_text(TINY.replace("steps = 30", "steps = 300").replace("every = 10", "every = 100"))

    def command(folder: Path, *more: str) -> list[str]:
        return [sys.executable, "-m", "looptaps", "lm", "train", "--recipe", str(recipe), "--out", str(folder),
                "--device", "cpu", "--threads", "1", *more]

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run(command(whole), check=True, capture_output=True)
    with subprocess.Popen(command(killed), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while len(lines(killed / "log.jsonl")) < 12 or not (killed / "last.pt").exists():
            assert process.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
    assert 0 < files.load(killed / "last.pt")["step"] < 300
    subprocess.run(command(killed, "--resume"), check=True, capture_output=True)
    for name in ("log.jsonl", "curve.jsonl"):
        assert lines(whole / name) == lines(killed / name)
    weights = [(folder / "model" / "model.safetensors").read_bytes() for folder in (whole, killed)]
    assert weights[0] == weights[1]


def test_every_step_is_supervised_and_the_gate_does_not_push_the_model(recipe: Path) -> None:
    from looptaps.tasks.chains import ask_all, sample_chains

    model = build_ouro(load_language_recipe(recipe).model, 0).train()
    model.config.total_ut_steps = 3
    generator = torch.Generator().manual_seed(0)
    losses, gate = answer_losses(model, ask_all(sample_chains(4, 2, generator), generator))
    assert losses.shape == (3, 4, 4)
    assert losses.isfinite().all()
    gate.sum().backward(retain_graph=True)
    assert model.model.early_exit_gate.weight.grad.abs().sum() > 0
    assert all(p.grad is None for name, p in model.named_parameters() if "early_exit_gate" not in name)
    losses[0].sum().backward()
    assert model.lm_head.weight.grad.abs().sum() > 0


def test_a_run_is_not_overwritten_nor_gone_on_with_as_another(recipe: Path, tmp_path: Path) -> None:
    values = load_language_recipe(recipe)
    short = values.model_copy(update={"schedule": values.schedule.model_copy(update={"steps": 2})})
    LanguageTrainer(short, tmp_path / "run", device="cpu").run()
    with pytest.raises(InvalidUse, match="--resume"):
        LanguageTrainer(short, tmp_path / "run", device="cpu")
    other = short.model_copy(update={"batch_size": 8})
    with pytest.raises(InvalidUse, match="batch_size is 8, but the run began with 16"):
        LanguageTrainer(other, tmp_path / "run", device="cpu", resume=True)
    wider = short.model_copy(update={"model": short.model.model_copy(update={"config": {"hidden_size": 32}})})
    with pytest.raises(InvalidUse, match=r"model\.config"):
        LanguageTrainer(wider, tmp_path / "run", device="cpu", resume=True)
    with pytest.raises(InvalidFile, match="no checkpoint"):
        LanguageTrainer(short, tmp_path / "nothing", device="cpu", resume=True)


def test_a_run_that_ended_before_its_first_checkpoint_leaves_nothing_to_the_next(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: LanguageTrainer) -> None:
        raise KeyboardInterrupt

    recipe.write_text(TINY.replace("checkpoint_minutes = 0.003", "").replace("steps = 30", "steps = 10"))
    values = load_language_recipe(recipe)
    with monkeypatch.context() as patched:
        patched.setattr(LanguageTrainer, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            LanguageTrainer(values, tmp_path / "run", device="cpu").run()
    assert [line["step"] for line in lines(tmp_path / "run" / "curve.jsonl")] == [10]
    other = values.model_copy(update={"seed": 1})
    for name in ("run", "clean"):
        LanguageTrainer(other, tmp_path / name, device="cpu").run()
    for name in ("log.jsonl", "curve.jsonl"):
        assert lines(tmp_path / "run" / name) == lines(tmp_path / "clean" / name)


def test_time_ends_a_run(recipe: Path, tmp_path: Path) -> None:
    recipe.write_text(TINY.replace("steps = 30", "steps = 1000000"))
    arguments = ["train", "--recipe", str(recipe), "--out", str(tmp_path / "run"), "--minutes", "0.02",
                 "--device", "cpu", "--no-compile"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "Exported to" in result.output
    assert files.load(tmp_path / "run" / "last.pt")["step"] < 1000000


@pytest.mark.parametrize(("old", "new", "kind", "message"), [
    ("batch_size", "batchsize", UnknownName, "Did you mean 'batch_size'"),
    ("least = 1", "leest = 1", UnknownName, "Did you mean 'least'"),
    ("steps = 30", "", InvalidValue, "lacks schedule.steps"),
    ("least = 1", "least = 4", InvalidValue, "steps.least is 4, but must be at most steps.most = 3"),
    ("lr = 1e-2", "lr = -1.0", InvalidValue, "optimizer.lr is -1.0"),
    ("[data]", "[data", InvalidFile, "is not TOML"),
])
def test_a_mistake_in_a_recipe_is_named(recipe: Path, old: str, new: str, kind: type[Exception], message: str) -> None:
    assert old in TINY
    recipe.write_text(TINY.replace(old, new, 1))
    with pytest.raises(kind, match=message):
        load_language_recipe(recipe)


def test_a_mistake_in_the_models_config_is_named(recipe: Path) -> None:
    values = load_language_recipe(recipe).model_dump(mode="json")
    values["model"]["config"] = {"vocab_size": 5}
    with pytest.raises(InvalidUse, match="vocab_size follows from the task"):
        build_ouro(language_recipe_from(values).model, 0)
    with pytest.raises(InvalidFile, match="cannot be read"):
        load_language_recipe("nowhere.toml")
