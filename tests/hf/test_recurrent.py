"""Ouro and Huginn: caches, padding, control, saving, errors; HRM-Text through attach."""

import json

import pytest
import torch
import transformers as tf

import looptaps as lt
from looptaps.errors import InvalidShape, InvalidUse, InvalidValue

RULES = ("taps-gd", "taps-sign", "taps-momentum", "taps-rmsprop", "taps-adam", "taps-bb")


def tiny(kind):
    torch.manual_seed(0)
    if kind == "ouro":
        model = lt.hf.OuroForCausalLM(lt.hf.OuroConfig(
            vocab_size=97, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=64, initializer_range=0.1, pad_token_id=0, bos_token_id=None, eos_token_id=None))
    elif kind == "huginn":
        model = lt.hf.HuginnForCausalLM(lt.hf.HuginnConfig(
            vocab_size=97, n_embd=32, intermediate_size=64, n_layers=4, n_heads=4, block_size=64, mean_recurrence=5,
            n_layers_in_prelude=1, n_layers_in_recurrent_block=2, n_layers_in_coda=1, initializer_range=0.1))
    else:
        model = tf.HrmTextForCausalLM(tf.HrmTextConfig(
            vocab_size=97, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, head_dim=8,
            max_position_embeddings=64, initializer_range=0.1, H_cycles=2, L_cycles=3, pad_token_id=0))
    model.generation_config.eos_token_id = None
    return model.eval()


KINDS = ("ouro", "huginn", "hrm_text")


@pytest.mark.parametrize("kind", KINDS)
def test_the_unit_step_is_the_model_bit_for_bit_and_detach_restores(ids, kind):
    model = tiny(kind)
    with torch.no_grad():
        plain = model(ids).logits
        with lt.hf.attach(model, lt.Standard()) as handle:
            assert torch.equal(model(ids).logits, plain)
            assert handle.trace.mean == 1.0
        with lt.hf.attach(model, lt.Constant(0.8)):
            assert not torch.equal(model(ids).logits, plain)
        assert torch.equal(model(ids).logits, plain)
    assert not any("forward" in module.__dict__ or "_looptaps_handle" in module.__dict__ for module in model.modules())
    assert getattr(model, "control", None) is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", RULES)
def test_cached_decoding_equals_the_full_forward_in_token_scope(ids, kind, rule, generate):
    model = tiny(kind)
    with lt.hf.attach(model, lt.spec(rule), scope="token"):
        tokens, logits = generate(model, ids)
        uncached, _ = generate(model, ids, use_cache=False)
        with torch.no_grad():
            full = model(tokens, use_cache=False).logits[:, 9:-1]
    assert torch.equal(tokens, uncached)
    assert (logits - full).abs().max() < 2e-5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scope", ["token", "sequence"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_batches_equal_single_runs(ids, kind, scope, side):
    model = tiny(kind)
    tokens, mask = torch.zeros(2, 12, dtype=torch.long), torch.zeros(2, 12, dtype=torch.long)
    rows = [ids[0], ids[1, :6]]
    for n, row in enumerate(rows):
        where = slice(12 - len(row), 12) if side == "left" else slice(0, len(row))
        tokens[n, where], mask[n, where] = row, 1
    with torch.no_grad(), lt.hf.attach(model, lt.TapsAdam(), scope=scope):
        batch = model(tokens, attention_mask=mask).logits
        for n, row in enumerate(rows):
            assert (batch[n][mask[n].bool()] - model(row[None]).logits[0]).abs().max() < 2e-5


@pytest.mark.parametrize("kind", ["ouro", "huginn"])
def test_left_padded_generation_and_beams_work(ids, kind, generate):
    model = tiny(kind)
    tokens = torch.cat([torch.zeros(2, 3, dtype=torch.long), ids], 1)
    mask = (tokens != 0).long()
    with lt.hf.attach(model, lt.TapsBB(), scope="token"):
        alone, _ = generate(model, ids)
        padded, _ = generate(model, tokens, attention_mask=mask)
        assert torch.equal(padded[:, 3:], alone)
        beams = [model.generate(ids, num_beams=3, max_new_tokens=6, do_sample=False, pad_token_id=0, use_cache=cached)
                 for cached in (True, False)]
    assert torch.equal(*beams)


@pytest.mark.parametrize(("kind", "module", "names"), [
    ("ouro", "modeling_ouro", ("OuroConfig", "OuroForCausalLM")),
    ("huginn", "raven_modeling_minimal", ("RavenConfig", "RavenForCausalLM")),
])
def test_a_released_folder_loads_without_its_remote_code(ids, kind, module, names, tmp_path):
    # Released configurations name Python files beside the weights, which must neither be needed nor run.
    model = tiny(kind)
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": f"{module}.{names[0]}", "AutoModelForCausalLM": f"{module}.{names[1]}"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / f"{module}.py").write_text("raise RuntimeError('remote code was run')\n")
    again = tf.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert type(again) is type(model)
    with torch.no_grad():
        assert torch.equal(again(ids).logits, model(ids).logits)


