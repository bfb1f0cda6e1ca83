"""The one loop behind every strategy.

    until nobody is left:   fill free places;  kick;  advance one outer loop;  ask the rule;  retire whoever is done

Finished samples are compacted away (carry, controller memory, rule memory, counters: all by `state.select`), so they
cost nothing from then on; waiting ones may take their places. The host learns who is done by one transfer per outer
loop. Every sample stops after `rule.limit` loops at the latest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from looptaps import state as trees
from looptaps.errors import InvalidUse
from looptaps.loop import Control, Readout, begin_memory
from looptaps.loop.model import AnyLoopModel
from looptaps.strategies.base import Result, Status, View
from looptaps.strategies.noise import check_state_name, draws_start, generator, kick

if TYPE_CHECKING:
    from looptaps.strategies.rule import StoppingRule


_T = TypeVar("_T")


class Fresh(NamedTuple):
    """Samples about to start: where their results go, which samples they are, and which rollout."""

    batch: dict[str, Tensor]
    places: list[int]
    ids: list[int]
    rollouts: list[int]


class Source(Protocol):
    """Where samples come from."""

    def take(self, most: int | None) -> Fresh | None:
        """Up to `most` samples (None: all there are), or None when there are no more."""
        ...


class Once:
    """A batch, taken whole."""

    def __init__(self, batch: dict[str, Tensor], ids: list[int], rollouts: list[int]) -> None:
        self._fresh: Fresh | None = Fresh(batch, list(range(len(ids))), ids, rollouts)

    def take(self, most: int | None) -> Fresh | None:
        fresh, self._fresh = self._fresh, None
        return fresh


class Kick(NamedTuple):
    """Noise before each outer loop: on which state, and its standard deviation."""

    where: str
    sigma: float


class Watcher(Protocol):
    """Who is told at the end of every outer loop; `steps` asks for the controller's decisions too."""

    steps: bool

    def note(self, places: list[int], view: View, signal: Tensor | None) -> None:
        """One outer loop of those who were running."""
        ...


class Done(NamedTuple):
    """Samples that have stopped: their places, their ids, and what came out."""

    places: list[int]
    ids: list[int]
    result: Result


class _Tally(NamedTuple):
    loops: Tensor
    updates: Tensor
    updates_high: Tensor
    eta: Tensor  # summed over loops


class _Running(NamedTuple):
    """All that is kept of the samples in flight: trees on the device, lists on the host, row for row."""

    tree: Any  # (carry, controller memory or None, rule memory, tally)
    places: list[int]
    ids: list[int]
    generators: list[torch.Generator]


class _Trees(NamedTuple):
    carry: Any
    memory: Any
    rule: Any
    tally: _Tally


@torch.no_grad()
def drive(
    rule: StoppingRule,
    model: AnyLoopModel,
    control: Control,
    source: Source,
    *,
    seed: int,
    capacity: int | None = None,
    noise: Kick | None = None,
    recorder: Watcher | None = None,
) -> Iterator[Done]:
    """Run whatever the source gives, at most `capacity` samples at a time, and yield them as they stop."""
    running = _fill(rule, model, control, source, capacity, seed, noise)
    while running is not None:
        held, memory, own, tally = running.tree
        before = held
        if noise is not None and noise.sigma > 0:
            before = kick(held, noise.where, noise.sigma, running.generators)
        steps = recorder is not None and recorder.steps
        carry, memory, stats = model.advance(before, control, memory, trace=steps, moves=rule.moves)
        tally = _Tally(
            tally.loops + 1,
            tally.updates + stats.updates,
            tally.updates_high + stats.updates_high,
            tally.eta + stats.mean_eta,
        )
        readout = model.readout(carry) if rule.reads or recorder is not None else None
        answer = None if readout is None else readout.logits.argmax(-1)
        view = View(model, before, carry, stats, tally.loops, tally.updates, readout, answer)
        verdict = rule.look(view, own)
        codes = torch.where((verdict.codes == 0) & (tally.loops >= rule.limit), int(Status.RAN_ALL), verdict.codes)
        codes = torch.where(stats.finite, codes, int(Status.NONFINITE)).to(torch.int8)
        if recorder is not None:
            recorder.note(running.places, view, verdict.signal)
        stopped = codes.tolist()  # the one transfer of this loop
        carry_on = carry if verdict.carry is None else verdict.carry
        running = running._replace(tree=_Trees(carry_on, memory, verdict.state, tally))
        if any(stopped):
            done = [row for row, code in enumerate(stopped) if code]
            rows = torch.tensor(done, device=codes.device)
            # The answers that the rule saw, if it saw any: reading fewer rows again could round differently.
            final = _final(model, held, view if rule.reads else view._replace(readout=None), rows, stopped, done)
            yield Done([running.places[row] for row in done], [running.ids[row] for row in done],
                       _result(final, trees.select(tally, rows), codes[rows]))
            while done and capacity is not None and (fresh := source.take(len(done))) is not None:
                taken, done = done[: len(fresh.places)], done[len(fresh.places) :]
                running = _replace(running, taken, _start(rule, model, fresh, seed, noise), control)
            running = _compact(running, done) if done else running


