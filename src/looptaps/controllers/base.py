"""What a controller is: the paper's `(eta_k, q_{k+1}) = A(Delta_k, q_k)`, as pure functions of frozen values.

Shape suffixes: B samples, N positions, D features. A *scope* says what one eta covers; `scope.shape` is (B,) for
Sample, (B, N) for Token and (N,) for Segments.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from fractions import Fraction
from numbers import Integral, Real
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from looptaps.errors import InvalidShape, InvalidType, invalid

S = TypeVar("S")


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Where statistics and eta live: at least float32 (bfloat16 has only 78 values between 0.8 and 1.2)."""
    return torch.promote_types(dtype, torch.float32)


def _total(rows: Tensor) -> Tensor:
    # A wide accumulator in a fixed order, so that neighbours and padding cannot change a sum. MPS has no float64.
    wide = torch.float32 if rows.device.type == "mps" else torch.float64
    return rows.flatten(1).sum(-1, dtype=wide).to(rows.dtype)


def _over_features(a: Tensor, b: Tensor) -> Tensor:
    # How a sum is grouped depends on how its terms lie in memory, so they lie in one way always.
    return (a * b).contiguous().sum(-1)


_TWO_AXES = "Axis 0 is the sample, the last axis the features: add what is missing, x[:, None] or x[None]."


class Sample(NamedTuple):
    """One eta for each sample (row of axis 0), over all its positions; `mask` (B, N) is False at padding."""

    mask: Tensor | None = None

    def shape(self, like: Tensor) -> tuple[int, ...]:
        return tuple(like.shape[:1])

    def inner(self, a: Tensor, b: Tensor) -> Tensor:
        """<a, b> of each sample: over features, then over the positions that count."""
        products = _over_features(a, b)
        if products.ndim == 1:
            return products
        if self.mask is not None:
            products = torch.where(self.mask, products, 0)
        return _total(products)

    def count(self, like: Tensor) -> Tensor | int:  # type: ignore[override]
        """nd: how many numbers a sample has, padding left out (never 0)."""
        if self.mask is None:
            return max(math.prod(like.shape[1:]), 1)
        return self.mask.flatten(1).sum(-1).clamp(min=1) * max(like.shape[-1], 1)

    def expand(self, eta: Tensor, like: Tensor) -> Tensor:
        """eta with trailing axes, so that it multiplies a state."""
        return expand(eta, like)

    def check(self, like: Tensor) -> None:
        if like.ndim < 2:
            raise InvalidShape(f"Sample needs a state of shape (B, ..., D), but got {tuple(like.shape)}. {_TWO_AXES}")
        if self.mask is not None and not isinstance(self.mask, Tensor):
            raise InvalidType(f"Sample.mask must be a bool tensor (B, N), but is {type(self.mask).__name__}. "
                              "Use torch.tensor(mask).")
        if self.mask is not None and like.ndim == 2:
            raise InvalidShape(f"A state (B, D) has no positions, so Sample takes no mask for {tuple(like.shape)}. "
                               "Leave the mask out.")
        if self.mask is not None and (self.mask.shape != like.shape[:-1] or self.mask.dtype != torch.bool):
            raise InvalidShape(f"Sample.mask must be bool of shape {tuple(like.shape[:-1])} (True = counts), "
                               f"but is {self.mask.dtype} of shape {tuple(self.mask.shape)}. Make one flag per "
                               "position, such as mask = ids != padding.")


class Token(NamedTuple):
    """One eta for each position: causal, and independent of batching and padding."""

    def shape(self, like: Tensor) -> tuple[int, ...]:
        return tuple(like.shape[:-1])

    def inner(self, a: Tensor, b: Tensor) -> Tensor:
        """<a, b> of each position, over its features."""
        return _over_features(a, b)

    def count(self, like: Tensor) -> Tensor | int:  # type: ignore[override]
        """d: the features of one position (never 0)."""
        return max(like.shape[-1], 1)

    def expand(self, eta: Tensor, like: Tensor) -> Tensor:
        """eta with trailing axes, so that it multiplies a state."""
        return expand(eta, like)

    def check(self, like: Tensor) -> None:
        if like.ndim < 2:
            raise InvalidShape(f"Token needs a state of shape (B, ..., D), but got {tuple(like.shape)}. {_TWO_AXES}")