@pytest.mark.parametrize("kind", ["ouro", "huginn"])
def test_the_control_travels_with_the_saved_model(ids, kind, tmp_path):
    model = tiny(kind)
    control = lt.Control(lt.spec("taps-bb:warmup=1"), scope="token", every=2)
    model.set_control(control)
    model.save_pretrained(tmp_path)
    again = tf.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert type(again) is type(model)
    assert again.control == control.resolved(gain=1.0)
    with torch.no_grad():
        assert torch.equal(again(ids).logits, model(ids).logits)
        again.set_control(None)
        assert again.config.taps is None
        assert not torch.equal(again(ids).logits, model(ids).logits)


@pytest.mark.parametrize("kind", ["ouro", "huginn"])
def test_a_cache_from_another_setting_is_refused(ids, kind):
    model = tiny(kind)
    with torch.no_grad():
        cache = model(ids, use_cache=True).past_key_values
        model(ids[:, :1], past_key_values=cache)
        model.set_control(lt.TapsAdam())
        with pytest.raises(InvalidUse, match="another setting"):
            model(ids[:, :1], past_key_values=cache)


@pytest.mark.parametrize("changed", [{"state_seed": 5}, {"init_scale": 0.5}])
def test_a_cache_of_another_initial_state_is_refused(ids, changed):
    model = tiny("huginn")
    with torch.no_grad():
        cache = model(ids, use_cache=True).past_key_values
        model(ids[:, :1], past_key_values=cache, state_seed=0, init_scale=1.0)  # the configuration's own
        with pytest.raises(InvalidUse, match="another setting"):
            model(ids[:, :1], past_key_values=cache, **changed)


def test_a_cache_that_the_plain_hrm_text_went_on_with_is_refused(ids):
    model = tiny("hrm_text")
    with torch.no_grad():
        with lt.hf.attach(model, lt.TapsGD()):
            cache = model(ids, use_cache=True).past_key_values
        model(ids[:, :1], past_key_values=cache)
        with lt.hf.attach(model, lt.TapsGD()), pytest.raises(InvalidUse, match="model without the loop went on"):
            model(ids[:, :1], past_key_values=cache)


@pytest.mark.parametrize("kind", ["ouro", "huginn"])
@pytest.mark.parametrize("scope", ["token", "sequence"])
def test_generation_with_a_static_cache_equals_a_dynamic_one(ids, kind, scope, generate):
    model = tiny(kind)
    with lt.hf.attach(model, lt.TapsAdam(), scope=scope):
        tokens, logits = generate(model, ids)
        static_tokens, static_logits = generate(model, ids, cache_implementation="static")
    assert torch.equal(static_tokens, tokens)
    assert (static_logits - logits).abs().max() < 2e-5


@pytest.mark.parametrize("kind", ["ouro", "huginn"])
def test_outputs_are_tuples_where_asked(ids, kind):
    model = tiny(kind)
    with torch.no_grad():
        logits = model(ids).logits
        assert torch.equal(model(ids, return_dict=False)[0], logits)
        model.config.return_dict = False
        out = model(ids)
    assert isinstance(out, tuple)
    assert torch.equal(out[0], logits)


@pytest.mark.parametrize("kind", ["ouro", "huginn"])
def test_auto_model_knows_it(ids, kind, tmp_path):
    model = tiny(kind)
    model.save_pretrained(tmp_path)
    again = tf.AutoModel.from_pretrained(tmp_path).eval()  # Huginn was released without a base model of its own
    assert type(again) is (lt.hf.OuroModel if kind == "ouro" else lt.hf.HuginnForCausalLM)
    with torch.no_grad():
        whole = model.model(ids).last_hidden_state if kind == "ouro" else model(ids).logits
        assert torch.equal(again(ids)[0], whole)


@pytest.mark.parametrize("kind", ["ouro", "huginn"])
def test_saving_while_attached_saves_what_set_control_kept(ids, kind, tmp_path):
    model = tiny(kind)
    kept = lt.Control(lt.TapsGD(), scope="token").resolved(gain=1.0)
    for before in (None, kept):
        model.set_control(before)
        with lt.hf.attach(model, lt.TapsAdam()):
            with pytest.raises(InvalidUse, match="Detach that one first"):
                model.set_control(lt.TapsBB())
            model.save_pretrained(tmp_path)
        assert model.control == before
        again = tf.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
        assert again.control == before
        with torch.no_grad():
            assert torch.equal(again(ids).logits, model(ids).logits)


def offload(model, where, folder):
    from accelerate import cpu_offload, disk_offload

    weights = {name: value.clone() for name, value in model.state_dict().items()}
    if where == "cpu":
        cpu_offload(model, execution_device=torch.device("cpu"), state_dict=weights)
    else:
        disk_offload(model, folder, execution_device=torch.device("cpu"))
    return model


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", ["cpu", "disk"])
def test_offloaded_weights_give_the_same_logits(ids, kind, where, tmp_path):
    options = {"exit_threshold": 0.6} if kind == "ouro" else {}  # (which reads the gate)
    results = []
    for model in (tiny(kind), offload(tiny(kind), where, tmp_path)):
        with torch.no_grad(), lt.hf.attach(model, lt.TapsAdam()):
            results.append(model(ids, **options).logits)
    assert torch.equal(*results)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_reach_the_loop_and_checkpointing_keeps_them(ids, kind):
    model = tiny(kind).train()
    grads = []
    with lt.hf.attach(model, lt.TapsAdam()):
        for _ in range(2):
            model.zero_grad()
            model(ids, labels=ids, use_cache=False).loss.backward()
            grads.append({name: w.grad.clone() for name, w in model.named_parameters() if w.grad is not None})
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    assert len(grads[0]) > 10
    assert all(torch.equal(grads[0][name], grads[1][name]) for name in grads[0])


