"""The promises of a controller, each a function that raises `Broken` where it finds it broken.

A promise is checked over scopes: `sample` (one eta per row), `token` (one per position), `segments` (one per request
of a flattened batch). Update sequences run from steady to alternating, so each regime of a rule is visited.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from looptaps import state as trees
from looptaps.controllers.base import Decision, Sample, Scope, Segments, Token
from looptaps.loop.control import Control
from looptaps.loop.iterate import iterate
from looptaps.loop.step import begin_memory, controlled_step
from looptaps.testing.cores import WaveCore, updates

STEPS, BATCH, POSITIONS, FEATURES = 12, 6, 5, 16
# What a reduction over other positions may change: the last bit of a sum, seen through B and rho.
LAST_BIT = 4 * torch.finfo(torch.float32).eps


class Broken(AssertionError):
    """A promise is not kept; the message says where."""


class Promise(NamedTuple):
    check: Callable[[Any, str], None]
    scopes: tuple[str, ...]


PROMISES: dict[str, Promise] = {}
ALL = ("sample", "token", "segments")


Check = Callable[[Any, str], None]


def promise(name: str, scopes: tuple[str, ...] = ALL) -> Callable[[Check], Check]:
    def register(check: Check) -> Check:
        PROMISES[name] = Promise(check, scopes)
        return check

    return register


def demand(kept: bool | Tensor, problem: str) -> None:
    if not kept:
        raise Broken(problem)


def trajectory(scope: str, *, seed: int = 0, batch: int = BATCH) -> tuple[Tensor, Scope]:
    """Updates (K, ...) in the layout of a scope, and the scope."""
    return in_layout(scope, updates(STEPS, batch, POSITIONS, FEATURES, seed=seed))


def in_layout(scope: str, deltas: Tensor) -> tuple[Tensor, Scope]:
    """(K, B, N, D) in the layout of a scope, and the scope."""
    if scope == "segments":
        ids = torch.arange(deltas.shape[1]).repeat_interleave(deltas.shape[2])
        return deltas.flatten(1, 2), Segments(ids)
    return deltas, Token() if scope == "token" else Sample()


def batch_innermost(deltas: Tensor) -> Tensor:
    """The same values, neighbours in memory being of different samples."""
    return deltas.movedim(1, -1).contiguous().movedim(-1, 1)


def run(controller: Any, deltas: Tensor, scope: Scope, memory: Any = None) -> tuple[list[Decision], Any]:
    memory = controller.init(deltas[0], scope) if memory is None else memory
    decisions = []
    for delta in deltas:
        decision, memory = controller.update(delta, memory, scope)
        decisions.append(decision)
    return decisions, memory


def etas(controller: Any, deltas: Tensor, scope: Scope, memory: Any = None) -> Tensor:
    return torch.stack([decision.eta for decision in run(controller, deltas, scope, memory)[0]])


def gap(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max()) if a.shape == b.shape else float("inf")


@promise("value", scopes=("sample",))
def value(controller: Any, scope: str) -> None:
    """A frozen value: hashable, comparable, printable, and open to copying with other fields."""
    demand(dataclasses.is_dataclass(controller), "it is no dataclass")
    demand(controller == copy.deepcopy(controller), "a copy is not equal to it")
    demand(hash(controller) == hash(copy.deepcopy(controller)), "a copy has another hash")
    demand(type(controller).__dataclass_params__.frozen, "its dataclass is not frozen")


@promise("decision")
def decision(controller: Any, scope: str) -> None:
    """Every field has the scope's shape, eta and energies are at least float32, fluctuation is never below 0."""
    deltas, over = trajectory(scope)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        wide = torch.promote_types(dtype, torch.float32)
        for made in run(controller, deltas.to(dtype), over)[0]:
            shape = over.shape(deltas[0])
            for field in ("eta", "progress", "fluctuation", "balance"):
                found = getattr(made, field)
                if found is not None:
                    demand(tuple(found.shape) == shape, f"{field} has shape {tuple(found.shape)}, not {shape}")
                    demand(found.dtype == wide, f"{field} is {found.dtype} for {dtype} updates, not {wide}")
            demand(tuple(made.finite.shape) == shape and made.finite.dtype == torch.bool, "finite is no bool of the "
                   "scope's shape")
            if made.fluctuation is not None:
                demand((made.fluctuation >= 0).all(), "fluctuation is below 0")


