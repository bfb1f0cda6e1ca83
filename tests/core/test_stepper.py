"""`Stepper` is `iterate` in one line of somebody else's loop, and refuses to run where it would count twice."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import looptaps as lt
from looptaps.controllers.base import Token
from looptaps.testing import WaveCore, updates

X = updates(1, 4, 5, 16)[0]


def test_stepper_is_iterate(controller):
    core, step, x = WaveCore(16), lt.Stepper(controller), X
    for _ in range(8):
        x = step(x, core(x))
    run = lt.iterate(core, X, controller, 8)
    assert torch.equal(x, run.x)
    assert torch.equal(step.decision.eta, run.memory.eta)


def test_reset_starts_a_new_rollout(rule):
    core, step = WaveCore(16), lt.Stepper(rule)
    ends = []
    for _ in range(2):
        x = X
        for _ in range(6):
            x = step(x, core(x))
        ends.append(x)
        step.reset()
        assert step.memory is None
        assert step.decision is None
    assert torch.equal(*ends)


def test_another_batch_needs_a_reset():
    core, step = WaveCore(16), lt.Stepper(lt.TapsGD())
    step(X, core(X))
    with pytest.raises(lt.errors.InvalidShape, match="Start a fresh memory"):
        step(X[:2], core(X[:2]))


def test_scope_and_gradient_are_passed_on():
    core, x = WaveCore(16), X
    step = lt.Stepper(lt.TapsAdam(), scope=Token(), grad_through_eta=True)
    for _ in range(4):
        x = step(x, core(x))
    assert step.decision.eta.shape == (4, 5)
    assert step.decision.eta.requires_grad


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_stepper_raises_under_activation_checkpointing(use_reentrant):
    core, step = WaveCore(16), lt.Stepper(lt.TapsAdam())

    def loop(x):
        for _ in range(4):
            x = step(x, core(x))
        return x

    y = checkpoint(loop, X.clone().requires_grad_(), use_reentrant=use_reentrant)
    with pytest.raises(lt.errors.InvalidUse, match="Stepper cannot run under activation checkpointing"):
        y.sum().backward()


def test_stepper_refuses_what_is_no_controller_or_no_state():
    with pytest.raises(lt.errors.InvalidType, match="Stepper needs a bare controller"):
        lt.Stepper("taps-gd")
    with pytest.raises(lt.errors.InvalidType, match=r"a Control goes to lt\.iterate"):
        lt.Stepper(lt.Control(lt.TapsGD()))
    with pytest.raises(lt.errors.InvalidType, match=r"Stepper\.scope must be"):
        lt.Stepper(lt.TapsGD(), scope="token")
    with pytest.raises(lt.errors.InvalidType, match="floating point"):
        lt.Stepper(lt.TapsGD())(X.long(), X.long())
