"""A window of decoder layers as one update, run K times: damped Euler stages with an online step.

    x <- x + (eta_k / K) (F(x) - x),    F = layers i..j,    k = 0..K-1

K = 1 is the plain controlled step, whose unit step is F(x) itself, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from looptaps.controllers.base import Scope, expand
from looptaps.errors import InvalidType, InvalidUse
from looptaps.hf.guard import NotCopied
from looptaps.hf.masks import MaskRecorder, recomputing, scope_for, trace_mask
from looptaps.hf.slots import PeekView, SlotView, claim, find_cache, reserve, swap_cache
from looptaps.hf.trace import EtaTrace
from looptaps.loop import Control
from looptaps.loop.step import Memory, Step, begin_memory, controlled_step

KV = Literal["stage", "first", "last"]


@dataclass(frozen=True)
class Window:
    """Layers `first`..`last` (inclusive) of `depth`, looped `loops` times under a control."""

    first: int
    last: int
    depth: int
    loops: int
    kv: KV
    scope: str
    control: Control

    @property
    def width(self) -> int:
        return self.last - self.first + 1

    @property
    def extra_slots(self) -> list[int]:
        """The native slot after which each slot of stages 1..K-1 is modelled."""
        return list(range(self.first, self.last + 1)) * (self.loops - 1)

    @property
    def setting(self) -> tuple[Any, ...]:
        """What the keys and values of a cache depend on."""
        return ("window", self.first, self.last, self.loops, self.kv, self.scope, self.control)


def block_step(rule: Any, x: Tensor, proposal: Tensor, memory: Memory, scope: Scope, loops: int, *,
               refresh: bool = True, grad_through_eta: bool = False) -> Step:
    """One Euler stage of step eta / K, in the dtype of statistics, cast once."""
    step = controlled_step(rule, x, proposal, memory, scope, refresh=refresh, grad_through_eta=grad_through_eta)
    if loops == 1:
        return step
    scale = expand(step.memory.eta, step.delta) / loops
    return step._replace(x=(x.to(step.delta.dtype) + scale * step.delta).to(x.dtype))


class LoopedLayers(NotCopied):
    """Sits in the place of the first layer's `forward` and runs the window K times."""

    def __init__(self, window: Window, layers: list[Any], masks: MaskRecorder, trace: EtaTrace) -> None:
        self.window, self.masks, self.trace = window, masks, trace
        self.layer = layers[0]
        # The forwards as they are now, with whatever accelerate has wrapped around them.
        self.forwards: list[Callable[..., Any]] = [layer.forward for layer in layers]
        self.rule = window.control.rule(gain=1 / window.loops)
        self.expected: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    def __call__(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        window, x = self.window, hidden_states
        if x.ndim != 3:
            raise InvalidUse(f"The state of a looped layer must be (batch, tokens, features), but that of "
                             f"{type(self.layer).__name__} is {tuple(x.shape)}, for which one eta per row or token is "
                             "not defined. This model cannot be looped; detach.")
        again = recomputing()
        if not again:
            self.expected = (args, kwargs) if window.width > 1 else None
        sequence = window.scope == "sequence"
        attention_mask = self.masks.current(self.layer.training, kwargs) if sequence or not again else None
        scope, mask = scope_for(window.scope, attention_mask, x)
        cache = find_cache(args, kwargs)
        if cache is not None:
            claim(cache, window.setting, window.depth, window.first, new=x.shape[1])
            if window.kv == "stage":
                reserve(cache, window.extra_slots, window.depth)
        memory: Memory | None = None
        etas: list[Tensor] = []
        written: PeekView | None = None
        for k in range(window.loops):
            view = self._view(cache, k)
            written = view if k == 0 and isinstance(view, PeekView) else written
            proposal = self._apply(x, args, kwargs, cache, view)
            if memory is None:
                memory = begin_memory(self.rule, x, scope)
            step = block_step(self.rule, x, proposal, memory, scope, window.loops,
                              refresh=window.control.refreshes(k), grad_through_eta=window.control.grad_through_eta)
            x, memory = step.x, step.memory
            etas.append(memory.eta)
        if cache is not None and written is not None:
            self._write(x, args, kwargs, cache, written)
        if not again:
            self.trace.record(etas, trace_mask(scope, mask))
        return x

    def _apply(self, x: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any], cache: Any, view: Any) -> Tensor:
        """F(x): the window's layers, with this stage's view of the cache."""
        if cache is not None:
            args, kwargs = swap_cache(args, kwargs, view, cache)
        h: Any = x
        for forward in self.forwards:
            h = forward(h, *args, **kwargs)
            if not isinstance(h, Tensor):
                raise InvalidType(f"A looped layer must return a tensor, but {type(self.layer).__name__} returns "
                                  f"{type(h).__name__}. This model cannot be looped.")
        moved: Tensor = h.to(x.device)  # a window may span devices; state and eta stay where the window begins
        return moved

    def _view(self, cache: Any, k: int) -> SlotView | PeekView | None:
        if cache is None:
            return None
        if self.window.kv != "stage":
            return PeekView(cache)
        # Stage 0 keeps the native slots; stage k has `width` slots of its own behind the decoder's.
        return SlotView(cache, 0 if k == 0 else self.window.depth + (k - 1) * self.window.width - self.window.first)

    def _write(self, x: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any], cache: Any, first: PeekView) -> None:
        """The single-slot policies: keep what stage 0 saw, or run the window once more on the loop's output."""
        if self.window.kv == "last":
            self._apply(x, args, kwargs, cache, cache)
            return
        for index, (keys, values) in first.seen.items():
            cache.update(keys, values, index)

    def check_same(self, index: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A later layer of the window must get the arguments of the first, with which it has already run."""
        if self.expected is None:
            return
        same_args, same_kwargs = self.expected
        differing = [str(n) for n, (a, b) in enumerate(zip(args, same_args)) if a is not b]
        differing += [name for name in kwargs.keys() | same_kwargs.keys()
                      if kwargs.get(name) is not same_kwargs.get(name)]
        if index == self.window.last or differing:
            self.expected = None  # hold no tensors beyond the window
        if differing:
            raise InvalidUse(f"Layer {index} gets other arguments than layer {self.window.first}: "
                             f"{', '.join(differing)}. This window cannot be run as one block; loop other layers.")


class PassThrough(NotCopied):
    """Sits in the place of a later layer of the window, which the first has already run."""

    def __init__(self, looped: LoopedLayers, index: int) -> None:
        self.looped, self.index = looped, index

    def __call__(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if not recomputing():
            self.looped.check_same(self.index, args, kwargs)
        return hidden_states
