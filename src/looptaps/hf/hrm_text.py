"""HRM-Text: the z_L updates of a model that transformers itself loops.

    z_L <- z_L + eta (L(z_L + z_H) - z_L),    z_H <- H(z_H + z_L)  (a unit step)

The model passes z_L + z_H into its L stack, so z_L is remembered here; in a forward it begins at `z_L_init`.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from looptaps.errors import InvalidUse
from looptaps.hf.attachment import Handle
from looptaps.hf.guard import CacheGuard, NotCopied
from looptaps.hf.masks import MaskRecorder
from looptaps.hf.recurrent import LoopRun
from looptaps.hf.slots import claim, find_cache
from looptaps.loop import Control


class ControlledLow(NotCopied):
    """Sits in the place of `L_module.forward`."""

    def __init__(self, decoder: Any, control: Control, setting: tuple[Any, ...], masks: MaskRecorder,
                 handle: Handle) -> None:
        config = decoder.config
        self.decoder, self.forward = decoder, decoder.L_module.forward
        self.control, self.setting, self.masks, self.handle = control, setting, masks, handle
        self.slots = config.num_hidden_layers
        # The offset of the last L call of a forward: its loop is over then.
        self.final = ((config.H_cycles - 1) * (config.L_cycles + 1) + config.L_cycles - 1) * config.num_layers_per_stack
        self.run: LoopRun | None = None
        self.z_L: Tensor | None = None

    def __call__(self, hidden_states: Tensor, *args: Any, cycle_offset: int = 0, **kwargs: Any) -> Tensor:
        if cycle_offset == 0:
            claim(find_cache(args, kwargs), self.setting, self.slots, new=hidden_states.shape[1])
            self.run = LoopRun(self.control, self.masks.mask)
            self.z_L = self.decoder.z_L_init.to(hidden_states).expand_as(hidden_states)
        if self.run is None or self.z_L is None:
            raise InvalidUse("HRM-Text called its L stack out of order; this version of transformers is not supported.")
        proposal = self.forward(hidden_states, *args, cycle_offset=cycle_offset, **kwargs)
        z_L = self.run.step(self.z_L.to(proposal.device), proposal)
        if cycle_offset == self.final:
            self.run.record(self.handle.trace)
            self.run = self.z_L = None  # hold no tensors beyond the forward
        else:
            self.z_L = z_L
        return z_L


def attach_hrm_text(model: Any, control: Control, scope: str) -> Handle:
    """`attach` for `hrm_text`: control its L updates."""
    scoped = Control.from_dict({**control.to_dict(), "scope": scope}).resolved(gain=1.0)
    decoder = model.get_decoder()
    handle = Handle(model, scoped, None)
    masks = MaskRecorder(decoder)
    setting = ("hrm_text", scoped)
    low = ControlledLow(decoder, scoped, setting, masks, handle)
    handle.replace(decoder, "_looptaps_handle", handle)
    handle.hook(decoder, CacheGuard(setting, low.slots))
    handle.hook(decoder, masks)
    handle.replace(decoder.L_module, "forward", low)
    return handle
