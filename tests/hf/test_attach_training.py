"""Training, half precision and scattered weights."""

import pytest
import torch

import looptaps as lt


def gradients(model, batches):
    model.zero_grad()
    loss = sum(model(tokens, attention_mask=mask, labels=tokens).loss for tokens, mask in batches)
    loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("scope", ["token", "sequence"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_gives_the_same_gradients(make, ids, scope, reentrant):
    model = make("llama").train()
    short = torch.ones_like(ids)
    short[0, 7:] = 0
    batches = [(ids, torch.ones_like(ids)), (ids.flip(1), short)]  # two forwards before one backward
    with lt.hf.attach(model, lt.spec("taps-adam@blocks"), layers=(1, 3), loops=3, scope=scope) as handle:
        plain = gradients(model, batches)
        assert handle.trace.count == 2
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
        if reentrant:
            model.enable_input_require_grads()
        checkpointed = gradients(model, batches)
        assert handle.trace.count == 4  # a recomputation is no forward
    for name in plain:  # (the reentrant kind adds the stages' gradients in another order)
        if reentrant:
            torch.testing.assert_close(plain[name], checkpointed[name], rtol=1e-5, atol=1e-6)
        else:
            assert torch.equal(plain[name], checkpointed[name])
    assert plain["model.layers.2.mlp.up_proj.weight"].abs().max() > 0


def test_eta_is_a_constant_to_autograd_unless_asked(make, ids):
    model = make("llama").train()
    results = []
    for through in (False, True):
        control = lt.Control(lt.spec("taps-adam@blocks"), grad_through_eta=through)
        with lt.hf.attach(model, control, layers=(1, 3), loops=3):
            results.append(gradients(model, [(ids, None)])["model.layers.2.mlp.up_proj.weight"])
    assert not torch.equal(*results)


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_bfloat16_keeps_its_dtype_and_its_exact_unit_step(make, ids, kind, generate):
    model = make(kind).to(torch.bfloat16)
    with torch.no_grad():
        plain = model(ids).logits
        with lt.hf.attach(model, lt.Standard(), layers=(1, 3), loops=1):
            assert torch.equal(model(ids).logits, plain)
        with lt.hf.attach(model, lt.spec("taps-bb@blocks"), layers=(1, 3), loops=3, scope="token") as handle:
            assert model(ids).logits.dtype == torch.bfloat16
            assert handle.trace[0].dtype == torch.float32
            tokens, logits = generate(model, ids)
            full = model(tokens, use_cache=False).logits[:, 9:-1]
    assert (logits - full).abs().max() < 0.1


def test_offloaded_layers_work_and_are_restored(make, ids, tmp_path):
    from accelerate import cpu_offload

    model, offloaded = make("llama"), make("llama")
    cpu_offload(offloaded, execution_device=torch.device("cpu"), state_dict=make("llama").state_dict())
    wrapped = [layer.forward for layer in offloaded.model.layers]
    results = []
    for one in (model, offloaded):
        with torch.no_grad(), lt.hf.attach(one, lt.spec("taps-adam@blocks"), layers=(1, 3), loops=3):
            results.append(one(ids).logits)
    assert torch.equal(*results)
    assert [layer.forward for layer in offloaded.model.layers] == wrapped


def test_a_window_over_two_devices_keeps_its_state_where_it_begins(make, ids):
    # The meta device stands for a second card: shapes and devices flow, numbers do not.
    from looptaps.hf.blocks import LoopedLayers, Window
    from looptaps.hf.masks import MaskRecorder
    from looptaps.hf.trace import EtaTrace

    class There(torch.nn.Module):
        def forward(self, x, **kwargs):
            return x.to("meta")

    window = Window(0, 1, 2, 2, "stage", "token", lt.Control(lt.TapsGD()))
    layers = [There(), torch.nn.Identity()]
    looped = LoopedLayers(window, layers, MaskRecorder(torch.nn.Identity()), EtaTrace())
    x = torch.zeros(1, 3, 4, device="meta")
    assert looped(x).device.type == "meta"
