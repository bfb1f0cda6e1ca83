"""Ouro and Huginn give the logits of the released code, on its own tiny random weights.

Bit for bit, where this CPU multiplies as the one that the fixtures were made on. That is probed with the released
formulas written out with torch alone: where they do not give the fixture's logits either, the kernels differ, and
logits are compared within a hundred times the probe's error (float32 against float64), which a warning says. In both
cases our models must equal the formulas bit for bit.
"""

import functools
import json
import math
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open

import looptaps as lt

DATA = Path(__file__).parents[1] / "data" / "parity_lm"


@pytest.fixture(params=[1, 2])
def threads(request):
    # The fixtures were made on two threads. Another split of a sum over threads may change the last bit.
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


def rms(x, weight):
    wide = x.float() if x.dtype != torch.float64 else x
    return weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def ouro_formulas(config, w, given):
    """X <- norm(layers(X)), four times, then the head; a layer has a norm before and behind both of its halves."""
    mask, heads = given["attention_mask"].bool(), config["num_attention_heads"]
    x = F.embedding(given["ids"], w["model.embed_tokens.weight"])
    B, n, d = x.shape
    seen = torch.ones(n, n, dtype=torch.bool).tril() & mask[:, None, None]
    dim = d // heads
    frequencies = 1.0 / config["rope_theta"] ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    angles = (mask.cumsum(1) - 1).clamp(min=0)[:, None, :, None].float() * frequencies
    cos, sin = (torch.cat([part, part], -1).to(x.dtype) for part in (angles.cos(), angles.sin()))

    def rotate(q):
        low, high = q.chunk(2, -1)
        return q * cos + torch.cat([-high, low], -1) * sin

    for _ in range(config["total_ut_steps"]):
        for number in range(config["num_hidden_layers"]):
            at = f"model.layers.{number}."
            h = rms(x, w[at + "input_layernorm.weight"])
            q, k, v = (F.linear(h, w[f"{at}self_attn.{c}_proj.weight"]).view(B, n, heads, dim).transpose(1, 2)
                       for c in "qkv")
            mixed = F.scaled_dot_product_attention(rotate(q), rotate(k), v, seen, scale=dim**-0.5)
            mixed = F.linear(mixed.transpose(1, 2).reshape(B, n, d), w[at + "self_attn.o_proj.weight"])
            x = x + rms(mixed, w[at + "input_layernorm_2.weight"])
            h = rms(x, w[at + "post_attention_layernorm.weight"])
            gate, up = (F.linear(h, w[f"{at}mlp.{c}_proj.weight"]) for c in ("gate", "up"))
            mixed = F.linear(F.silu(gate) * up, w[at + "mlp.down_proj.weight"])
            x = x + rms(mixed, w[at + "post_attention_layernorm_2.weight"])
        x = rms(x, w["model.norm.weight"])
    return F.linear(x, w["lm_head.weight"])


def huginn_formulas(config, w, given):
    """e = prelude(sqrt(d) embed); X <- core(adapter[X, e]), five times; head(ln coda(ln X))."""
    heads = config["n_heads"]
    e = F.embedding(given["ids"], w["transformer.wte.weight"]) * math.sqrt(config["n_embd"])
    B, n, d = e.shape
    cos, sin = w["freqs_cis"][:, :n].unbind(-1)

    def rotate(q):
        even, odd = q.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(-2)

    def block(x, at):
        h = rms(x, w[at + "norm_1.weight"])
        q, k, v = F.linear(h, w[at + "attn.Wqkv.weight"]).view(B, n, 3, heads, d // heads).unbind(2)
        q, k = (rotate(part + bias).transpose(1, 2) for part, bias in zip((q, k), w[at + "attn.qk_bias"]))
        mixed = F.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True, scale=(d // heads) ** -0.5)
        x = rms(F.linear(mixed.transpose(1, 2).reshape(B, n, d), w[at + "attn.proj.weight"]) + x,
                w[at + "norm_2.weight"])
        gate, value = F.linear(rms(x, w[at + "norm_3.weight"]), w[at + "mlp.fc.weight"]).chunk(2, -1)
        return rms(F.linear(F.silu(gate) * value, w[at + "mlp.proj.weight"]) + x, w[at + "norm_4.weight"])

    e = block(e, "transformer.prelude.0.")
    x = given["input_states"]
    for _ in range(config["mean_recurrence"]):
        x = F.linear(torch.cat([x, e], -1), w["transformer.adapter.weight"])
        for number in range(config["n_layers_in_recurrent_block"]):
            x = block(x, f"transformer.core_block.{number}.")
    x = block(rms(x, w["transformer.ln_f.weight"]), "transformer.coda.0.")
    return F.linear(rms(x, w["transformer.ln_f.weight"]), w["lm_head.weight"])


FORMULAS = {"ouro_tiny": ouro_formulas, "huginn_tiny": huginn_formulas}


@functools.cache
@torch.no_grad()
def probe(name, threads):
    """The formulas' logits, and 0.0 where they are the fixture's, else their mean error against float64.

    `threads` is what torch is set to, and is part of the answer.
    """
    config, weights, given = reference(name)
    logits = FORMULAS[name](config, weights, given)
    if torch.equal(logits, given["logits"]):
        return logits, 0.0
    wide = {key: value.double() if value.is_floating_point() else value for key, value in (weights | given).items()}
    return logits, (logits - FORMULAS[name](config, wide, wide)).abs().mean().item()


def check(logits, expected, name, threads):
    error = probe(name, threads)[1]
    if error == 0.0:
        assert torch.equal(logits, expected)
        return
    warnings.warn(f"This CPU's matrix kernels (threads: {threads}) are not those that {name} was made with (probe "
                  f"error {error:.3g}): compared within {100 * error:.3g}, not bit for bit.", stacklevel=1)
    assert (logits - expected).abs().max() <= 100 * error


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
    logits = model(expected["ids"], **inputs).logits
    assert torch.equal(logits, probe("ouro_tiny", threads)[0])
    check(logits, expected["logits"], "ouro_tiny", threads)
    early = model(expected["ids"], exit_threshold=0.6, **inputs)
    check(early.logits, expected["logits_exit_0.6"], "ouro_tiny", threads)
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
    logits = model(expected["ids"], input_states=expected["input_states"]).logits
    assert torch.equal(logits, probe("huginn_tiny", threads)[0])
    check(logits, expected["logits"], "huginn_tiny", threads)


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
    from looptaps.hf.exits import ExitGate, exit_probabilities, exit_steps

    gate = ExitGate(1, 1).to(torch.bfloat16)
    with torch.no_grad():
        gate.weight.fill_(1.0)
        gate.bias.fill_(0.0)
    state = torch.full((1, 1, 1), 6.5, dtype=torch.bfloat16)
    assert torch.sigmoid(state).item() == 1.0  # what bfloat16 would make of it
    pdf = exit_probabilities(gate, [state, state])
    assert pdf.dtype == torch.float32
    assert 0.998 < pdf[0, 0, 0] < 1.0
    assert exit_steps(pdf, 0.9999).item() == 1