@promise("range")
def eta_range(controller: Any, scope: str) -> None:
    """eta stays in [eta_min, eta_max] where the rule has them, and is always finite and above 0."""
    deltas, over = trajectory(scope)
    low, high = getattr(controller, "eta_min", 0.0), getattr(controller, "eta_max", float("inf"))
    for scale in (1.0, 1e-6, 1e6, 0.0):
        found = etas(controller, scale * deltas, over)
        demand(found.isfinite().all() & (found > 0).all(), f"eta is {found.min()} at scale {scale}")
        inside = (found >= torch.tensor(low)) & (found <= torch.tensor(high))
        demand(inside.all(), f"eta runs from {found.min()} to {found.max()}, outside [{low}, {high}]")


@promise("warmup")
def warmup(controller: Any, scope: str) -> None:
    """While k < warmup, eta is exactly 1."""
    deltas, over = trajectory(scope)
    held = etas(controller, deltas, over)[: getattr(controller, "warmup", 0)]
    demand((held == 1).all(), "eta differs from 1 during warmup")


@promise("unit step")
def unit_step(controller: Any, scope: str) -> None:
    """Where eta is 1, the next state is f(x) itself, bit for bit, in float32, bfloat16 and float64."""
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        core = WaveCore(FEATURES, dtype=dtype)
        (x,), over = in_layout(scope, updates(1, BATCH, POSITIONS, FEATURES, dtype=dtype))
        memory = begin_memory(controller, x, over)
        for _ in range(STEPS):
            proposal = core(x)
            step = controlled_step(controller, x, proposal, memory, over)
            unit = step.memory.eta == 1
            demand(torch.equal(step.x[unit], proposal[unit]), f"eta = 1 does not give f(x) in {dtype}")
            x, memory = step.x.detach(), step.memory


@promise("sample independence")
def independence(controller: Any, scope: str) -> None:
    """What one sample does cannot be seen in another's eta, however the batch lies in memory: 0.0 difference."""
    deltas, over = trajectory(scope)
    other = trajectory(scope, seed=1)[0]
    own = slice(0, POSITIONS) if scope == "segments" else slice(0, 1)
    mixed = other.clone()
    mixed[:, own] = deltas[:, own]
    alone = etas(controller, deltas, over)[:, own]
    demand(gap(etas(controller, mixed, over)[:, own], alone) == 0, "new neighbours change eta")
    laid = etas(controller, batch_innermost(mixed), over)[:, own]
    demand(gap(laid, alone) == 0, "eta depends on how the batch lies in memory")
    if scope != "segments":
        demand(gap(etas(controller, deltas[:, own], over), alone) == 0, "a batch of one has another eta")


@promise("permutation equivariance")
def permutation(controller: Any, scope: str) -> None:
    """Reordering the samples reorders the etas: 0.0 difference."""
    deltas, over = trajectory(scope)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    if isinstance(over, Segments):
        rows = torch.cat([torch.arange(POSITIONS) + POSITIONS * i for i in order.tolist()])
        moved = etas(controller, deltas[:, rows], Segments(over.ids[rows]))
    else:
        rows = order
        moved = etas(controller, deltas[:, rows], over)
    demand(gap(moved, etas(controller, deltas, over)[:, rows]) == 0, "eta depends on the order of the batch")


@promise("sign invariance")
def sign(controller: Any, scope: str) -> None:
    """Delta and -Delta give the same eta: 0.0 difference."""
    deltas, over = trajectory(scope)
    demand(gap(etas(controller, -deltas, over), etas(controller, deltas, over)) == 0, "the sign changes eta")


