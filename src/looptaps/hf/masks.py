"""Which positions are real: padding must not enter an eta that covers a sequence."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from looptaps.controllers.base import Sample, Scope, Token
from looptaps.errors import InvalidShape, InvalidUse
from looptaps.hf.guard import NotCopied


def recomputing() -> bool:
    """Inside a backward pass a forward can only be a recomputation (activation checkpointing)."""
    return torch._C._current_graph_task_id() != -1


def real_positions(attention_mask: Any, x: Tensor) -> Tensor | None:
    """(B, N) True at real positions, for the N positions of this forward; None where there is no padding mask."""
    if attention_mask is None:
        return None
    if not isinstance(attention_mask, Tensor) or attention_mask.ndim != 2:
        if x.shape[1] == 1:
            return None  # a single token is its own whole sequence
        raise InvalidUse("Sequence scope must know the padding, but the model was given a prepared mask instead of a "
                         "2-D attention_mask (B, N). Pass the 2-D mask, or use scope='token'.")
    if attention_mask.shape[0] != x.shape[0] or attention_mask.shape[1] < x.shape[1]:
        raise InvalidShape(f"attention_mask of shape {tuple(attention_mask.shape)} does not cover a state of shape "
                           f"{tuple(x.shape)}.")
    return attention_mask[:, -x.shape[1]:].to(device=x.device, dtype=torch.bool)


def plain_mask(mask: Any) -> Any:
    """What masks prepared by layer type say of the padding: where full attention needs no mask there is none."""
    if not isinstance(mask, dict):
        return mask
    if all(value is None for value in mask.values()):
        return None
    return mask.get("full_attention", mask)


def scope_for(name: str, attention_mask: Any, x: Tensor) -> tuple[Scope, Tensor | None]:
    """The scope object of this forward, and the (B, N) mask of real positions as far as it is known."""
    if name == "token":
        known = isinstance(attention_mask, Tensor) and attention_mask.ndim == 2
        return Token(), real_positions(attention_mask, x) if known else None
    mask = real_positions(attention_mask, x)
    return Sample(mask), mask


def trace_mask(scope: Scope, mask: Tensor | None) -> Tensor | None:
    """The mask that belongs to etas of this scope: positions for tokens, rows with any real position otherwise."""
    return mask if mask is None or isinstance(scope, Token) else mask.any(-1)


class MaskRecorder(NotCopied):
    """A forward pre-hook on a decoder that notes the attention mask of the running forward.

    Layers get a prepared mask, from which padding cannot be read. Under activation checkpointing a layer is run again
    in the backward pass, perhaps after another forward: the mask is found again by a tensor that only that forward
    has, its position embeddings.
    """

    def __init__(self, decoder: Any) -> None:
        self._names = list(inspect.signature(decoder.forward).parameters)
        self._by_forward: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self.mask: Any = None
        self.outer: list[Any] = []

    def __call__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        mask = {**dict(zip(self._names, args)), **kwargs}.get("attention_mask")
        if isinstance(mask, dict) and self.outer:
            mask = self.outer[0]
        self.outer = []  # it belongs to this forward alone
        self.mask = plain_mask(mask)

    def current(self, training: bool, kwargs: dict[str, Any]) -> Any:
        """The mask of the forward to which this call of a layer belongs."""
        positions = kwargs.get("position_embeddings")
        key = positions[0] if isinstance(positions, tuple) and positions else None
        if recomputing():
            if key is None or key not in self._by_forward:
                raise InvalidUse("Under gradient checkpointing sequence scope cannot tell which forward this layer "
                                 "belongs to. Use scope='token'.")
            return self._by_forward[key]
        if training and key is not None:
            self._by_forward[key] = self.mask
        return self.mask


class OuterMask(NotCopied):
    """A forward pre-hook on a model around the decoder, for those that hand their decoder prepared masks (Gemma 3)."""

    def __init__(self, recorder: MaskRecorder, module: Any) -> None:
        self.recorder = recorder
        self._names = list(inspect.signature(module.forward).parameters)

    def __call__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.recorder.outer = [{**dict(zip(self._names, args)), **kwargs}.get("attention_mask")]
