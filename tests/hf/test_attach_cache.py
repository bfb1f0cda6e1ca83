"""Decoding with a cache gives what a full forward gives, and caches are not mixed."""

import pytest
import torch
from transformers import DynamicCache, StaticCache

import looptaps as lt

RULES = ("standard", "taps-gd@blocks", "taps-sign@blocks", "taps-momentum@blocks", "taps-rmsprop@blocks",
         "taps-adam@blocks", "taps-bb@blocks")


def full_logits(model, tokens, prompt):
    with torch.no_grad():
        return model(tokens, use_cache=False).logits[:, prompt - 1:-1]


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3", "mistral"])
@pytest.mark.parametrize("rule", RULES)
def test_cached_decoding_equals_the_full_forward_in_token_scope(make, ids, kind, rule, generate):
    model = make(kind)
    with lt.hf.attach(model, lt.spec(rule), layers=(1, 3), loops=3, scope="token"):
        tokens, logits = generate(model, ids)
        uncached, _ = generate(model, ids, use_cache=False)
        full = full_logits(model, tokens, ids.shape[1])
    assert torch.equal(tokens, uncached)
    assert (logits - full).abs().max() < 2e-5


def test_every_stage_keeps_its_own_slots(make, ids):
    model = make("llama")
    with torch.no_grad(), lt.hf.attach(model, lt.Standard(), layers=(2, 4), loops=3):
        cache = model(ids, use_cache=True).past_key_values
    assert len(cache.layers) == 6 + 2 * 3
    assert {layer.get_seq_length() for layer in cache.layers} == {10}
    assert not torch.equal(cache.layers[2].keys, cache.layers[6].keys)


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_a_static_cache_works(make, ids, kind, generate):
    model = make(kind)
    with lt.hf.attach(model, lt.spec("taps-adam@blocks"), layers=(1, 3), loops=3, scope="token"), torch.no_grad():
        cache = StaticCache(config=model.config, max_cache_len=24)
        tokens = model(ids, past_key_values=cache).logits[:, -1:].argmax(-1)
        step = model(tokens, past_key_values=cache).logits[:, -1]
        full = model(torch.cat([ids, tokens], 1), use_cache=False).logits[:, -1]
    assert (step - full).abs().max() < 2e-5


def test_a_prompt_in_chunks_is_the_prompt_in_token_scope(make, ids):
    model = make("llama")
    with torch.no_grad(), lt.hf.attach(model, lt.spec("taps-bb@blocks"), layers=(1, 3), loops=3, scope="token"):
        cache = DynamicCache(config=model.config)
        first = model(ids[:, :4], past_key_values=cache).logits
        second = model(ids[:, 4:], past_key_values=cache).logits
        full = model(ids, use_cache=False).logits
    assert (torch.cat([first, second], 1) - full).abs().max() < 2e-5


@pytest.mark.parametrize("kv", ["first", "last"])
def test_single_slot_policies_keep_one_slot_per_layer(make, ids, kv, generate):
    model = make("gemma3")
    with torch.no_grad():
        plain = model(ids, use_cache=True).past_key_values
    with lt.hf.attach(model, lt.Standard(), layers=(1, 3), loops=3, kv=kv):
        with torch.no_grad():
            cache = model(ids, use_cache=True).past_key_values
        tokens, logits = generate(model, ids)
        full = full_logits(model, tokens, ids.shape[1])
    assert len(cache.layers) == 6
    # `first` stores what the unlooped window would have stored; `last` what it sees after the loop.
    same = torch.equal(cache.layers[2].keys, plain.layers[2].keys)
    assert same == (kv == "first")
    assert (logits[:, 0] - full[:, 0]).abs().max() < 2e-5  # the prompt is exact
    assert (logits - full).abs().max() > 1e-3  # the price of sharing a slot


def test_a_cache_from_another_setting_is_refused(make, ids):
    model = make("llama")
    with torch.no_grad():
        plain = model(ids, use_cache=True).past_key_values
        with lt.hf.attach(model, lt.TapsGD(), layers=(1, 3), loops=3):
            with pytest.raises(lt.errors.InvalidUse, match="plain model"):
                model(ids[:, :1], past_key_values=plain)
            cache = model(ids, use_cache=True).past_key_values
            model(ids[:, :1], past_key_values=cache)
        for changes in ({"loops": 2}, {"layers": (1, 2)}, {"scope": "token"}, {"kv": "first"}):
            with (lt.hf.attach(model, lt.TapsGD(), **{"layers": (1, 3), "loops": 3, **changes}),
                  pytest.raises(lt.errors.InvalidUse, match="another setting")):
                model(ids[:, :1], past_key_values=cache)
        assert plain.get_seq_length() == 10
        with lt.hf.attach(model, lt.TapsGD(), layers=(1, 3), loops=3):  # the same setting goes on
            model(ids[:, :1], past_key_values=cache)


@pytest.mark.parametrize(("loops", "kv"), [(3, "stage"), (3, "first"), (1, "stage")])
def test_a_cache_that_the_plain_model_went_on_with_is_refused(make, ids, loops, kv):
    model = make("llama")
    token = ids[:, :1]

    def looped():
        return lt.hf.attach(model, lt.TapsGD(), layers=(1, 3), loops=loops, kv=kv)

    with torch.no_grad():
        with looped():
            cache = model(ids, use_cache=True).past_key_values
            cropped = model(ids, use_cache=True).past_key_values
        model(token, past_key_values=cache)
        with looped(), pytest.raises(lt.errors.InvalidUse, match="model without the loop went on"):
            model(token, past_key_values=cache)
        with looped():
            cropped.crop(-3)  # tokens taken back are no other model's
            model(ids[:, 7:], past_key_values=cropped)
            model(token, past_key_values=cropped)
        if kv == "stage" and loops > 1:  # as long as the loop left it, but not the loop's
            cropped.crop(-3)
            model(ids[:, :3], past_key_values=cropped)
            with looped(), pytest.raises(lt.errors.InvalidUse, match="model without the loop went on"):
                model(token, past_key_values=cropped)


@pytest.mark.parametrize("kv", ["stage", "first", "last"])
def test_assisted_generation_works_on_a_sliding_window(make, ids, kv):
    model = make("gemma3")  # the prompt is longer than its window of 6
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    with lt.hf.attach(model, lt.spec("taps-adam@blocks"), layers=(1, 3), loops=3, scope="token", kv=kv):
        assisted = model.generate(ids[:1], prompt_lookup_num_tokens=3, **options)
        greedy = model.generate(ids[:1], **options)
    assert assisted.shape == greedy.shape
    if kv == "stage":  # the others depend on how tokens are grouped into forwards
        assert torch.equal(assisted, greedy)


def test_a_stage_has_no_attributes_but_a_caches():
    from looptaps.hf.slots import PeekView, SlotView

    for view in (SlotView(DynamicCache(), 0), PeekView(DynamicCache())):
        assert not hasattr(view, "to")  # as accelerate asks
        with pytest.raises(lt.errors.InvalidUse, match="cannot answer"):
            view.conv_states  # noqa: B018
