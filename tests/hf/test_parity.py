"""Ouro and Huginn give the logits of the released code, on its own tiny random weights."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

import looptaps as lt

DATA = Path(__file__).parents[1] / "data" / "parity_lm"


@pytest.fixture(params=[1, 2])
def threads(request):
    # The reference ran on two threads. Another split of a sum over threads changes the last bit.
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def reference(name):
    with safe_open(DATA / f"{name}.safetensors", "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
        config = json.loads(file.metadata()["config"])
    weights = {key.removeprefix("w."): value for key, value in tensors.items() if key.startswith("w.")}
    return config, weights, tensors


def check(logits, expected, threads):
    assert (logits - expected).abs().max() == 0.0 if threads == 2 else (logits - expected).abs().max() < 2e-6


@pytest.fixture
def ouro():
    config, weights, tensors = reference("ouro_tiny")
    model = lt.hf.OuroForCausalLM(lt.hf.OuroConfig(**config)).eval()
    model.load_state_dict(weights, strict=True)
    return model, tensors


@pytest.fixture
def huginn():
    config, weights, tensors = reference("huginn_tiny")
    model = lt.hf.HuginnForCausalLM(lt.hf.HuginnConfig(**config)).eval()
    model.load_state_dict(weights, strict=True)
    return model, tensors


@torch.no_grad()
def test_ouro_logits_and_exit_gate_equal_the_reference(ouro, threads):
    model, expected = ouro
    mask = expected["attention_mask"]
    inputs = {"attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(min=0)}
    check(model(expected["ids"], **inputs).logits, expected["logits"], threads)
    early = model(expected["ids"], exit_threshold=0.6, **inputs)
    check(early.logits, expected["logits_exit_0.6"], threads)
    assert early.exit_step.unique().numel() > 1
    torch.testing.assert_close(early.exit_pdf.sum(-1), torch.ones(2, 13))


def test_ouro_greedy_tokens_equal_the_reference(ouro):
    model, expected = ouro
    tokens = model.generate(expected["ids"], attention_mask=expected["attention_mask"], max_new_tokens=10,
                            do_sample=False)
    assert torch.equal(tokens, expected["greedy_10"])


@torch.no_grad()
@pytest.mark.parametrize("control", [None, lt.Standard()])
def test_huginn_logits_equal_the_reference(huginn, threads, control):
    model, expected = huginn
    assert torch.equal(model.freqs_cis, expected["w.freqs_cis"])
    model.set_control(control)
    check(model(expected["ids"], input_states=expected["input_states"]).logits, expected["logits"], threads)


@torch.no_grad()
def test_the_unit_control_changes_nothing(ouro, threads):
    model, expected = ouro
    plain = model(expected["ids"]).logits
    for before_norm in (False, True):
        model.config.taps_before_norm = before_norm
        model.set_control(lt.Standard())
        assert torch.equal(model(expected["ids"]).logits, plain)


@torch.no_grad()
def test_a_threshold_of_one_or_none_never_exits(ouro):
    model, expected = ouro
    plain = model(expected["ids"]).logits
    model.model.early_exit_gate.bias.fill_(50.0)  # sigmoid is 1.0 in float32: the released test would exit at once
    for threshold in (1.0, 2.0):
        assert torch.equal(model(expected["ids"], exit_threshold=threshold).logits, plain)
    model.config.early_exit_threshold = None
    assert torch.equal(model(expected["ids"]).logits, plain)
    first = model(expected["ids"], exit_at_step=0).logits
    assert torch.equal(model(expected["ids"], exit_threshold=0.5).logits, first)
    assert not torch.equal(first, plain)
    assert torch.equal(model(expected["ids"], exit_at_step=3).logits, plain)
    torch.testing.assert_close(model(expected["ids"], use_weighted_exit=True).logits, first)


def test_the_exit_gate_is_computed_in_float32():
    from looptaps.hf.exits import exit_probabilities, exit_steps

    gate = torch.nn.Linear(1, 1).to(torch.bfloat16)
    with torch.no_grad():
        gate.weight.fill_(1.0)
        gate.bias.fill_(0.0)
    state = torch.full((1, 1, 1), 6.5, dtype=torch.bfloat16)
    assert torch.sigmoid(state).item() == 1.0  # what bfloat16 would make of it
    pdf = exit_probabilities(gate, [state, state])
    assert pdf.dtype == torch.float32
    assert 0.998 < pdf[0, 0, 0] < 1.0
    assert exit_steps(pdf, 0.9999).item() == 1
