"""`attach`: loop a window of any Hugging Face decoder, with an online step, and take it off again.

Layer i runs the whole window, the layers behind it pass their input on, and a pre-hook notes the padding mask. Only
this one instance is touched; its state dict is not; on detach it is as it was.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Literal, get_args

from torch import nn

from looptaps.errors import InvalidType, InvalidUse, InvalidValue, invalid
from looptaps.hf.blocks import KV, LoopedLayers, PassThrough, Window
from looptaps.hf.guard import CacheGuard, NotCopied
from looptaps.hf.masks import MaskRecorder, OuterMask
from looptaps.hf.trace import EtaTrace
from looptaps.loop import Control, as_control

AttachScope = Literal["sequence", "token"]
_MARK = "_looptaps_handle"
# Attention whose state is keys and values alone, so that a stage can have slots of its own.
_LOOPABLE = {"full_attention", "attention", "sliding_attention", "chunked_attention"}


class Handle(NotCopied):
    """A loop attached to a model: what it is, what it did, and the way to take it off."""

    def __init__(self, model: Any, control: Control, window: Window | None) -> None:
        self.model, self.control, self.window = model, control, window
        self.trace = EtaTrace()
        self._undo: list[Any] = []

    @property
    def attached(self) -> bool:
        return bool(self._undo)

    def detach(self) -> None:
        """Restore the model, bit for bit. A second call does nothing."""
        while self._undo:
            self._undo.pop()()

    def replace(self, module: nn.Module, name: str, value: Any) -> None:
        """Set a plain attribute of this instance, to be undone by `detach`."""
        own = module.__dict__
        if name in own:
            before = own[name]
            self._undo.append(lambda: own.__setitem__(name, before))
        else:
            self._undo.append(lambda: own.pop(name))
        own[name] = value

    def hook(self, module: nn.Module, hook: Any) -> None:
        """Register a forward pre-hook with keyword arguments, to be undone by `detach`."""
        self._undo.append(module.register_forward_pre_hook(hook, with_kwargs=True).remove)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.detach()

    def __repr__(self) -> str:
        what = self.window if self.window is not None else self.control
        return f"Handle({type(self.model).__name__}, {what}, attached={self.attached}, {self.trace})"


def attach(
    model: Any,
    control: Any,
    *,
    layers: tuple[int, int] | None = None,
    loops: int | None = None,
    scope: AttachScope | None = None,
    kv: KV = "stage",
) -> Handle:
    """Loop `layers` = (i, j), 0-based and inclusive, `loops` times: x <- x + (eta_k / K) (F(x) - x).

    Works in prefill and in decoding, with `generate`, padding on either side, gradient checkpointing and device maps.
    The memory of the rule is fresh in every forward. Models that bring their own loop (Ouro, Huginn, HRM-Text) take
    no `layers` and no `loops`: their own updates are controlled.

    Args:
        model: a causal language model whose decoder has `layers`.
        control: a controller, or a `Control` around one.
        layers: the window (first, last).
        loops: K; 1 is the model's own pass, whose unit step changes nothing.
        scope: one eta per `sequence` (the paper's; not causal) or per `token` (causal, cached == uncached, the same in
            every batch: for serving). None takes `control.scope`.
        kv: `stage` keeps the keys and values of every stage (exact); `first` and `last` keep those of one pass, as
            published code does, for comparison.

    Returns:
        a `Handle`; use it in a `with` block or call `detach()`.
    """
    control = check_control(control)
    if scope is not None and scope not in get_args(AttachScope):
        raise invalid("attach", "scope", "'sequence', 'token' or None", scope, "None takes the control's own.")
    if kv not in get_args(KV):
        raise invalid("attach", "kv", "'stage', 'first' or 'last'", kv, "'stage' is exact.")
    name = scope or ("token" if control.scope == "token" else "sequence")
    decoder = find_decoder(model)
    if getattr(decoder, _MARK, None) is not None or getattr(model, _MARK, None) is not None:
        raise InvalidUse("This model already has an attached loop. Detach that one first (handle.detach()).")
    own_loop = _own_loop(model)
    if own_loop is not None:
        if layers is not None or loops is not None or kv != "stage":
            raise InvalidUse(f"{type(model).__name__} brings its own loop, so attach takes no layers, loops or kv for "
                             "it. Leave them out.")
        attached: Handle = own_loop(model, control, name)
        return attached
    window = _window(decoder, control, layers, loops, name, kv)
    handle = Handle(model, control.resolved(gain=1 / window.loops), window)
    masks = MaskRecorder(decoder)
    blocks = list(decoder.layers)[window.first:window.last + 1]
    looped = LoopedLayers(window, blocks, masks, handle.trace)
    handle.replace(decoder, _MARK, handle)
    handle.hook(decoder, CacheGuard(window.setting, window.depth))
    for module in _around(model, decoder):
        handle.hook(module, OuterMask(masks, module))
    handle.hook(decoder, masks)
    handle.replace(blocks[0], "forward", looped)
    for index, block in enumerate(blocks[1:], window.first + 1):
        handle.replace(block, "forward", PassThrough(looped, index))
    return handle


def check_control(control: Any) -> Control:
    """A control that makes sense inside one forward of a language model."""
    checked = as_control(control)
    if checked.site != "inner":
        raise invalid("attach", "control.site", "'inner'", checked.site,
                      "Outer control is for models that we drive (z_H and z_L).")
    if checked.memory != "rollout":
        raise invalid("attach", "control.memory", "'rollout'", checked.memory,
                      "In a language model every forward starts afresh.")
    return checked


def find_decoder(model: Any) -> Any:
    """The decoder module that holds the layers."""
    get_decoder = getattr(model, "get_decoder", None)
    if not isinstance(model, nn.Module) or not callable(get_decoder):
        raise InvalidType(f"attach needs a transformers language model, but got {type(model).__name__}.")
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise InvalidUse(f"{type(model).__name__} is an encoder-decoder; attach loops decoder-only models.")
    decoder = get_decoder()
    inner = getattr(decoder, "model", None)  # Llama 4 names itself as its decoder
    return inner if not hasattr(decoder, "layers") and hasattr(inner, "layers") else decoder


def _around(model: nn.Module, decoder: nn.Module) -> list[nn.Module]:
    """The modules from the model down to the decoder, without it."""
    path = next((name for name, module in model.named_modules() if module is decoder), "")
    parts = path.split(".") if path else []
    return [model.get_submodule(".".join(parts[:n])) for n in range(len(parts))]


def _own_loop(model: Any) -> Any:
    if getattr(getattr(model, "config", None), "model_type", None) == "hrm_text":
        from looptaps.hf.hrm_text import attach_hrm_text

        return attach_hrm_text
    if callable(getattr(model, "set_control", None)):
        from looptaps.hf.recurrent import attach_recurrent

        return attach_recurrent
    return None


def _window(decoder: Any, control: Control, layers: Any, loops: Any, scope: str, kv: KV) -> Window:
    stack = getattr(decoder, "layers", None)
    if not isinstance(stack, nn.ModuleList) or len(stack) == 0:
        raise InvalidUse(f"{type(decoder).__name__} exposes no `layers`, so no window of it can be looped.")
    config = decoder.config.get_text_config(decoder=True)
    depth = min(len(stack), getattr(config, "num_hidden_layers", len(stack)))
    shared = getattr(config, "num_kv_shared_layers", None) or 0
    if shared > 0:
        raise InvalidUse(f"The last {shared} layers of {type(decoder).__name__} attend to keys and values of earlier "
                         "layers (num_kv_shared_layers), and stages of a loop keep their own, so it cannot be looped. "
                         "Choose a model without shared keys and values.")
    if (not isinstance(layers, tuple | list) or len(layers) != 2
            or any(isinstance(v, bool) or not isinstance(v, int) for v in layers)):
        raise invalid("attach", "layers", "two whole numbers (first, last)", layers, "(15, 18) loops four layers.")
    first, last = layers
    if not 0 <= first <= last < depth:
        raise InvalidValue(f"attach.layers must satisfy 0 <= first <= last <= {depth - 1}, but is {(first, last)}: "
                           f"{type(decoder).__name__} has {depth} layers, counted from 0, and last is included.")
    if isinstance(loops, bool) or not isinstance(loops, int) or loops < 1:
        raise invalid("attach", "loops", "a whole number >= 1", loops, "The paper loops 3 times.")
    types = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None)
    if types is not None:
        found = set(types[first:last + 1])
        if len(found) > 1:
            raise InvalidUse(f"Layers {first}..{last} mix attention types ({', '.join(sorted(found))}), which need "
                             "different masks, so they cannot be run as one block. Choose a window of one type; the "
                             f"layers are: {', '.join(f'{n} {t}' for n, t in enumerate(types))}.")
        if not found <= _LOOPABLE:
            raise InvalidUse(f"Layers {first}..{last} are {found.pop()}, whose state is not keys and values alone. "
                             f"A loop can hold {', '.join(sorted(_LOOPABLE))}.")
    return Window(first, last, depth, loops, kv, scope, control)
