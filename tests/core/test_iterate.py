"""`iterate` is the paper's unified algorithm: masks, refresh interval, schedules, traces, gradients."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

import looptaps as lt
from looptaps.controllers.base import Sample, Segments, Token
from looptaps.testing import AffineCore, WaveCore, updates

X = updates(1, 4, 5, 16)[0]


def plain(core, x, rule, steps):
    """The loop as a user would write it, naively."""
    memory, etas = rule.init(x), []
    for _ in range(steps):
        delta = core(x) - x
        decision, memory = rule.update(delta, memory)
        etas.append(decision.eta)
        x = x + decision.eta.reshape(-1, 1, 1) * delta
    return x, torch.stack(etas)


def test_iterate_is_the_loop_of_the_paper(controller):
    core = WaveCore(16)
    with torch.no_grad():
        run = lt.iterate(core, X, controller, 10, trace=True)
        x, etas = plain(core, X, controller, 10)
    assert torch.allclose(run.x, x, atol=1e-5)
    assert torch.allclose(run.trace.eta, etas, atol=1e-4)


def test_a_rollout_can_be_cut_and_resumed_exactly(controller):
    core = WaveCore(16)
    whole = lt.iterate(core, X, controller, 10)
    half = lt.iterate(core, X, controller, 4)
    rest = lt.iterate(core, half.x, controller, 6, memory=half.memory)
    assert torch.equal(rest.x, whole.x)


def test_zero_steps_change_nothing():
    run = lt.iterate(WaveCore(16), X, lt.TapsGD(), 0, trace=True)
    assert torch.equal(run.x, X)
    assert run.trace is None


def test_steady_progress_speeds_up_and_alternation_slows_down(rule):
    steady, alternating = (AffineCore(torch.full((16,), rate)) for rate in (0.9, -0.9))
    assert (lt.iterate(steady, X, rule, 8).memory.eta > 1).all()
    assert (lt.iterate(alternating, X, rule, 8).memory.eta < 1).all()


@pytest.mark.parametrize("every", [1, 2, 3])
def test_between_refreshes_eta_is_held_and_the_controller_sees_nothing(rule, every):
    core = WaveCore(16)
    run = lt.iterate(core, X, lt.Control(rule, every=every), 12, trace=True)
    assert (run.memory.rule.k == (12 + every - 1) // every).all()
    for k in range(12):
        assert torch.equal(run.trace.eta[k], run.trace.eta[k - k % every])
        assert run.trace.balance[k].isnan().all() == (k % every != 0)


def test_with_an_interval_the_last_delta_is_that_of_the_last_refresh():
    core, rule = WaveCore(16), lt.TapsGD(warmup=1)
    run = lt.iterate(core, X, lt.Control(rule, every=2), 4)
    x, memory, seen = X, None, []
    with torch.no_grad():
        for k in range(4):
            seen.append(core(x) - x)
            if k % 2 == 0:
                memory = rule.init(x) if memory is None else memory
                decision, memory = rule.update(seen[-1], memory)
            x = lt.iterate(core, x, etas=decision.eta[None]).x
    assert torch.equal(run.memory.rule.previous, seen[2])
    assert torch.equal(run.x, x)


def test_bb_with_an_interval_takes_the_whole_displacement():
    """Held for q steps, eta moves the state by about q * eta * Delta: kappa is divided by q."""
    core = AffineCore(torch.full((16,), 0.5))
    every = {q: lt.iterate(core, X, lt.Control(lt.TapsBB(warmup=9), every=q), q + 1, trace=True) for q in (1, 2)}
    # Delta_{k+1} = r^q Delta_k, so kappa = (1 - r^q) / q and S = kappa^2 P.
    for q, run in every.items():
        kappa2 = run.trace.fluctuation[q] / run.trace.progress[q]
        assert torch.allclose(kappa2, torch.full((4,), ((1 - 0.5**q) / q) ** 2), rtol=1e-5)


def test_padding_does_not_count():
    core = WaveCore(16)
    mask = torch.tensor([[True] * 3 + [False] * 2] * 4)
    masked = lt.iterate(core, X, lt.TapsAdam(), 8, mask=mask, trace=True)
    short = lt.iterate(core, X[:, :3], lt.TapsAdam(), 8, trace=True)
    assert torch.allclose(masked.trace.eta, short.trace.eta, atol=1e-6)
    assert not torch.allclose(masked.trace.eta, lt.iterate(core, X, lt.TapsAdam(), 8, trace=True).trace.eta)


def test_token_scope_is_causal():
    core = lambda x: torch.sin(1.3 * x) + 0.1  # noqa: E731  (no position sees another)
    other = X.clone()
    other[:, -1] += 1
    a, b = (lt.iterate(core, x, lt.Control(lt.TapsAdam(), scope="token"), 8, trace=True) for x in (X, other))
    assert torch.equal(a.trace.eta[..., :-1], b.trace.eta[..., :-1])
    assert a.trace.eta.shape == (8, 4, 5)
    assert not torch.equal(a.trace.eta[..., -1], b.trace.eta[..., -1])


def test_segments_are_the_samples_of_a_flattened_batch():
    core = WaveCore(16)
    rows = lt.iterate(core, X, lt.TapsAdam(), 8, trace=True)
    flat = lt.iterate(core, X.flatten(0, 1), lt.TapsAdam(), 8, scope=Segments(torch.arange(4).repeat_interleave(5)),
                      trace=True)
    assert torch.allclose(flat.x.reshape(X.shape), rows.x, atol=1e-6)
    assert torch.allclose(flat.trace.eta.reshape(8, 4, 5), rows.trace.eta[..., None].expand(8, 4, 5), atol=1e-6)


def test_states_of_any_rank_have_one_eta_per_sample():
    core = WaveCore(4)
    for shape in ((3, 4), (3, 2, 4), (3, 2, 5, 4)):
        run = lt.iterate(core, torch.randn(shape, generator=torch.Generator().manual_seed(0)), lt.TapsGD(), 4)
        assert run.memory.eta.shape == (3,)


def test_a_schedule_of_tensors_equals_the_schedule_of_numbers():
    core = WaveCore(16)
    numbers = lt.iterate(core, X, lt.Schedule((1, 0.9, 1.2)), 3)
    assert torch.equal(lt.iterate(core, X, etas=torch.tensor([1, 0.9, 1.2])).x, numbers.x)
    per_sample = torch.tensor([1, 0.9, 1.2])[:, None].expand(3, 4)
    traced = lt.iterate(core, X, etas=per_sample, trace=True)
    assert torch.equal(traced.x, numbers.x)
    assert torch.equal(traced.trace.eta, per_sample)
    assert traced.trace.progress is None


def test_the_last_value_of_a_schedule_holds_past_its_end():
    core = WaveCore(16)
    a, b = (lt.iterate(core, X, lt.Schedule(etas), 6).x for etas in ((1, 0.9), (1, 0.9, 0.9, 0.9, 0.9, 0.9)))
    assert torch.equal(a, b)


def test_eta_is_a_constant_to_autograd_unless_asked(rule):
    core, rule = WaveCore(16), replace(rule, rho=0.1, eta_min=0.5, eta_max=1.5)  # nothing is clipped
    grads = {}
    for through in (False, True):
        core.zero_grad()
        lt.iterate(core, X, lt.Control(rule, grad_through_eta=through), 6).x.square().sum().backward()
        grads[through] = core.weight.grad.clone()
    # Fixing the etas of the run by hand gives the gradient with eta as a constant.
    core.zero_grad()
    etas = lt.iterate(core, X, rule, 6, trace=True).trace.eta.detach()
    lt.iterate(core, X, etas=etas).x.square().sum().backward()
    assert torch.allclose(grads[False], core.weight.grad, rtol=1e-5, atol=1e-6)
    # sign() has no slope, and RMSProp's score is nearly one.
    flat = isinstance(rule, lt.TapsSign | lt.TapsRMSProp)
    assert flat or not torch.allclose(grads[True], grads[False], rtol=1e-4)


def test_grad_through_eta_is_the_derivative_of_the_whole_loop():
    core = WaveCore(16, dtype=torch.float64)
    x = X.double()
    control = lt.Control(lt.TapsAdam(), grad_through_eta=True)
    lt.iterate(core, x, control, 6).x.square().sum().backward()
    h, direction = 1e-6, torch.ones(16, dtype=torch.float64)
    ends = []
    for sign in (1, -1):
        moved = WaveCore(16, dtype=torch.float64)
        with torch.no_grad():
            moved.weight += sign * h * direction
            ends.append(lt.iterate(moved, x, control, 6).x.square().sum())
    numeric = (ends[0] - ends[1]).item() / (2 * h)
    assert (core.weight.grad @ direction).item() == pytest.approx(numeric, rel=1e-5)


def test_a_trace_keeps_the_graph_of_progress_and_fluctuation_so_that_a_penalty_can_train(rule):
    core = WaveCore(16)
    trace = lt.iterate(core, X, rule, 5, trace=True).trace
    assert not trace.eta.requires_grad
    (trace.fluctuation - 4 * trace.progress).relu().sum().add(trace.progress.sum()).backward()
    assert core.weight.grad.isfinite().all()
    assert (core.weight.grad != 0).any()
    with torch.no_grad():
        assert not lt.iterate(core, X, rule, 5, trace=True).trace.progress.requires_grad


def test_nan_in_one_sample_is_flagged_and_harms_only_itself(controller):
    core = WaveCore(16)
    bad = X.clone()
    bad[2, 1, 3] = torch.nan
    with torch.no_grad():
        clean = lt.iterate(core, X, controller, 6, trace=True)
        dirty = lt.iterate(core, bad, controller, 6, trace=True)
    others = [0, 1, 3]
    assert torch.equal(dirty.x[others], clean.x[others])
    assert torch.equal(dirty.trace.eta[:, others], clean.trace.eta[:, others])
    assert not dirty.trace.finite[:, 2].any()
    assert dirty.trace.finite[:, others].all()
    assert (dirty.trace.eta[:, 2] == 1).all()


@pytest.mark.parametrize("scope", [None, Token()], ids=["sample", "token"])
@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
@pytest.mark.parametrize("trace", [True, False])
def test_between_refreshes_an_update_that_is_not_finite_is_flagged_in_the_trace(rule, scope, poison, trace):
    """Only there: eta is held and the rule sees nothing, with a trace or without."""
    core, calls = WaveCore(16), []

    def f(x):
        calls.append(x)
        bad = torch.zeros(4, 5, 1, dtype=torch.bool)
        bad[2, 1] = len(calls) == 7
        return torch.where(bad, poison, core(x))

    with torch.no_grad():
        run = lt.iterate(f, X, lt.Control(rule, every=4), 8, scope=scope, trace=trace)
        clean = lt.iterate(core, X, lt.Control(rule, every=4), 8, scope=scope, trace=True)
    assert torch.equal(run.memory.eta, clean.memory.eta)
    assert (run.memory.rule.k == 2).all()
    if trace:
        flags = run.trace.finite if scope is not None else run.trace.finite[..., None].expand(8, 4, 5)
        assert not flags[6, 2, 1]
        assert not flags[7, 2, 1]
        assert flags[:6].all()
        assert flags[:, [0, 1, 3]].all()


def test_padding_that_is_not_finite_is_not_flagged_between_refreshes():
    bad = X.clone()
    bad[:, 4] = torch.nan
    mask = torch.tensor([[True] * 4 + [False]] * 4)
    run = lt.iterate(WaveCore(16), bad, lt.Control(lt.TapsGD(), every=2), 4, mask=mask, trace=True)
    assert run.trace.finite.all()


@pytest.mark.parametrize("requires_grad", [False, True])
def test_nan_under_a_schedule_of_tensors_is_flagged(requires_grad):
    bad = X.clone()
    bad[2, 1, 3] = torch.nan
    etas = torch.tensor([1, 0.9, 1.2], requires_grad=requires_grad)
    found = lt.iterate(WaveCore(16), bad, etas=etas, trace=True).trace.finite
    assert not found[:, 2].any()
    assert found[:, [0, 1, 3]].all()


@pytest.mark.parametrize(
    ("call", "message", "fix"),
    [
        (lambda: lt.iterate(lambda x: x[:2], X, lt.TapsGD(), 3), r"\(4, 5, 16\) became \(2, 5, 16\)", "Return f"),
        (lambda: lt.TapsGD().init(X[0, 0]), r"Sample needs a state .* but got \(16,\)", "x[None]"),
        (lambda: lt.TapsGD().init(X[0, 0], Token()), r"Token needs a state .* but got \(16,\)", "x[None]"),
        (lambda: lt.TapsGD().init(X[0], Sample(torch.ones(5) > 0)), r"no mask for \(5, 16\)", "Leave the mask out"),
        (lambda: lt.TapsGD().init(X, Sample(torch.ones(4, 4) > 0)), r"\(4, 5\) .* but is torch.bool of shape \(4, 4\)",
         "one flag per position"),
        (lambda: lt.TapsGD().init(X[0], Segments(torch.arange(4))), r"\(5, 16\) and torch.int64 \(4,\)", "Flatten"),
        (lambda: lt.TapsGD().init(X, Segments(torch.arange(4))), r"\(4, 5, 16\) and torch.int64 \(4,\)", "Flatten"),
        (lambda: lt.iterate(WaveCore(16), X, etas=torch.ones(3, 3)), r"\(K, 4\), but is .* \(3, 3\)", "per step"),
        (lambda: lt.iterate(torch.sin, torch.tensor(1.0), etas=torch.ones(3)), r"got \(\)", "x[None]"),
        (lambda: lt.iterate(torch.sin, torch.ones(3), etas=torch.ones(3)), r"got \(3,\)", "x[:, None]"),
    ],
)
def test_a_wrong_shape_is_answered_with_what_to_do(call, message, fix):
    with pytest.raises(lt.errors.InvalidShape, match=message) as caught:
        call()
    assert fix in str(caught.value).split(". ", 1)[1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda core: lt.iterate(core, X, etas=torch.ones(3), mask=torch.ones(4, 5) > 0), "takes no mask and no scope"),
        (lambda core: lt.iterate(core, X, etas=torch.ones(3), scope=Token()), "takes no mask and no scope"),
        (lambda core: lt.iterate(core, X, steps=3), "either a controller or etas"),
        (lambda core: lt.iterate(core, X, lt.TapsGD(), 3, etas=torch.ones(3)), "either a controller or etas"),
        (lambda core: lt.iterate(core, X, lt.TapsGD()), "steps must be a whole number >= 0, but is None"),
        (lambda core: lt.iterate(core, X, lt.TapsGD(), -1), "but is -1"),
        (lambda core: lt.iterate(core, X, lt.TapsGD(), True), "but is True"),
        (lambda core: lt.iterate(core, X.long(), lt.TapsGD(), 3), r"but is torch\.int64"),
        (lambda core: lt.iterate(core, "x", lt.TapsGD(), 3), "must be a tensor, but is str"),
        (lambda core: lt.iterate(None, X, lt.TapsGD(), 3), "core must be callable"),
        (lambda core: lt.iterate(core, X, lt.TapsGD(), 1, memory=lt.TapsGD().init(X)), "another rollout returned"),
        (lambda core: lt.iterate(core, X, lt.TapsGD(), 3, mask=[[True] * 5] * 4), "mask must be a bool tensor"),
        (lambda core: lt.iterate(core, X[0], lt.TapsGD(), 3, scope=Segments([0] * 5)), "ids must be an int64 tensor"),
        (lambda core: lt.TapsGD().init(X, "sample"), r"init\.scope must be lt\.Sample"),
        (lambda core: lt.TapsGD().update(X, lt.TapsGD().init(X), "sample"), r"update\.scope must be lt\.Sample"),
        (lambda core: lt.iterate(core, X[0, 0], lt.TapsGD(), 3), r"state of shape \(B, ..., D\)"),
        (lambda core: lt.iterate(core, X[0, 0], lt.Control(lt.TapsGD(), scope="token"), 3), "Token needs a state"),
        (lambda core: lt.iterate(core, X, "taps-gd", 3), r"lt\.spec"),
        (lambda core: lt.iterate(core, X, lt.Control(lt.TapsGD(), site="outer"), 3), "control.site must be 'inner'"),
        (lambda core: lt.iterate(lambda x: x[:2], X, lt.TapsGD(), 3), r"keep the shape.*\(2, 5, 16\)"),
        (lambda core: lt.iterate(lambda x: x.double(), X, lt.TapsGD(), 3), "keep the dtype"),
        (lambda core: lt.iterate(lambda x: (x,), X, lt.TapsGD(), 3), "return a tensor, but returned tuple"),
        (lambda core: lt.iterate(core, X, lt.TapsGD(), 3, mask=torch.ones(4, 4, dtype=torch.bool)), "Sample.mask"),
        (lambda core: lt.iterate(core, X, lt.TapsGD(), 3, mask=torch.ones(4, 5)), r"Sample\.mask must be bool"),
        (lambda core: lt.iterate(core, X, lt.TapsGD(), 3, mask=torch.ones(4, 5) > 0, scope=Token()), "not both"),
        (lambda core: lt.iterate(core, X, lt.Control(lt.TapsGD(), scope="token"), 3, mask=torch.ones(4, 5) > 0),
         "a mask changes nothing"),
        (lambda core: lt.iterate(core, X, lt.TapsGD(), 3, scope=Segments(torch.arange(4))), "Segments needs"),
        (lambda core: lt.iterate(core, X, etas=torch.ones(3, 3)), r"shape \(K,\) or \(K, 4\)"),
        (lambda core: lt.iterate(core, X, etas=torch.ones(3, dtype=torch.int64)), "floating point of shape"),
        (lambda core: lt.iterate(core, X, etas=torch.ones(3), steps=4), "steps must be 3"),
        (lambda core: lt.iterate(core, X, etas=torch.ones(3), memory=lt.iterate(core, X, lt.TapsGD(), 1).memory),
         "keeps no memory"),
        (lambda core: lt.iterate(core, X, lt.TapsGD(), 1, memory=lt.iterate(core, X[:2], lt.TapsGD(), 1).memory),
         r"This memory has a leaf \(2,\)"),
        (lambda core: lt.iterate(core, X, lt.TapsGD(), 1, memory=lt.iterate(core, X, lt.TapsAdam(), 1).memory),
         "a MomentState, of another rule"),
        (lambda core: lt.iterate(core, X, lt.TapsGD(), 1,
                                 memory=lt.iterate(WaveCore(8), X[..., :8], lt.TapsGD(), 1).memory),
         r"This memory has a leaf \(4, 5, 8\)"),
        (lambda core: lt.iterate(core, X, lt.TapsGD(), 1, scope="token"), r"lt\.Token\(\)"),
        (lambda core: lt.iterate(core, X, etas=[1.0, 0.9]), r"use lt\.Schedule"),
        (lambda core: lt.iterate(core, X.to(torch.float8_e5m2), lt.TapsGD(), 1), "widen float8"),
        (lambda core: lt.iterate(core, X[0], lt.TapsGD(), 1, mask=torch.ones(5, dtype=torch.bool)), "has no positions"),
        (lambda core: lt.iterate(core, X[0], lt.TapsGD(), 1, scope=Segments(torch.arange(5) * 2)), r"lie in 0\.\.4"),
    ],
)
def test_wrong_input_is_one_sentence(call, message):
    with pytest.raises(lt.errors.LooptapsError, match=message):
        call(WaveCore(16))


@pytest.mark.parametrize("cls", [lt.TapsGD, lt.TapsSign, lt.TapsMomentum, lt.TapsRMSProp, lt.TapsAdam, lt.TapsBB])
@pytest.mark.parametrize(
    ("field", "value"),
    [("rho", 0), ("rho", -1), ("rho", float("nan")), ("rho", "1"), ("gamma", 0), ("gamma", float("inf")),
     ("eta_min", 0), ("eta_min", 1.1), ("eta_max", 0.9), ("eta_max", float("inf")), ("beta", 1.0), ("beta", -0.1),
     ("eps", 0), ("warmup", -1), ("warmup", 10**30), ("warmup", 2**63),
     ("warmup", 1.5), ("warmup", True), ("gain", 0), ("gain", "1")],
)
def test_wrong_hyperparameters_name_owner_field_range_value_and_fix(cls, field, value):
    if field not in cls.__dataclass_fields__:
        with pytest.raises(TypeError, match=field):
            cls(**{field: value})
        return
    with pytest.raises(lt.errors.InvalidValue) as caught:
        cls(**{field: value})
    message = str(caught.value)
    assert message.startswith(f"{cls.__name__}.{field} must be ")
    assert f"but is {value!r}. " in message
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("digits", [400, 5000])
@pytest.mark.parametrize("field", ["rho", "gamma", "warmup", "gain"])
def test_numbers_beyond_every_float_are_refused_in_a_sentence(field, digits):
    with pytest.raises(lt.errors.InvalidValue, match=rf"TapsBB\.{field} must be .* but is -?inf\. "):
        lt.TapsBB(**{field: 10**digits})
    with pytest.raises(lt.errors.InvalidValue, match=r"but is -inf\. "):
        lt.TapsBB(**{field: -(10**digits)})


def test_the_longest_warmup_is_a_count():
    rule = lt.TapsGD(warmup=2**63 - 1)
    assert (lt.iterate(WaveCore(16), X, rule, 4).memory.eta == 1).all()


def test_numbers_of_numpy_are_numbers():
    rule = lt.TapsGD(rho=np.float32(0.5), warmup=np.int64(3))
    assert rule == lt.TapsGD(rho=0.5, warmup=3)
    assert type(rule.warmup) is int


def test_fields_that_only_one_rule_has_are_its_own_to_check():
    @dataclass(frozen=True)
    class Decaying(lt.TapsGD):
        decay: float = 0.5

    assert Decaying(decay=2.0).decay == 2.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lt.Constant(0), r"Constant\.eta must be a finite number > 0, but is 0"),
        (lambda: lt.Constant("1"), r"Constant\.eta"),
        (lambda: lt.Schedule(()), r"Schedule\.etas must be a non-empty sequence"),
        (lambda: lt.Schedule((1, -1)), r"Schedule\.etas\[1\]"),
        (lambda: lt.Schedule(1.0), "For one value use Constant"),
        (lambda: lt.Schedule(None), "For one value use Constant"),
        (lambda: lt.Schedule("11"), "For one value use Constant"),
    ],
)
def test_wrong_fixed_schedules_are_one_sentence(make, message):
    with pytest.raises(lt.errors.InvalidValue, match=message):
        make()


def test_sample_scope_of_two_axes_takes_no_mask_of_other_shape():
    with pytest.raises(lt.errors.InvalidShape):
        lt.TapsGD().init(torch.zeros(3, 4), Sample(torch.ones(3, 4, dtype=torch.bool)))