def test_ouro_keeps_one_slot_per_step_and_layer(ids):
    model = tiny("ouro")
    with torch.no_grad():
        cache = model(ids, use_cache=True).past_key_values
    assert [layer.get_seq_length() for layer in cache.layers] == [10] * 8


def test_the_option_before_the_norm_is_another_rule(ids):
    model = tiny("ouro")
    model.set_control(lt.Constant(0.8))
    with torch.no_grad():
        after = model(ids).logits
        model.config.taps_before_norm = True
        out = model.model(ids)
        x = model.model.embed_tokens(ids)
        states = out.step_states
    assert not torch.equal(model(ids).logits, after)
    rms = states[-1].pow(2).mean(-1)
    torch.testing.assert_close(rms, torch.ones_like(rms), rtol=0, atol=1e-3)  # normed after the scaled step
    assert x.shape == states[0].shape


def test_ouro_scales_the_normed_state_by_default(ids):
    model = tiny("ouro")
    with torch.no_grad():
        x = model.model.embed_tokens(ids)
        first = model.model(ids).step_states[0]
        model.set_control(lt.Constant(0.8))
        scaled = model.model(ids).step_states[0]
    torch.testing.assert_close(scaled, x + 0.8 * (first - x), rtol=0, atol=1e-6)


def test_huginn_draws_its_state_by_seed_and_position(ids):
    model = tiny("huginn")
    positions = torch.arange(10)[None]
    like = torch.zeros(2, 10, 32)
    draw = {seed: model.initial_state(positions, like, seed=seed, scale=1.0) for seed in (0, 1, 0)}
    assert not torch.equal(draw[0], draw[1])
    assert torch.equal(draw[0][0], draw[0][1])
    assert torch.equal(draw[0][:, 7:], model.initial_state(positions[:, 7:], like[:, 7:], seed=0, scale=1.0))
    std = (2 / (5 * 32)) ** 0.5 * 32 ** 0.5
    assert draw[0].abs().max() <= 3 * std
    assert draw[0][0].std() == pytest.approx(0.9865 * std, rel=0.1)  # cut at three sigma
    with torch.no_grad():
        assert torch.equal(model(ids, init_scale=0.0).logits, model(ids, input_states=like).logits)
        assert torch.equal(model(ids).logits, model(ids).logits)
        assert not torch.equal(model(ids).logits, model(ids, state_seed=5).logits)
        with pytest.raises(InvalidShape, match="state_seed"):
            model(ids, input_states=like[:, :3])


def test_huginn_runs_any_number_of_steps(ids):
    model = tiny("huginn")
    with torch.no_grad():
        assert torch.equal(model(ids, num_steps=5).logits, model(ids).logits)
        assert not torch.equal(model(ids, num_steps=2).logits, model(ids).logits)
        assert torch.equal(model(ids, num_steps=(3, 2)).logits, model(ids).logits)
    tokens = model.generate(ids, num_steps=2, max_new_tokens=3, do_sample=False, pad_token_id=0)
    assert tokens.shape == (2, 13)
    for bad in (0, -1, 2.5, (1, 2, 3)):
        with pytest.raises(InvalidValue, match="num_steps"):
            model(ids, num_steps=bad)
    with pytest.raises(InvalidValue, match="block_size"):
        model(torch.ones(1, 65, dtype=torch.long))


def test_huginn_in_bfloat16_keeps_its_rotary_table_in_float32(ids):
    model = tiny("huginn").to(torch.bfloat16)
    with torch.no_grad():
        assert model(ids).logits.dtype == torch.float32
    assert model._angles.dtype == torch.float32


def test_models_with_their_own_loop_take_no_window(ids):
    for kind in KINDS:
        with pytest.raises(InvalidUse, match="brings its own loop"):
            lt.hf.attach(tiny(kind), lt.TapsGD(), layers=(0, 1), loops=2)


def test_bad_configurations_are_refused():
    with pytest.raises(InvalidUse, match="sliding"):
        lt.hf.OuroConfig(layer_types=["sliding_attention"] * 24)
    with pytest.raises(InvalidUse, match="test_time_noise"):
        lt.hf.HuginnConfig(test_time_noise=0.1)
    with pytest.raises(InvalidValue, match="prelude"):
        lt.hf.HuginnConfig(n_layers=9)
    with pytest.raises(InvalidValue, match="exit_at_step"):
        tiny("ouro")(torch.ones(1, 2, dtype=torch.long), exit_at_step=4)
