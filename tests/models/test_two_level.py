"""TRM and HRM under control, against loops written out by hand."""

import itertools

import pytest
import torch

import looptaps as lt
from looptaps.controllers import SAMPLE


def bare_loop(model, batch, loops):
    """The recurrence with nothing but the cores: what the released forward does."""
    z_H, z_L, x = model.begin(batch)
    low, high = (core.weights(model._dtype) for core in (model.L_level, model._high))
    rotary = model._rotary(x)
    for _ in range(loops):
        for _ in range(model.config.H_cycles):
            for _ in range(model.config.L_cycles):
                z_L = model.L_level(z_L, z_H + x, low, rotary)
            z_H = model._high(z_H, z_L, high, rotary)
    return z_H, z_L


def scaled(end, start, eta):
    return end + (eta.reshape(-1, 1, 1) - 1) * (end - start)


def reference(model, batch, control, loops):
    """Inner and outer control, interval and memory span as one plain loop, with one eta per sample."""
    rule, config = control.rule(), model.config
    z_H, z_L, x = model.begin(batch)
    weights, rotary = model.L_level.weights(model._dtype), model._rotary(x)
    etas, memory, eta = [], rule.init(z_L, SAMPLE), torch.ones(len(x), dtype=x.dtype)

    def ask(delta, index, memory, eta):
        if index % control.every:
            return memory, eta
        decision, memory = rule.update(delta, memory, SAMPLE)
        if control.site == "outer" and isinstance(rule, lt.TapsBB):
            memory = memory._replace(eta=torch.ones_like(memory.eta))  # z_H moves by Delta, whatever eta does to z_L
        return memory, decision.eta

    for _ in range(loops):
        if control.memory == "loop":
            memory, eta = rule.init(z_L, SAMPLE), torch.ones(len(x), dtype=x.dtype)
        loop_H, loop_L = z_H, z_L
        for cycle in range(config.H_cycles):
            if control.memory == "cycle":
                memory, eta = rule.init(z_L, SAMPLE), torch.ones(len(x), dtype=x.dtype)
            start_L = z_L
            for i in range(config.L_cycles):
                proposal = model.L_level(z_L, z_H + x, weights, rotary)
                if control.site == "inner":
                    memory, eta = ask(proposal - z_L, cycle * config.L_cycles + i, memory, eta)
                    proposal = scaled(proposal, z_L, eta)
                    etas.append(eta)
                z_L = proposal
            new_H = model.L_level(z_H, z_L, weights, rotary)
            if control.site == "outer" and control.outer_at == "cycle":
                memory, eta = ask(new_H - z_H, cycle, memory, eta)
                z_L = scaled(z_L, start_L, eta)
                etas.append(eta)
            z_H = new_H
        if control.site == "outer" and control.outer_at == "loop":
            memory, eta = ask(z_H - loop_H, 0, memory, eta)
            z_L = scaled(z_L, loop_L, eta)
            etas.append(eta)
    return z_H, z_L, torch.stack(etas)


@pytest.mark.parametrize("dtypes", [("float32", None), ("bfloat16", None), ("bfloat16", "float32")])
@pytest.mark.parametrize(("kind", "config"), [("trm", {"mlp_t": True}), ("trm", {}), ("hrm", {"puzzle_emb_ndim": 32})])
def test_unit_step_is_the_bare_loop(make, batch, run, kind, config, dtypes):
    model = make(kind, **config, forward_dtype=dtypes[0], state_dtype=dtypes[1])
    for rule in (lt.Standard(), lt.Constant(1.0), lt.Schedule((1.0, 1.0))):
        carry, _, stats = run(model, batch(), lt.Control(rule))
        with torch.no_grad():
            z_H, z_L = bare_loop(model, batch(), 3)
        assert torch.equal(carry.z_H, z_H)
        assert torch.equal(carry.z_L, z_L)
        assert carry.z_L.dtype == getattr(torch, dtypes[1] or dtypes[0])
        assert all(stat.mean_eta.eq(1).all() and stat.finite.all() for stat in stats)


# Outer control once per loop knows no interval: see the refusal below.
POLICIES = [policy for policy in itertools.product(["inner", "cycle", "loop"], [1, 2, 4], ["rollout", "loop", "cycle"])
            if policy[0] != "loop" or policy[1] == 1]


