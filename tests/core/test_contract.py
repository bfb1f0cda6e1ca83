"""The contract table over every registered controller, and proof that each of its promises can be broken."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

import looptaps as lt
from looptaps.controllers.base import SAMPLE, Decision, wide_dtype
from looptaps.specs import CONTROLLERS
from looptaps.testing import ContractBroken, check_controller, contract

ARGUMENTS = {"constant": ":eta=0.9", "schedule": ":etas=1/1.2/0.9"}
CONTROLLER_SPECS = [name + ARGUMENTS.get(name, "") for name in CONTROLLERS]
EXTREMES = ["taps-adam:warmup=0", "taps-momentum:beta=0", "taps-rmsprop:beta=0:warmup=1", "taps-adam:beta=0",
            "taps-bb:gain=0.5:eta_max=3:rho=2", "taps-gd:gamma=30:rho=5:eta_min=0.1"]


def test_every_registered_controller_is_in_the_table():
    assert {spec.partition(":")[0] for spec in CONTROLLER_SPECS} == set(CONTROLLERS)


@pytest.mark.parametrize("text", CONTROLLER_SPECS)
@pytest.mark.parametrize(
    ("promise", "scope", "check"), [pytest.param(*row, id=f"{row[0]}-{row[1]}") for row in contract()]
)
def test_contract(promise, scope, check, text):
    check(lt.spec(text))


@pytest.mark.parametrize("text", EXTREMES)
def test_contract_at_extreme_hyperparameters(text):
    cheap = {name for name, _, _ in contract()} - {"one compiled graph"}
    check_controller(lt.spec(text), promises=cheap)


# --- Controllers that break one promise each: a table that cannot say no says nothing. ---


class Count(NamedTuple):
    k: Tensor


@dataclass(frozen=True)
class Honest:
    """Keeps everything: eta from the first feature's share of the energy of this update alone."""

    def init(self, like: Tensor, scope=SAMPLE) -> Count:
        return Count(torch.zeros(scope.shape(like), dtype=torch.int64))

    def eta(self, delta: Tensor, scope) -> Tensor:
        whole = scope.inner(delta, delta)
        first = torch.zeros_like(delta)
        first[..., 0] = delta[..., 0]
        return 1 + 0.1 * scope.inner(first, first) / (whole + 1e-12)

    def count(self, state: Count, eta: Tensor) -> Tensor:
        return state.k + 1

    def update(self, delta: Tensor, state: Count, scope=SAMPLE):
        delta = delta.to(wide_dtype(delta.dtype))
        eta = self.eta(delta, scope)
        finite = eta.isfinite()
        eta = torch.where(finite, eta, 1)
        k = torch.where(finite, self.count(state, eta), 0)
        return Decision(eta, finite, None, None, None), Count(k)


class BatchMean(Honest):
    def eta(self, delta, scope):
        return super().eta(delta, scope).mean() + 0 * super().eta(delta, scope)


class BatchOrder(Honest):
    def eta(self, delta, scope):
        eta = super().eta(delta, scope)
        return eta + 1e-3 * torch.arange(len(eta)).reshape(-1, *(1,) * (eta.ndim - 1))


class Signed(Honest):
    def eta(self, delta, scope):
        return super().eta(delta, scope) + 0.01 * torch.sign(scope.inner(delta, torch.ones_like(delta)))


class Scaled(Honest):
    def eta(self, delta, scope):
        return 1 + 0.01 * torch.tanh(scope.inner(delta, delta))


class Unmasked(Honest):
    def eta(self, delta, scope):
        return super().eta(delta, SAMPLE if scope._fields == ("mask",) else scope)


class Half(Honest):
    def eta(self, delta, scope):
        return super().eta(delta, scope).half()


class Below(Honest):
    def eta(self, delta, scope):
        return super().eta(delta, scope) - 1.5


class SharedCount(Honest):
    """Counts updates on itself, not per sample: the memory is not in the memory."""

    calls = [0]  # noqa: RUF012

    def eta(self, delta, scope):
        self.calls[0] += 1
        return super().eta(delta, scope) + 1e-3 * self.calls[0]


