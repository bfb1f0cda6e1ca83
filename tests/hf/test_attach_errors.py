"""What cannot work is refused in one clear sentence, and the model is untouched."""

import copy
import pickle

import pytest
import torch
import transformers as tf

import looptaps as lt
from looptaps.errors import InvalidType, InvalidUse, InvalidValue, UnknownName


def state(model):
    return {name: sorted(module.__dict__) for name, module in model.named_modules()}


@pytest.mark.parametrize(("options", "error", "message"), [
    ({"layers": (4, 6)}, InvalidValue, "6 layers"),
    ({"layers": (3, 1)}, InvalidValue, "first <= last"),
    ({"layers": (-1, 2)}, InvalidValue, "0 <= first"),
    ({"layers": 3}, InvalidValue, "two whole numbers"),
    ({"layers": None}, InvalidValue, "two whole numbers"),
    ({"loops": 0}, InvalidValue, ">= 1"),
    ({"loops": None}, InvalidValue, ">= 1"),
    ({"scope": "batch"}, InvalidValue, "sequence"),
    ({"kv": "middle"}, InvalidValue, "stage"),
    ({"control": "taps-gd"}, InvalidType, "lt.spec"),
    ({"control": lt.Control(lt.TapsGD(), site="outer")}, InvalidValue, "inner"),
    ({"control": lt.Control(lt.TapsGD(), memory="cycle")}, InvalidValue, "rollout"),
])
def test_bad_arguments_leave_the_model_untouched(make, ids, options, error, message):
    model = make("llama")
    before = state(model)
    options = {"layers": (1, 2), "loops": 2, "control": lt.TapsGD(), **options}
    with pytest.raises(error, match=message):
        lt.hf.attach(model, options.pop("control"), **options)
    assert state(model) == before


def test_an_unknown_rule_names_the_closest():
    with pytest.raises(UnknownName, match="taps-adam"):
        lt.spec("taps-adan@blocks")


def test_a_second_attach_is_refused_through_any_door(make, ids):
    model = make("llama")
    with lt.hf.attach(model, lt.TapsGD(), layers=(1, 2), loops=2):
        before = state(model)
        for door in (model, model.model):
            with pytest.raises(InvalidUse, match="already"):
                lt.hf.attach(door, lt.TapsGD(), layers=(3, 4), loops=2)
        assert state(model) == before
    lt.hf.attach(model, lt.TapsGD(), layers=(3, 4), loops=2).detach()


def test_mixed_attention_types_in_the_window_are_refused(make):
    model = make("gemma3")
    before = state(model)
    with pytest.raises(InvalidUse, match="mix attention types"):
        lt.hf.attach(model, lt.TapsGD(), layers=(3, 5), loops=2)
    assert state(model) == before
    lt.hf.attach(model, lt.TapsGD(), layers=(5, 5), loops=2).detach()


def test_models_without_layers_are_refused():
    gpt2 = tf.GPT2LMHeadModel(tf.GPT2Config(vocab_size=11, n_embd=8, n_layer=1, n_head=1))
    with pytest.raises(InvalidUse, match="exposes no `layers`"):
        lt.hf.attach(gpt2, lt.TapsGD(), layers=(0, 0), loops=2)
    with pytest.raises(InvalidType, match="transformers language model"):
        lt.hf.attach(torch.nn.Linear(2, 2), lt.TapsGD(), layers=(0, 0), loops=2)
    t5 = tf.T5ForConditionalGeneration(tf.T5Config(vocab_size=11, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2))
    with pytest.raises(InvalidUse, match="encoder-decoder"):
        lt.hf.attach(t5, lt.TapsGD(), layers=(0, 0), loops=2)


def test_a_window_with_recurrent_layers_is_refused(make):
    model = make("llama")
    model.config.layer_types = ["linear_attention"] * 6
    with pytest.raises(InvalidUse, match="not keys and values alone"):
        lt.hf.attach(model, lt.TapsGD(), layers=(0, 1), loops=2)


def test_layers_that_get_different_arguments_are_refused(make, ids):
    model = make("llama")
    with lt.hf.attach(model, lt.TapsGD(), layers=(1, 2), loops=2) as handle:
        looped = model.model.layers[1].forward
        looped.expected = ((), {"mask": ids})
        with pytest.raises(InvalidUse, match="other arguments"):
            model.model.layers[2].forward(ids, mask=ids.clone())
    assert not handle.attached


def test_an_attached_model_is_not_copied(make, ids):
    model = make("llama")
    with lt.hf.attach(model, lt.TapsGD(), layers=(1, 2), loops=2):
        with pytest.raises(InvalidUse, match="Detach first"):
            copy.deepcopy(model)
        with pytest.raises(InvalidUse, match="Detach first"):
            pickle.dumps(model)
    copy.deepcopy(model)


def test_saving_an_attached_model_saves_the_plain_model(make, ids, tmp_path):
    model = make("llama")
    with torch.no_grad():
        plain = model(ids).logits
        with lt.hf.attach(model, lt.TapsGD(), layers=(1, 2), loops=2):
            model.save_pretrained(tmp_path)
        again = tf.AutoModelForCausalLM.from_pretrained(tmp_path)
        assert torch.equal(again(ids).logits, plain)


def test_models_that_share_keys_and_values_are_refused_for_that_reason(make):
    model = make("gemma3n", num_kv_shared_layers=2)
    before = state(model)
    with pytest.raises(InvalidUse, match="num_kv_shared_layers"):
        lt.hf.attach(model, lt.TapsGD(), layers=(1, 1), loops=2)
    assert state(model) == before


def test_a_state_of_several_streams_is_refused(make, ids):
    model = make("gemma3n")
    with torch.no_grad():
        plain = model(ids).logits
        with (lt.hf.attach(model, lt.TapsGD(), layers=(1, 1), loops=2),
              pytest.raises(InvalidUse, match=r"\(4, 2, 10, 32\)")):
            model(ids)
        assert torch.equal(model(ids).logits, plain)
