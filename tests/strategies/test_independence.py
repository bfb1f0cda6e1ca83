"""Where the model's kernels do not depend on the batch, nothing does: bit for bit, every strategy and controller.

The model has no matrix product. Each of its numbers is computed from its own row by elementwise operations and sums
along a row, so a difference that is seen here would be the driver's, the rule's or the controller's.
"""

from typing import NamedTuple

import pytest
import torch

import looptaps as lt
from looptaps.loop import Readout
from looptaps.models.base import LoopRun
from looptaps.testing import WaveCore

POSITIONS, FEATURES, VOCAB = 4, 16, 5


class Carry(NamedTuple):
    z_H: torch.Tensor  # noqa: N815
    z_L: torch.Tensor  # noqa: N815
    x: torch.Tensor


class Waves:
    """TRM's shape of loop (two cycles of three z_L updates and one z_H update) around an elementwise core."""

    def __init__(self):
        self.core = WaveCore(FEATURES, seed=3)

    def begin(self, batch):
        spread = torch.linspace(-1, 1, FEATURES)
        x = torch.sin(batch["inputs"].unsqueeze(-1) * spread) + 0.2 * spread
        return Carry(torch.zeros_like(x), torch.zeros_like(x) + 0.5, x)

    def update(self, z, injection):
        # Samples settle at their own speed: the mean of the input decides how strongly.
        rate = 0.15 + 0.3 * torch.sigmoid(4 * self.speed(injection))
        return rate * self.core(z) + 0.3 * injection

    @staticmethod
    def speed(injection):
        return injection[:, :1, :1]

    def advance(self, carry, control, memory=None, *, trace=False, moves=None):
        z_H, z_L, x = carry
        run = LoopRun(control, memory, z_L, 6, trace, moves)
        for cycle in range(2):
            run.restart(z_L)
            start_H, start_L = z_H, z_L
            for _ in range(3):
                z_L = run.step(z_L, self.update(z_L, z_H + x))
            z_H = self.update(z_H, z_L)
            if control.site == "outer":
                z_L = run.outer(start_L, z_L, start_H, z_H, cycle)
        memory, stats = run.finish((z_H, z_L), 6, 2)
        return Carry(z_H, z_L, x), memory, stats

    def readout(self, carry):
        logits = carry.z_H[..., :VOCAB] * 3
        return Readout(logits, carry.z_H.flatten(1).double().sum(1).float())


EXIT = lt.AdaptiveExit(max_loops=8, k_min=2, patience=1, tau=0.02)
STRATEGIES = {
    "fixed depth": lt.FixedDepth(5),
    "adaptive exit": EXIT,
    "q exit": lt.QExit(max_loops=6, threshold=10.0),
    "fixed point": lt.FixedPoint(eps=0.003, max_updates=60),
    "anderson": lt.Anderson(max_loops=8, m=3, eps=0.003),
    "rollouts": lt.Rollouts(EXIT, n=3, sigma=0.2),
    "rollouts on z_H": lt.Rollouts(lt.FixedDepth(4), n=3, sigma=0.2, where="z_H", select="mode", max_rows=4),
}
CONTROLS = {
    **{name: lt.spec(name) for name in ("standard", "constant:eta=0.9", "schedule:etas=1/0.9/1.1", "taps-gd",
                                        "taps-sign", "taps-momentum", "taps-rmsprop", "taps-adam", "taps-bb")},
    "every 2": lt.Control(lt.TapsBB(), every=2),
    "outer": lt.Control(lt.TapsAdam(), site="outer"),
    "per token": lt.Control(lt.TapsGD(), scope="token"),
    "memory of a cycle": lt.Control(lt.TapsMomentum(), memory="cycle"),
}
INPUTS = torch.randint(50, (9, POSITIONS), generator=torch.Generator().manual_seed(4))
FIELDS = ("output", "status", "loops", "updates", "updates_high", "score")


def run(strategy, control, rows):
    ids = torch.tensor(rows)
    return strategy.run(Waves(), {"inputs": INPUTS[ids]}, control, seed=1, ids=ids)


def equal(one, two):
    for field in FIELDS:
        assert torch.equal(getattr(one, field), getattr(two, field)), field
    # The mean over a loop's updates is a report; torch sums it in an order that the number of rows may change.
    torch.testing.assert_close(one.mean_eta, two.mean_eta, rtol=0, atol=2.5e-7)


@pytest.mark.parametrize("control", CONTROLS.values(), ids=CONTROLS)
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_neighbours_batch_size_and_compaction_change_nothing(strategy, control):
    whole = run(strategy, control, list(range(9)))
    equal(whole, lt.Result.join([run(strategy, control, [row]) for row in range(9)]))
    equal(whole, lt.Result.join([run(strategy, control, list(range(row, row + 3))) for row in (0, 3, 6)]))
    order = [7, 2, 5]
    equal(whole.select(torch.tensor(order)), run(strategy, control, order))


@pytest.mark.parametrize("name", ["adaptive exit", "q exit", "fixed point", "anderson"])
def test_samples_do_leave_at_different_loops(name):
    """Else the test above would compact nothing."""
    for control in (lt.Standard(), lt.TapsGD()):
        assert len(set(run(STRATEGIES[name], control, list(range(9))).loops.tolist())) > 1


@pytest.mark.parametrize("control", CONTROLS.values(), ids=CONTROLS)
@pytest.mark.parametrize("name", [name for name in STRATEGIES if not name.startswith("rollouts")])
def test_refilling_changes_nothing(name, control):
    whole = run(STRATEGIES[name], control, list(range(9)))
    stream = [{"inputs": part} for part in INPUTS.split(4)]
    done = list(lt.serve_loop(STRATEGIES[name], Waves(), stream, control, batch_size=4, seed=1))
    order = torch.cat([part.ids for part in done]).argsort()
    equal(whole, lt.Result.join([part.result for part in done]).select(order))


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_a_neighbour_that_is_nan_changes_nothing(strategy, monkeypatch):
    whole = run(strategy, lt.TapsAdam(), list(range(9)))
    begin = Waves.begin

    def poisoned(self, batch):
        carry = begin(self, batch)
        bad = (batch["inputs"] == INPUTS[4]).all(1).reshape(-1, 1, 1)
        return carry._replace(x=torch.where(bad, torch.nan, carry.x))

    monkeypatch.setattr(Waves, "begin", poisoned)
    found = run(strategy, lt.TapsAdam(), list(range(9)))
    assert found.messages()[4] == lt.Status.NONFINITE.message
    others = torch.tensor([0, 1, 2, 3, 5, 6, 7, 8])
    equal(found.select(others), whole.select(others))