@promise("scale invariance")
def scale(controller: Any, scope: str) -> None:
    """Updates of any size give the same eta, as long as their energies are far above eps."""
    deltas, over = trajectory(scope)
    base = etas(controller, deltas, over)
    for factor in (2.0**-6, 2.0**6, 1000.0):
        moved = gap(etas(controller, factor * deltas, over), base)
        # float32 rounding of the scaled updates, seen through the balance and rho; eps (1e-12) is far below it.
        close = 4e-6 * max(0.25, getattr(controller, "rho", 1.0))
        demand(moved <= close, f"scaling the updates by {factor} moves eta by {moved:.1e}")


@promise("mask = removal", scopes=("sample",))
def mask_is_removal(controller: Any, scope: str) -> None:
    """A masked position is as if it were not there, whatever it holds (NaN too): at most the last bit.

    Positions are summed in another grouping when some are left out, which can move the last bit of an energy.
    """
    deltas, _ = trajectory(scope)
    for keep in ([0, 1, 2], [2, 3, 4], [0, 2, 4]):
        mask = torch.zeros(BATCH, POSITIONS, dtype=torch.bool)
        mask[:, keep] = True
        dirty = torch.where(mask[..., None], deltas, torch.nan)
        moved = gap(etas(controller, dirty, Sample(mask)), etas(controller, deltas[:, :, keep], Sample()))
        demand(moved <= LAST_BIT, f"masking positions differs from removing them by {moved:.1e}")


@promise("reset = fresh start", scopes=("sample", "token"))
def reset(controller: Any, scope: str) -> None:
    """A slot reset by `state.where` goes on as a new rollout would: 0.0 difference; the others do not notice."""
    deltas, over = trajectory(scope)
    half = STEPS // 2
    _, memory = run(controller, deltas[:half], over)
    slots = torch.tensor([True, False, False, True, False, True])
    fresh = controller.init(deltas[0], over)
    mixed = etas(controller, deltas[half:], over, trees.where(slots, fresh, memory))
    demand(gap(mixed[:, slots], etas(controller, deltas[half:], over)[:, slots]) == 0, "a reset slot is not fresh")
    kept = etas(controller, deltas[half:], over, memory)
    demand(gap(mixed[:, ~slots], kept[:, ~slots]) == 0, "resetting a slot moved another")


@promise("compaction = full run", scopes=("sample", "token"))
def compaction(controller: Any, scope: str) -> None:
    """Samples taken out by `state.select`, or copied by `state.repeat`, go on as in the full batch: 0.0 difference."""
    deltas, over = trajectory(scope)
    half = STEPS // 2
    _, memory = run(controller, deltas[:half], over)
    full = etas(controller, deltas[half:], over, memory)
    rows = torch.tensor([5, 1, 2])
    some = etas(controller, deltas[half:, rows], over, trees.select(memory, rows))
    demand(gap(some, full[:, rows]) == 0, "compaction changes eta")
    copies = etas(controller, deltas[half:].repeat_interleave(2, dim=1), over, trees.repeat(memory, 2))
    demand(gap(copies, full.repeat_interleave(2, dim=1)) == 0, "replication changes eta")


@promise("nothing mutated")
def nothing_mutated(controller: Any, scope: str) -> None:
    """`update` writes into neither the update nor the memory: calling it twice gives the same."""
    deltas, over = trajectory(scope)
    _, memory = run(controller, deltas[:3], over)
    before, delta = copy.deepcopy(memory), deltas[3].clone()
    first, after = controller.update(delta, memory, over)
    second, again = controller.update(delta, memory, over)
    demand(torch.equal(delta, deltas[3]), "the update was written into")
    demand(_equal(memory, before), "the memory was written into")
    demand(_equal(first, second) and _equal(after, again), "a second call gives another result")


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    return a is b if a is None else all(_equal(x, y) for x, y in zip(a, b, strict=True))