@pytest.mark.parametrize(("site", "every", "memory"), POLICIES)
def test_control_does_what_a_loop_written_by_hand_does(make, batch, run, site, every, memory):
    outer = {"site": "outer", "outer_at": site} if site != "inner" else {}
    # In float64, because untrained models amplify rounding: measured 4e-8 at most.
    model = make("trm", mlp_t=True, forward_dtype="float64").double()
    for rule in (lt.TapsGD(), lt.TapsBB(), lt.TapsAdam(warmup=1)):
        control = lt.Control(rule, every=every, memory=memory, **outer)
        carry, last, stats = run(model, batch(), control, loops=4, trace=True)
        with torch.no_grad():
            z_H, z_L, etas = reference(model, batch(), control, 4)
        seen = torch.cat([stat.trace.eta for stat in stats])
        for value, wanted in ((carry.z_H, z_H), (carry.z_L, z_L), (seen, etas), (last.eta, etas[-1])):
            torch.testing.assert_close(value, wanted, rtol=0, atol=1e-6)
        assert torch.equal(stats[-1].mean_eta, stats[-1].trace.eta.mean(0))
        # Something was controlled at all, unless memory is too short to see two updates.
        span = {"inner": 6, "cycle": 1, "loop": 1} if memory == "cycle" else {"inner": 18, "cycle": 3, "loop": 1}
        assert (etas != 1).any() or (memory != "rollout" and -(-span[site] // every) <= 2)


@pytest.mark.parametrize(("kind", "config", "low", "high"), [
    ("trm", {}, 36, 6), ("trm", {"L_cycles": 4, "mlp_t": True}, 24, 6), ("trm", {"H_cycles": 1, "L_cycles": 1}, 2, 2),
    ("hrm", {}, 16, 8), ("hrm", {"H_layers": 3, "L_layers": 1}, 4, 6),
])
def test_updates_are_the_counted_layer_applications(make, batch, run, kind, config, low, high):
    model = make(kind, **config)
    applied = []
    for core in dict.fromkeys((model.L_level, model._high)):
        core.register_forward_hook(lambda core, args, _: applied.append((args[1], len(core.layers))))
    carry, _, stats = run(model, batch(), lt.Control(lt.TapsGD()), loops=1)
    assert (stats[0].updates, stats[0].updates_high) == (low, high)
    assert sum(layers for _, layers in applied) == low + high
    # One call in L_cycles + 1 is z_H's: it sees the low state where z_L's calls see the injection.
    cycle = model.config.L_cycles + 1
    assert sum(layers for _, layers in applied[cycle - 1 :: cycle]) == high
    assert torch.equal(applied[-1][0], carry.z_L)


def test_statistics_are_those_of_the_last_two_updates(make, batch, run):
    model = make("trm", mlp_t=True)
    for control in (lt.Control(lt.Standard()), lt.Control(lt.TapsGD()), lt.Control(lt.TapsGD(), site="outer")):
        seen = []
        hook = model.L_level.register_forward_hook(lambda _, args, out, seen=seen: seen.append((args[0], out)))
        _, _, stats = run(model, batch(), control, loops=2, moves="rms")
        hook.remove()
        deltas = [out - before for before, out in seen]
        for row, delta in zip(stats[-1].residuals, deltas[-3:-1], strict=True):  # the very last call updates z_H
            torch.testing.assert_close(row, delta.square().mean((1, 2)))
        assert stats[-1].moves.shape == (18, 4)
        if control.controller == lt.Standard():
            before, after = seen[-2]
            expected = ((after - before).square().mean((1, 2)) / after.square().mean((1, 2))).sqrt()
            torch.testing.assert_close(stats[-1].moves[-1], expected)
    _, _, stats = run(make("trm", H_cycles=1, L_cycles=1), batch(), loops=1, moves="max")
    assert stats[0].residuals[0].isnan().all()
    assert stats[0].residuals[1].isfinite().all()
    assert stats[0].moves.shape == (1, 4)


@pytest.mark.parametrize(("kind", "graded"), [("trm", 7), ("hrm", 2)])
def test_gradients_flow_where_the_release_lets_them(make, batch, kind, graded):
    model = make(kind, mlp_t=True) if kind == "trm" else make(kind)
    seen = []
    for core in dict.fromkeys((model.L_level, model._high)):
        core.register_forward_hook(lambda *args: seen.append(args[2].requires_grad))
    carry, _, _ = model.advance(model.begin(batch()), lt.Control(lt.Standard()))
    assert seen[-graded:] == [True] * graded
    assert not any(seen[:-graded])
    heads = model.heads(carry)
    (heads.logits.square().mean() + heads.q_halt.sum() + heads.q_continue.sum()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_resume_restarts_the_halted_and_detaches_the_rest(make, batch):
    model = make("trm")
    carry, _, _ = model.advance(model.begin(batch()), lt.Control(lt.Standard()))
    again = model.resume(carry, batch(), torch.tensor([True, False, False, True]))
    fresh = model.begin(batch())
    assert torch.equal(again.z_L[0], fresh.z_L[0])
    assert torch.equal(again.z_L[1], carry.z_L[1])
    assert not again.z_L.requires_grad
    assert again.x.requires_grad


def test_a_penalty_on_the_trace_reaches_the_weights(make, batch):
    model = make("trm", mlp_t=True)
    carry, memory, _ = model.advance(model.begin(batch()), lt.Control(lt.TapsGD()))
    _, _, stats = model.advance(carry, lt.Control(lt.TapsGD()), memory, trace=True)
    assert not stats.trace.eta.requires_grad
    lt.models.TRM.zero_grad(model)
    stats.trace.fluctuation[-1].sum().backward()
    assert model.L_level.layers[0].mlp.down_proj.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("prefix", [0, 32])
def test_q_reads_the_first_prefix_position_or_else_the_mean(make, batch, run, prefix):
    model = make("trm", puzzle_emb_ndim=prefix, puzzle_emb_len=3)
    carry, _, _ = run(model, batch())
    state = carry.z_H[:, 0] if prefix else carry.z_H.mean(1)
    q = state @ model.q_head.weight.T + model.q_head.bias
    heads = model.heads(carry)
    torch.testing.assert_close(torch.stack((heads.q_halt, heads.q_continue), 1), q)
    assert heads.logits.shape == (4, 16, 7)
    assert carry.z_H.shape == (4, 19 if prefix else 16, 32)
    assert torch.equal(model.readout(carry).score, heads.q_halt)


@pytest.mark.parametrize("kind", ["trm", "hrm"])
def test_token_scope_gives_each_position_its_own_eta(make, batch, run, kind):
    _, memory, stats = run(make(kind), batch(), lt.Control(lt.TapsGD(), scope="token"), loops=2, trace=True)
    assert memory.eta.shape == (4, 16)
    assert stats[0].trace.eta.shape[1:] == (4, 16)
    assert stats[0].eta.shape == stats[0].mean_eta.shape == stats[0].finite.shape == (4,)


def test_a_compiled_core_answers_as_the_eager_one(make, batch, run):
    model = make("trm", mlp_t=True)
    eager, _, _ = run(model, batch(), lt.Control(lt.TapsGD()), loops=2)
    names = list(model.state_dict())
    model.compile_core(backend="eager")
    compiled, _, _ = run(model, batch(), lt.Control(lt.TapsGD()), loops=2)
    assert torch.equal(eager.z_H, compiled.z_H)
    assert list(model.state_dict()) == names


@pytest.mark.parametrize(("control", "message"), [
    (lt.Control(lt.TapsGD(), site="outer", outer_at="loop", every=2), "every must be 1"),
])
def test_an_interval_without_meaning_is_refused(make, batch, control, message):
    model = make("trm")
    with pytest.raises(lt.errors.InvalidValue, match=message):
        model.advance(model.begin(batch()), control)


def test_a_bare_controller_will_do_and_text_will_not(make, batch):
    model = make("trm")
    model.advance(model.begin(batch()), lt.TapsGD())
    with pytest.raises(lt.errors.InvalidType, match="spec"):
        model.advance(model.begin(batch()), "taps-gd")
    with pytest.raises(lt.errors.InvalidValue, match="moves"):
        model.advance(model.begin(batch()), lt.TapsGD(), moves="l2")