class Segments(NamedTuple):
    """One eta for each request of a flattened (N, D) batch, as a serving engine has it.

    `ids` (N,) names the request of every row, in 0..N-1. Sums are reduced per request and gathered back, so every
    shape depends on N alone. This memory lives inside one forward and is never compacted.
    """

    ids: Tensor

    def shape(self, like: Tensor) -> tuple[int, ...]:
        return tuple(like.shape[:1])

    def inner(self, a: Tensor, b: Tensor) -> Tensor:
        """<a, b> of each request, at every row of it."""
        products = _over_features(a, b)
        wide = products if products.device.type == "mps" else products.double()
        return torch.zeros_like(wide).index_add(0, self.ids, wide)[self.ids].to(products.dtype)

    def count(self, like: Tensor) -> Tensor | int:  # type: ignore[override]
        """nd of each request, at every row of it (never 0)."""
        ones = torch.ones_like(self.ids)
        return torch.zeros_like(ones).index_add(0, self.ids, ones)[self.ids] * max(like.shape[-1], 1)

    def expand(self, eta: Tensor, like: Tensor) -> Tensor:
        """eta with trailing axes, so that it multiplies a state."""
        return expand(eta, like)

    def check(self, like: Tensor) -> None:
        if not isinstance(self.ids, Tensor):
            raise InvalidType(f"Segments.ids must be an int64 tensor (N,), but is {type(self.ids).__name__}. "
                              "Use torch.tensor(ids).")
        if like.ndim != 2 or self.ids.shape != like.shape[:1] or self.ids.dtype != torch.int64:
            raise InvalidShape(
                f"Segments needs a state (N, D) and int64 ids (N,), but got {tuple(like.shape)} and "
                f"{self.ids.dtype} {tuple(self.ids.shape)}. Flatten the batch to its rows, and give each row the "
                "number of its request."
            )
        # Looking at the values would stop a GPU and break a compiled graph.
        if self.ids.device.type == "cpu" and not torch.compiler.is_compiling() and len(self.ids):
            low, high = self.ids.aminmax()
            if low < 0 or high >= len(self.ids):
                raise InvalidShape(f"Segments.ids must lie in 0..{len(self.ids) - 1}, but run from {int(low)} to "
                                   f"{int(high)}. Number the requests of the batch from 0.")


Scope = Sample | Token | Segments
SAMPLE = Sample()


def expand(eta: Tensor, like: Tensor) -> Tensor:
    """A tensor of any scope's shape, with trailing axes so that it multiplies a state."""
    return eta.reshape(eta.shape + (1,) * (like.ndim - eta.ndim))


class Decision(NamedTuple):
    """What a rule decided, every field of the scope's shape, in float32 (float64 for float64 states).

    `progress` (P-hat), `fluctuation` (S-hat) and `balance` (what rho multiplies) are None for fixed schedules, and 0
    where there is nothing to compare with yet.
    """

    eta: Tensor
    finite: Tensor
    progress: Tensor | None
    fluctuation: Tensor | None
    balance: Tensor | None


class Controller(Protocol[S]):
    """A frozen dataclass of hyper-parameters with two pure methods. See docs: "Writing a controller".

    A rule that needs the true displacement may have a field `gain` (default None): whoever owns the loop fills it with
    the factor between eta * Delta and the displacement (1, or 1/K for Euler blocks).
    """

    def init(self, like: Tensor, scope: Scope = SAMPLE) -> S: ...

    def update(self, delta: Tensor, state: S, scope: Scope = SAMPLE) -> tuple[Decision, S]: ...


def resolve_gain(controller: Any, gain: float) -> Any:
    """Fill an open `gain` field; a controller without one, or with its own, is returned as it is."""
    if getattr(controller, "gain", gain) is not None:
        return controller
    return dataclasses.replace(controller, gain=gain)


def check_scope(owner: str, scope: Any) -> None:
    """Raise where something is no scope (its name, say)."""
    if not isinstance(scope, Sample | Token | Segments):
        raise InvalidType(f"{owner}.scope must be lt.Sample(mask), lt.Token() or lt.Segments(ids), but is {scope!r}.")


def check_controller_type(owner: str, controller: Any) -> None:
    """Raise where something is no controller (a class instead of an instance, text, a number)."""
    if isinstance(controller, type) or not (callable(getattr(controller, "init", None))
                                            and callable(getattr(controller, "update", None))):
        raise InvalidType(f"{owner} needs a bare controller such as lt.TapsGD(), but got {controller!r}. Text becomes "
                          "one by lt.spec(text); a Control goes to lt.iterate or a model.")


# The fields that hyper-parameters share: what is accepted, and how to say so.
_RANGES: dict[str, tuple[Any, str, str]] = {
    "gamma": (lambda v: v > 0, "a finite number > 0", "The default is 1.5."),
    "rho": (lambda v: v > 0, "a finite number > 0", "The default is 0.275; to switch control off, use Standard()."),
    "beta": (lambda v: 0 <= v < 1, "a number in [0, 1)", "The default is 0.8."),
    "eta_min": (lambda v: 0 < v <= 1, "a number in (0, 1]", "The unit step must stay inside the range; use 0.8."),
    "eta_max": (lambda v: v >= 1, "a finite number >= 1", "The unit step must stay inside the range; use 1.2."),
    "eps": (lambda v: v > 0, "a finite number > 0", "The default is 1e-12."),
}


