"""The plain looped transformer, and what all models ask of a batch and of a config."""

import pytest
import torch
import torch.nn.functional as F

import looptaps as lt
from looptaps.errors import InvalidShape, InvalidType, InvalidValue, UnknownName
from looptaps.models.layers import rotary_table, rotate, swiglu_width, truncated_normal


@pytest.mark.parametrize("config", [{}, {"mlp_t": True}])
def test_the_loop_is_h_of_x_plus_h(make, batch, run, config):
    model = make("looped", L_cycles=2, **config)
    carry, _, stats = run(model, batch(), lt.Control(lt.Constant(0.9)), loops=3)
    with torch.no_grad():
        x = model.embed(batch())
        h, weights, rotary = torch.zeros_like(x), model.core.weights(x.dtype), model._rotary(x)
        for _ in range(6):
            h = h + 0.9 * (model.core(h, x, weights, rotary) - h)
    torch.testing.assert_close(carry.z_L, h)
    assert (stats[0].updates, stats[0].updates_high) == (4, 0)


def test_the_core_is_a_plain_pre_norm_transformer(make, batch):
    model = make("looped", L_layers=1, pos_encodings="none")
    x = model.embed(batch())
    block = model.core.layers[0]
    with torch.no_grad():
        h = 2 * x
        qkv = block.self_attn.qkv_proj(F.rms_norm(h, (32,), eps=1e-5))
        q, k, v = qkv.unflatten(-1, (3, 2, 16)).permute(2, 0, 3, 1, 4)
        mixed = ((q @ k.mT / 4).softmax(-1) @ v).transpose(1, 2).flatten(2)
        h = h + block.self_attn.o_proj(mixed)
        gate, up = block.mlp.gate_up_proj(F.rms_norm(h, (32,), eps=1e-5)).chunk(2, -1)
        h = h + block.mlp.down_proj(F.silu(gate) * up)
        torch.testing.assert_close(model.core(x, x, model.core.weights(x.dtype)), h, rtol=1e-5, atol=1e-5)


def test_without_a_q_head_there_is_no_score(make, batch, run):
    model = make("looped", q_head=False)
    carry, _, _ = run(model, batch())
    assert model.readout(carry).score is None
    assert model.heads(carry)[1:] == (None, None)
    assert make("looped").readout(carry).score.shape == (4,)


def test_all_updates_of_a_loop_carry_gradients(make, batch):
    model = make("looped", L_cycles=3)
    seen = []
    model.core.register_forward_hook(lambda *args: seen.append(args[2].requires_grad))
    carry, _, _ = model.advance(model.begin(batch()), lt.Control(lt.Standard()))
    model.heads(carry).logits.sum().backward()
    assert seen == [True] * 3


def test_outer_control_needs_a_second_state(make, batch):
    for kind in ("looped", "fprm"):
        model = make(kind)
        with pytest.raises(InvalidValue, match="site must be 'inner'"):
            model.advance(model.begin(batch()), lt.Control(lt.TapsGD(), site="outer"))