class InPlace(Honest):
    def count(self, state, eta):
        return state.k.add_(1)


class Contagious(Honest):
    def update(self, delta, state, scope=SAMPLE):
        decision, memory = super().update(delta, state, scope)
        return decision._replace(finite=decision.finite & decision.finite.all()), memory


class Breaking(Honest):
    def eta(self, delta, scope):
        eta = super().eta(delta, scope)
        return eta if float(eta.sum()) > 0 else eta + 1  # a tensor's value decides: the graph breaks


class SteepAtZero(Honest):
    def eta(self, delta, scope):
        return 1 + 0.1 * torch.sqrt(scope.inner(delta, delta) / (scope.inner(delta, delta) + 1))


class Stale(Honest):
    """Its count is off the tree, so a reset cannot reach it."""

    def count(self, state, eta):
        return state.k.max().expand_as(state.k) + 1

    def eta(self, delta, scope):
        return super().eta(delta, scope)

    def update(self, delta, state, scope=SAMPLE):
        decision, memory = super().update(delta, state, scope)
        return decision._replace(eta=torch.where(decision.finite, decision.eta + 0.01 * state.k, 1)), memory


class Crowded(Stale):
    """Counts how many samples there were."""

    def count(self, state, eta):
        return state.k + len(state.k)


@dataclass(unsafe_hash=True)
class Mutable:
    rho: float = 0.1
    init = Honest.init
    update = Honest.update


@dataclass(frozen=True)
class Impatient(Honest):
    warmup: int = 2


BREAKERS = [
    (BatchMean(), "sample independence"),
    (BatchOrder(), "permutation equivariance"),
    (Signed(), "sign invariance"),
    (Scaled(), "scale invariance"),
    (Unmasked(), "mask = removal"),
    (Half(), "decision"),
    (Below(), "range"),
    (SharedCount(), "nothing mutated"),
    (InPlace(), "nothing mutated"),
    (Contagious(), "non-finite stays alone"),
    (Breaking(), "one compiled graph"),
    (SteepAtZero(), "finite gradients"),
    (Stale(), "reset = fresh start"),
    (Crowded(), "compaction = full run"),
    (Impatient(), "warmup"),
    (SharedCount(), "checkpointing"),
]


def test_an_honest_controller_of_somebody_else_keeps_the_contract():
    assert not check_controller(Honest()).broken


@pytest.mark.parametrize(
    ("broken", "promise"), [pytest.param(*b, id=f"{type(b[0]).__name__}-{b[1]}") for b in BREAKERS]
)
def test_the_table_sees_a_broken_promise(broken, promise):
    with pytest.raises(ContractBroken, match="BROKEN"):
        check_controller(broken, promises=[promise])


def test_a_mutable_dataclass_is_refused():
    with pytest.raises(ContractBroken, match="not frozen"):
        check_controller(Mutable(), promises=["value"])


def test_the_unit_step_promise_sees_an_eta_that_is_one_but_moves():
    from looptaps.loop import step as module

    original = module.scaled_step
    naive = lambda proposal, delta, eta: (  # noqa: E731
        proposal.to(delta.dtype) - delta + module.expand(eta, delta) * delta
    ).to(proposal.dtype)
    try:
        module.scaled_step = naive
        with pytest.raises(ContractBroken, match="unit step"):
            check_controller(lt.Standard(), promises=["unit step"])
    finally:
        module.scaled_step = original


def test_check_controller_refuses_what_is_no_controller_and_unknown_promises():
    with pytest.raises(lt.errors.InvalidType, match="check_controller needs a bare controller"):
        check_controller(lt.TapsGD)
    with pytest.raises(lt.errors.UnknownName, match="Did you mean 'range'"):
        check_controller(lt.TapsGD(), promises=["rnge"])


def test_hyperparameters_of_a_copy_are_the_only_difference():
    assert replace(lt.TapsGD(), rho=0.3) == lt.TapsGD(rho=0.3) != lt.TapsGD()