def check_hyperparameters(rule: Any) -> None:
    """Validate the fields of a rule on construction, numbers as floats so that equal rules print equally.

    Fields that only this rule has are its own to check.
    """
    owner = type(rule).__name__
    for field in dataclasses.fields(rule):
        value = getattr(rule, field.name)
        if field.name == "warmup":
            if isinstance(value, bool) or not isinstance(value, Integral) or not 0 <= int(value) < 2**63:
                raise invalid(owner, "warmup", "a whole number >= 0 and < 2^63", _shown(value), "The default is 2.")
            object.__setattr__(rule, "warmup", int(value))
        elif field.name == "gain":
            if value is not None:
                object.__setattr__(rule, "gain", number(
                    owner, "gain", value, lambda v: v > 0, "None or a finite number > 0",
                    "Leave it None: the loop's owner fills it."))
        elif field.name in _RANGES:
            accept, accepted, fix = _RANGES[field.name]
            object.__setattr__(rule, field.name, number(owner, field.name, value, accept, accepted, fix))


def number(owner: str, field: str, value: Any, accept: Any, accepted: str, fix: str) -> float:
    """`value` as a float, or the sentence that says what would be accepted."""
    value = _shown(value)
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value) or not accept(value):
        raise invalid(owner, field, accepted, value, fix)
    return float(value)


def _shown(value: Any) -> Any:
    """The value, or infinity where it is a number beyond every float (it may have thousands of digits)."""
    largest = sys.float_info.max
    if isinstance(value, int | Fraction) and not -largest <= value <= largest:
        return math.inf if value > 0 else -math.inf
    return value


def all_finite(delta: Tensor, scope: Scope) -> Tensor:
    """Where every number of an update is finite, of the scope's shape: a sum of zeros is NaN elsewhere."""
    return scope.inner(delta, torch.zeros((), dtype=delta.dtype, device=delta.device)) == 0


def fresh_scalars(like: Tensor, scope: Scope, n: int) -> tuple[Tensor, ...]:
    """The count k and `n` scalars at zero, one leaf each, of the scope's shape."""
    check_state(like)
    check_scope("init", scope)
    scope.check(like)
    shape = scope.shape(like)
    k = torch.zeros(shape, dtype=torch.int64, device=like.device)
    scalars = (torch.zeros(shape, dtype=wide_dtype(like.dtype), device=like.device) for _ in range(n))
    return (k, *scalars)


def fresh_latent(like: Tensor) -> Tensor:
    """A latent-shaped leaf at zero."""
    return torch.zeros_like(like, dtype=wide_dtype(like.dtype))


def check_state(like: Tensor) -> None:
    if not isinstance(like, Tensor):
        raise InvalidType(f"A loop state must be a tensor, but is {type(like).__name__}. Use torch.tensor(state).")
    if like.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        raise InvalidType(f"A loop state must be floating point of 16 to 64 bits, but is {like.dtype}. "
                          "Embed token ids, and widen float8, before the loop.")


def widen(delta: Tensor, memory: Any, kind: type, scope: Scope) -> Tensor:
    """The update in the dtype of statistics, after checking that it fits the memory."""
    check_state(delta)
    leaves = memory
    if not isinstance(memory, kind):
        raise InvalidType(f"This memory is a {type(memory).__name__}, of another rule; this one keeps a "
                          f"{kind.__name__}. Start a fresh memory with init().")
    check_scope("update", scope)
    scope.check(delta)
    shapes = {scope.shape(delta), tuple(delta.shape)}
    for leaf in leaves:
        if tuple(leaf.shape) not in shapes:
            raise InvalidShape(f"This memory has a leaf {tuple(leaf.shape)}, but an update {tuple(delta.shape)} needs "
                               f"{scope.shape(delta)} or its own shape. Start a fresh memory with init().")
    return delta.to(wide_dtype(delta.dtype))


def settle(decision: Decision, memory: S) -> tuple[Decision, S]:
    """Where Delta, an energy or the balance is not finite: eta = 1, nothing measured, a memory that starts afresh.

    Energies just below the largest float are finite, and their weighed sum is not.

    Scalar leaves return to 0 there, the count k with them. At k = 0 a rule does not look at its latent leaves, so
    whatever these hold is left as it is: one pass over the latents less at every step.
    """
    finite = decision.finite & decision.eta.isfinite()
    if decision.balance is not None:  # in warmup eta is 1, but a score that is NaN would stay in the memory
        finite = finite & decision.balance.isfinite()

    def sane(value: Tensor | None) -> Tensor | None:
        return None if value is None else torch.where(finite, value, 0)

    settled = Decision(
        torch.where(finite, decision.eta, 1),
        finite,
        sane(decision.progress),
        sane(decision.fluctuation),
        sane(decision.balance),
    )
    leaves: Any = memory
    return settled, type(leaves)(*(sane(leaf) if leaf.shape == finite.shape else leaf for leaf in leaves))
