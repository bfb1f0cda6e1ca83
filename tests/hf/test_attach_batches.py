"""Neighbours, padding and later tokens change nothing that they should not."""

import pytest
import torch

import looptaps as lt

KINDS = ("llama", "qwen3", "gemma3", "mistral")


def pad(rows, side, length):
    out, mask = torch.zeros(len(rows), length, dtype=torch.long), torch.zeros(len(rows), length, dtype=torch.long)
    for n, row in enumerate(rows):
        where = slice(length - len(row), length) if side == "left" else slice(0, len(row))
        out[n, where], mask[n, where] = row, 1
    return out, mask


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("scope", ["token", "sequence"])
@pytest.mark.parametrize("kv", ["stage", "first"])
def test_padded_batches_equal_single_runs(make, ids, kind, side, scope, kv):
    model = make(kind)
    rows = [ids[0], ids[1, :6]]
    tokens, mask = pad(rows, side, 12)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad(), lt.hf.attach(model, lt.spec("taps-adam@blocks"), layers=(1, 3), loops=3, scope=scope, kv=kv):
        batch = model(tokens, attention_mask=mask, position_ids=positions).logits
        for n, row in enumerate(rows):
            assert (batch[n][mask[n].bool()] - model(row[None]).logits[0]).abs().max() < 2e-5


@pytest.mark.parametrize("scope", ["token", "sequence"])
@pytest.mark.parametrize("rule", ["taps-adam@blocks", "taps-bb@blocks"])
def test_left_padded_generation_equals_single_runs(make, ids, scope, rule, generate):
    model = make("llama")
    rows = [ids[0], ids[1, :6]]
    tokens, mask = pad(rows, "left", 10)
    with lt.hf.attach(model, lt.spec(rule), layers=(1, 3), loops=3, scope=scope):
        batch, logits = generate(model, tokens, attention_mask=mask)
        for n, row in enumerate(rows):
            alone, single = generate(model, row[None])
            assert torch.equal(batch[n, 10:], alone[0, len(row):])
            assert (logits[n] - single[0]).abs().max() < 2e-5


def test_token_scope_is_causal_and_sequence_scope_is_not(make, ids):
    model = make("llama")
    changed = ids.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 97
    leak = {}
    for scope in ("token", "sequence"):
        for rule in ("taps-gd@blocks", "taps-momentum@blocks", "taps-bb@blocks"):
            with torch.no_grad(), lt.hf.attach(model, lt.spec(rule), layers=(1, 3), loops=3, scope=scope):
                leak[scope, rule] = (model(ids).logits - model(changed).logits)[:, :-1].abs().max().item()
    assert all(value == 0.0 for (scope, _), value in leak.items() if scope == "token")
    assert max(value for (scope, _), value in leak.items() if scope == "sequence") > 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_beams_and_sampling_equal_their_uncached_runs(make, ids, kind):
    model = make(kind)
    with torch.no_grad(), lt.hf.attach(model, lt.spec("taps-adam@blocks"), layers=(1, 3), loops=3, scope="token"):
        for options in ({"num_beams": 3}, {"do_sample": True, "temperature": 0.7},
                        {"num_beams": 4, "num_return_sequences": 2}):
            runs = []
            for use_cache in (True, False):
                torch.manual_seed(3)
                runs.append(model.generate(ids, max_new_tokens=6, use_cache=use_cache, pad_token_id=0, **options))
            assert torch.equal(*runs)


def test_scope_of_the_control_holds_unless_replaced(make, ids):
    model = make("llama")
    control = lt.Control(lt.TapsGD(), scope="token")
    for scope, shape in ((None, (2, 2, 10)), ("sequence", (2, 2))):
        with torch.no_grad(), lt.hf.attach(model, control, layers=(1, 2), loops=2, scope=scope) as handle:
            model(ids)
            assert handle.trace[0].shape == shape


def test_a_prepared_mask_is_refused_in_sequence_scope(make, ids):
    model = make("llama")
    mask = torch.ones(2, 1, 10, 10, dtype=torch.bool).tril()
    with torch.no_grad():
        with lt.hf.attach(model, lt.TapsGD(), layers=(1, 2), loops=2, scope="token"):
            model(ids, attention_mask=mask)
        with (lt.hf.attach(model, lt.TapsGD(), layers=(1, 2), loops=2),
              pytest.raises(lt.errors.InvalidUse, match="2-D attention_mask")):
            model(ids, attention_mask=mask)


@pytest.mark.parametrize("side", ["left", "right"])
def test_sequence_scope_knows_the_padding_of_a_multimodal_model(make, ids, side, generate):
    # Gemma3ForConditionalGeneration hands its decoder masks by layer type instead of the 2-D one.
    model = make("gemma3_multimodal")
    rows = [ids[0], ids[1, :6]]
    tokens, mask = pad(rows, side, 12)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    options = {"attention_mask": mask, "position_ids": positions}
    with torch.no_grad():
        plain = model(ids).logits
        with lt.hf.attach(model, lt.Standard(), layers=(1, 3), loops=1):
            assert torch.equal(model(ids).logits, plain)
        with lt.hf.attach(model, lt.spec("taps-adam@blocks"), layers=(1, 3), loops=3):
            for door in (model, model.model):  # either may be called
                batch = door(tokens, **options)[0]
                for n, row in enumerate(rows):
                    assert (batch[n][mask[n].bool()] - door(row[None])[0][0]).abs().max() < 2e-5
            assert generate(model, ids)[0].shape == (2, 18)
            masks = {kind: torch.ones(2, 1, 10, 10, dtype=torch.bool).tril()
                     for kind in ("full_attention", "sliding_attention")}
            with pytest.raises(lt.errors.InvalidUse, match="2-D attention_mask"):  # not that of the forward before
                model.model.language_model(ids, attention_mask=masks)
        assert torch.equal(model(ids).logits, plain)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3", "mistral", "gemma3_multimodal"])
@pytest.mark.parametrize("scope", ["token", "sequence"])
def test_generation_with_a_static_cache_equals_a_dynamic_one(make, ids, kind, scope, generate):
    model = make(kind)
    with lt.hf.attach(model, lt.spec("taps-adam@blocks"), layers=(1, 3), loops=3, scope=scope):
        tokens, logits = generate(model, ids)
        static_tokens, static_logits = generate(model, ids, cache_implementation="static")
    assert torch.equal(static_tokens, tokens)
    assert (static_logits - logits).abs().max() < 2e-5


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_a_padded_static_cache_works_in_token_scope_and_is_refused_in_sequence_scope(make, ids, kind, generate):
    model = make(kind)
    tokens, mask = pad([ids[0], ids[1, :6]], "left", 10)
    options = {"attention_mask": mask, "cache_implementation": "static"}
    with lt.hf.attach(model, lt.spec("taps-adam@blocks"), layers=(1, 3), loops=3, scope="token"):
        assert torch.equal(generate(model, tokens, **options)[0], generate(model, tokens, attention_mask=mask)[0])
    with (lt.hf.attach(model, lt.spec("taps-adam@blocks"), layers=(1, 3), loops=3),
          pytest.raises(lt.errors.InvalidUse, match="scope='token'")):
        generate(model, tokens, **options)