@pytest.mark.parametrize("kind", ["trm", "hrm", "fprm", "looped"])
@pytest.mark.parametrize(("change", "error", "message"), [
    ({"inputs": None}, InvalidType, r"needs batch\['inputs'\]"),
    ({"inputs": torch.zeros(2, 16)}, InvalidType, "whole numbers"),
    ({"inputs": torch.zeros(2, 16, dtype=torch.bool)}, InvalidType, "whole numbers"),
    ({"inputs": torch.zeros(16, dtype=torch.int64)}, InvalidShape, r"\(B, 16\)"),
    ({"inputs": torch.zeros(2, 25, dtype=torch.int64)}, InvalidShape, r"\(B, 16\)"),
    ({"inputs": torch.zeros(0, 16, dtype=torch.int64)}, InvalidShape, r"\(B, 16\)"),
    ({"inputs": torch.full((2, 16), 7)}, InvalidValue, "tokens 0..6"),
    ({"inputs": torch.full((2, 16), -1)}, InvalidValue, "tokens 0..6"),
    ({"puzzle_identifiers": torch.zeros(3, dtype=torch.int64)}, InvalidShape, "puzzle_identifiers"),
    ({"puzzle_identifiers": torch.ones(2, dtype=torch.int64)}, InvalidValue, "puzzles 0..0"),
])
def test_a_batch_that_does_not_fit_is_refused(make, batch, kind, change, error, message):
    given = {key: value for key, value in {**batch(2), **change}.items() if value is not None}
    with pytest.raises(error, match=message):
        make(kind, puzzle_emb_ndim=32).begin(given)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_any_whole_number_type_will_do(make, batch, dtype):
    model = make("trm")
    tokens = batch()["inputs"]
    assert torch.equal(model.begin({"inputs": tokens.to(dtype)}).x, model.begin({"inputs": tokens}).x)


@pytest.mark.parametrize(("config", "error", "message"), [
    ({"hidden_size": 33}, InvalidValue, "num_heads must be a divisor"), ({"L_cycles": 0}, InvalidValue, "L_cycles"),
    ({"H_cycles": True}, InvalidValue, "H_cycles"), ({"forward_dtype": "int8"}, InvalidValue, "forward_dtype"),
    ({"pos_encodings": "sin"}, InvalidValue, "pos_encodings"), ({"expansion": float("nan")}, InvalidValue, "expansion"),
    ({"seq_len": None, "mlp_t": True}, InvalidValue, "seq_len"), ({"mlp_t": "yes"}, InvalidValue, "mlp_t"),
    ({"puzzle_emb_ndim": 99, "puzzle_emb_len": 2}, InvalidValue, "puzzle_emb_len must be 0 or at least 4"),
])
def test_a_make_that_cannot_be_is_refused(make, config, error, message):
    with pytest.raises(error, match=message):
        make("trm", **config)
    with pytest.raises(UnknownName, match="Did you mean 'L_cycles'"):
        lt.models.TRMConfig.from_dict({"vocab_size": 7, "seq_len": 16, "L_cycle": 2})


@pytest.mark.parametrize(("kind", "config", "count"), [
    ("trm", {"mlp_t": True, "pos_encodings": "none"}, 5_028_866), ("trm", {}, 6_828_034), ("hrm", {}, 27_275_266),
    ("trm", {"vocab_size": 6, "seq_len": 900}, 6_822_914),
])
def test_the_released_sizes_come_out(kind, config, count):
    cls = lt.models.MODELS[kind]
    with torch.device("meta"):
        model = cls(cls.config_type(**{"vocab_size": 11, "seq_len": 81, **config}))
    # The release keeps its one puzzle embedding as a buffer, outside its count of parameters.
    assert sum(p.numel() for name, p in model.named_parameters() if name != "puzzle_emb.weights") == count
    assert (swiglu_width(512, 4), swiglu_width(97, 4)) == (1536, 512)


def test_rotation_keeps_lengths_and_depends_on_distance_alone():
    table = rotary_table(8, 4, 10000.0, torch.device("cpu"))
    x = torch.randn(1, 1, 1, 4, generator=torch.Generator().manual_seed(0)).expand(1, 8, 1, 4)
    turned = rotate(x, table)[0, :, 0]
    torch.testing.assert_close(turned.norm(dim=-1), x[0, :, 0].norm(dim=-1))
    scores = turned @ turned.T
    torch.testing.assert_close(scores[0, 3], scores[4, 7])


def test_a_truncated_draw_has_the_deviation_asked_for():
    values = truncated_normal((200_000,), 3.0, torch.Generator().manual_seed(0))
    assert values.std().item() == pytest.approx(3.0, rel=0.01)
    assert values.abs().max().item() <= 3.0 * 2 / 0.8796
    assert truncated_normal((4,), 0.0).eq(0).all()
