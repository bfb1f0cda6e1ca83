"""attach changes nothing that it does not say, and leaves nothing behind."""

import copy

import pytest
import torch

import looptaps as lt

KINDS = ("llama", "qwen3", "gemma3", "mistral")


def fingerprint(model):
    """Every plain attribute and hook of every module."""
    return {name: (sorted(module.__dict__), len(module._forward_hooks), len(module._forward_pre_hooks))
            for name, module in model.named_modules()}


@pytest.mark.parametrize("kind", KINDS)
def test_one_unit_stage_is_the_unmodified_model_bit_for_bit(make, ids, kind, generate):
    model = make(kind)
    with torch.no_grad():
        plain = model(ids).logits
    tokens, logits = generate(model, ids)
    with torch.no_grad(), lt.hf.attach(model, lt.Standard(), layers=(1, 3), loops=1):
        assert torch.equal(model(ids).logits, plain)
        looped = generate(model, ids)
    assert torch.equal(looped[0], tokens)
    assert torch.equal(looped[1], logits)


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_detach_restores_outputs_weights_and_attributes(make, ids, kind):
    model = make(kind)
    with torch.no_grad():
        plain = model(ids, output_hidden_states=True).logits  # (this installs transformers' own hooks)
    weights, before = copy.deepcopy(model.state_dict()), fingerprint(model)
    with torch.no_grad(), lt.hf.attach(model, lt.TapsAdam(), layers=(0, 2), loops=3) as handle:
        looped = model(ids).logits
        assert list(model.state_dict()) == list(weights)
    assert not handle.attached
    assert not torch.equal(looped, plain)
    with torch.no_grad():
        assert torch.equal(model(ids).logits, plain)
    assert fingerprint(model) == before
    after = model.state_dict()
    assert all(torch.equal(after[name], weights[name]) for name in weights)


def test_detach_runs_after_an_error_and_twice_does_no_harm(make, ids):
    model = make("llama")
    before = fingerprint(model)
    with pytest.raises(ZeroDivisionError), lt.hf.attach(model, lt.TapsGD(), layers=(0, 0), loops=2) as handle:
        raise ZeroDivisionError
    handle.detach()
    assert fingerprint(model) == before


def test_a_looped_stage_is_the_damped_euler_step(make, ids):
    model = make("llama")
    with torch.no_grad():
        with lt.hf.attach(model, lt.Constant(0.9), layers=(2, 3), loops=2):
            states = model(ids, output_hidden_states=True).hidden_states
        seen = {}

        def note(module, args, kwargs):
            seen.update(kwargs)

        hook = model.model.layers[2].register_forward_pre_hook(note, with_kwargs=True)
        x = model(ids, use_cache=False, output_hidden_states=True).hidden_states[2]
        hook.remove()
        for _ in range(2):
            fx = model.model.layers[3](model.model.layers[2](x, **seen), **seen)
            x = x + 0.9 / 2 * (fx - x)
    torch.testing.assert_close(states[4], x, rtol=0, atol=1e-6)


def test_only_this_instance_is_looped(make, ids):
    model, other = make("llama"), make("llama")
    with torch.no_grad():
        plain = other(ids).logits
        with lt.hf.attach(model, lt.TapsGD(), layers=(1, 2), loops=2):
            assert torch.equal(other(ids).logits, plain)


def test_the_gain_of_a_block_loop_is_one_over_its_stages(make):
    with lt.hf.attach(make("llama"), lt.TapsBB(), layers=(1, 2), loops=3) as handle:
        assert handle.control.controller.gain == 1 / 3


def test_trace_holds_eta_by_stage_and_forward(make, ids, generate):
    model = make("llama")
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    with lt.hf.attach(model, lt.spec("taps-adam@blocks"), layers=(1, 3), loops=3) as handle:
        generate(model, ids, new=5, attention_mask=mask)
        assert len(handle.trace) == 5
        assert handle.trace[0].shape == (3, 2)
        assert torch.equal(handle.trace[0][0], torch.ones(2))
        expected = torch.stack([eta.double().mean(1) for eta in handle.trace]).mean(0)
        torch.testing.assert_close(handle.trace.stage_means, expected)
        assert handle.trace.mean == pytest.approx(expected.mean().item())
        assert handle.trace.means.shape == (5,)
    with lt.hf.attach(model, lt.Schedule((1.0, 1.1)), layers=(1, 3), loops=2, scope="token") as handle:
        generate(model, ids, new=2, attention_mask=mask)
        assert [eta.shape for eta in handle.trace] == [(2, 2, 10), (2, 2, 1)]
        assert handle.trace.mean == pytest.approx(1.05, abs=1e-6)


def test_pads_stay_out_of_the_mean_eta(make, ids):
    model = make("llama")
    padded = torch.cat([torch.zeros_like(ids), ids], 1)
    mask = torch.cat([torch.zeros_like(ids), torch.ones_like(ids)], 1)
    means = []
    for tokens, options in ((ids, {}), (padded, {"attention_mask": mask,
                                                 "position_ids": (mask.cumsum(1) - 1).clamp(min=0)})):
        with torch.no_grad(), lt.hf.attach(model, lt.spec("taps-adam@blocks"), layers=(1, 3), loops=3,
                                           scope="token") as handle:
            model(tokens, **options)
            means.append(handle.trace.mean)
    assert means[0] == pytest.approx(means[1], abs=1e-6)


def test_a_model_that_names_itself_as_its_decoder_is_looped(make, ids, generate):
    model = make("llama4")
    with torch.no_grad():
        plain, before = model(ids).logits, fingerprint(model)
        with lt.hf.attach(model, lt.Standard(), layers=(0, 2), loops=1):
            assert torch.equal(model(ids).logits, plain)
        with lt.hf.attach(model, lt.spec("taps-adam@blocks"), layers=(0, 2), loops=3, scope="token"):
            assert not torch.equal(model(ids).logits, plain)
            assert torch.equal(generate(model, ids)[0], generate(model, ids, use_cache=False)[0])
        assert torch.equal(model(ids).logits, plain)
    assert fingerprint(model) == before