@torch.no_grad()
def readout_at_start(rule: StoppingRule, model: AnyLoopModel, batch: dict[str, Tensor], ids: list[int], seed: int
                     ) -> Readout:
    """What the model says of the first sample before any loop: whether it has a score shows before hours are spent."""
    one = Fresh({key: value[:1] for key, value in batch.items()}, [0], ids[:1], [0])
    return model.readout(_start(rule, model, one, seed, None).tree.carry)


def gather(finished: Iterator[Done], size: int) -> Result:
    """All samples of a batch, each in its place."""
    parts = list(finished)
    places = [place for part in parts for place in part.places]
    joined = Result.join([part.result for part in parts])
    order = torch.empty(size, dtype=torch.int64)
    order[torch.tensor(places)] = torch.arange(size)
    return joined.select(order.to(joined.status.device))


def _final(model: AnyLoopModel, held: Any, view: View, rows: Tensor, stopped: list[int], done: list[int]) -> Readout:
    """The answers of those who stop. Where a state has gone bad, that of the loop before is read."""
    bad = [stopped[row] == Status.NONFINITE for row in done]
    if view.readout is not None and not any(bad):
        return trees.select(view.readout, rows)
    whole = len(done) == len(stopped)
    carry = view.carry if whole else trees.select(view.carry, rows)
    if any(bad):
        sane = torch.tensor([not flag for flag in bad], device=rows.device)
        carry = trees.where(sane, carry, trees.select(held, rows))
    return model.readout(carry)


def _result(readout: Readout, tally: _Tally, codes: Tensor) -> Result:
    return Result(
        output=readout.logits.argmax(-1),
        status=codes,
        loops=tally.loops,
        updates=tally.updates,
        updates_high=tally.updates_high,
        score=None if readout.score is None else readout.score.float(),
        mean_eta=tally.eta / tally.loops,
    )


def _compact(running: _Running, stopped: list[int]) -> _Running | None:
    """Without the rows that have stopped."""
    gone = set(stopped)
    left = [row for row in range(len(running.places)) if row not in gone]
    if not left:
        return None
    device = running.tree.tally.loops.device
    generators = [running.generators[row] for row in left] if running.generators else []
    return _Running(
        trees.select(running.tree, torch.tensor(left, device=device)),
        [running.places[row] for row in left],
        [running.ids[row] for row in left],
        generators,
    )


def _replace(running: _Running, rows: list[int], started: _Running, control: Control) -> _Running:
    """New samples in the places of finished ones: cheaper than compacting these away and appending the others."""
    new = started.tree._replace(memory=_fresh_memory(control, started.tree.carry))
    where = torch.tensor(rows, device=running.tree.tally.loops.device)
    return _Running(
        trees.put(running.tree, where, new),
        _placed(running.places, rows, started.places),
        _placed(running.ids, rows, started.ids),
        _placed(running.generators, rows, started.generators) if running.generators else [],
    )


def _placed(old: list[_T], rows: list[int], new: list[_T]) -> list[_T]:
    values = dict(zip(rows, new, strict=True))
    return [values.get(row, value) for row, value in enumerate(old)]


def _fill(
    rule: StoppingRule,
    model: AnyLoopModel,
    control: Control,
    source: Source,
    capacity: int | None,
    seed: int,
    noise: Kick | None,
) -> _Running | None:
    """As many samples as there is room for, before the first loop."""
    running = None
    while True:
        free = None if capacity is None else capacity - (0 if running is None else len(running.places))
        fresh = None if free == 0 else source.take(free)
        if fresh is None:
            return running
        started = _start(rule, model, fresh, seed, noise)
        running = started if running is None else _join(running, started)


def _start(rule: StoppingRule, model: AnyLoopModel, fresh: Fresh, seed: int, noise: Kick | None) -> _Running:
    begin: Any = model.begin
    keys = list(zip(fresh.ids, fresh.rollouts, strict=True))
    if draws_start(model):
        carry = begin(fresh.batch, generators=[generator("start", seed, *key) for key in keys])
    else:
        carry = begin(fresh.batch)
    inputs = fresh.batch["inputs"]
    zeros = torch.zeros(len(inputs), dtype=torch.int64, device=inputs.device)
    tally = _Tally(zeros, zeros, zeros, zeros.float())
    generators = []
    if noise is not None and noise.sigma > 0:
        check_state_name(carry, noise.where)
        generators = [generator("kick", seed, *key, device=inputs.device) for key in keys]
    return _Running(_Trees(carry, None, rule.begin(carry, inputs), tally), fresh.places, fresh.ids, generators)


def _join(running: _Running, started: _Running) -> _Running:
    """Both, one behind the other."""
    old, new = running.tree, started.tree
    m, k = len(running.places), len(started.places)
    places = torch.arange(m + k, device=old.tally.loops.device)
    tree = trees.where(
        places < m,
        trees.select(old, places.clamp(max=m - 1)),
        trees.select(new, (places - m).clamp(min=0)),
    )
    return _Running(tree, running.places + started.places, running.ids + started.ids,
                    running.generators + started.generators)


def _fresh_memory(control: Control, carry: Any) -> Any:
    if "z_L" not in getattr(carry, "_fields", ()):
        raise InvalidUse("Refilling needs a model whose carry has the field z_L, the state that control scales: the "
                         f"new samples' controller memory is made from it. {type(carry).__name__} has none.")
    return begin_memory(control.rule(), carry.z_L, control.scope_over())