@promise("non-finite stays alone")
def non_finite(controller: Any, scope: str) -> None:
    """NaN, inf or overflow in one sample: there eta = 1, flagged, fresh memory; the others are bit-identical."""
    deltas, over = trajectory(scope)
    bad = slice(POSITIONS, 2 * POSITIONS) if scope == "segments" else slice(1, 2)
    clean, after_clean = run(controller, deltas, over)
    for poison in (torch.nan, torch.inf, -torch.inf):
        dirty = deltas.clone()
        dirty[4, bad] = poison
        made, after = run(controller, dirty, over)
        demand(not made[4].finite[bad].any(), f"{poison} is not flagged")
        demand((made[4].eta[bad] == 1).all(), f"eta is not 1 at {poison}")
        again = etas(controller, deltas[5:], over)
        found = torch.stack([d.eta for d in made[5:]])
        demand(gap(found[:, bad], again[:, bad]) == 0, f"after {poison} the memory is not fresh")
        others = torch.ones(deltas.shape[1], dtype=torch.bool)
        others[bad] = False
        for k in range(STEPS):
            demand(torch.equal(made[k].eta[others], clean[k].eta[others]), f"{poison} reached another sample")
            demand(made[k].finite[others].all(), f"{poison} flagged another sample")
        if scope != "segments":
            demand(_equal(trees.select(after, others), trees.select(after_clean, others)), f"{poison} reached "
                   "another sample's memory")


@promise("one compiled graph")
def one_graph(controller: Any, scope: str) -> None:
    """32 steps of `iterate` compile into a single graph, with the result of the eager run."""
    core = WaveCore(8)
    _, over = in_layout(scope, updates(1, 3, 4, 8))
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    def loop(x: Tensor) -> Tensor:
        return iterate(core, x, controller, 32, scope=over).x

    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(loop, fullgraph=True, backend=backend)
        for seed in (0, 1):
            x = in_layout(scope, updates(1, 3, 4, 8, seed=seed))[0][0]
            demand(torch.equal(compiled(x), loop(x)), "the compiled loop differs from the eager one")
    demand(len(graphs) == 1, f"{len(graphs)} graphs were compiled")


@promise("finite gradients")
def gradients(controller: Any, scope: str) -> None:
    """Gradients through eta are finite where updates are zero, equal, opposite or tiny."""
    _, over = trajectory(scope)
    one = updates(1, BATCH, POSITIONS, FEATURES)[0]
    one = one.flatten(0, 1) if scope == "segments" else one
    cases = {
        "zero": [0 * one] * 4,
        "equal": [one] * 4,
        "opposite": [one, -one, one, -one],
        "zero after one": [one, 0 * one, 0 * one, one],
        "tiny": [1e-6 * one, -1e-6 * one, 1e-6 * one, 1e-6 * one],
    }
    for name, case in cases.items():
        deltas = torch.stack(case).requires_grad_()
        total = torch.stack([d.eta.sum() for d in run(controller, deltas, over)[0]]).sum()
        if total.requires_grad:
            (gradient,) = torch.autograd.grad(total, deltas, allow_unused=True)
            finite = gradient is None or bool(gradient.isfinite().all())
            demand(finite, f"the gradient is not finite at {name} updates")


@promise("checkpointing")
def checkpointing(controller: Any, scope: str) -> None:
    """Gradients are identical with and without activation checkpointing, of each step and of the whole loop."""
    for through in (False, True):
        control = Control(controller, grad_through_eta=through)
        found = []
        for how in ("plain", "steps", "whole"):
            core = WaveCore(8)
            (x,), over = in_layout(scope, updates(1, 3, 4, 8))
            x.requires_grad_()

            def loop(
                x: Tensor, core: WaveCore = core, how: str = how, control: Control = control, over: Scope = over
            ) -> Tensor:
                return iterate(core, x, control, 6, scope=over, checkpoint=how == "steps").x

            y = checkpoint(loop, x, use_reentrant=False) if how == "whole" else loop(x)
            y.square().sum().backward()
            found.append((x.grad, core.weight.grad, core.shift.grad))
        demand(_equal(found[1], found[0]) and _equal(found[2], found[0]), "checkpointing changes a gradient")
