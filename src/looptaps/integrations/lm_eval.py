"""lm-eval with controlled loops: `taps-eval` is lm-eval's own command line, with our model types registered.

    taps-eval run --model taps-hf --model_args pretrained=DIR,controller=taps-bb@blocks,layers=15-18,loops=3 --tasks ...
    taps-eval tasks DATA OUT        # task configs for local benchmark files, see `lm_eval_tasks`
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from looptaps.errors import InvalidUse, LooptapsError, MissingExtra, invalid
from looptaps.loop import Control
from looptaps.specs import spec

try:
    import lm_eval.models.huggingface as lm_eval_hf
    from lm_eval.api.registry import model_registry
except ImportError as error:
    raise MissingExtra("looptaps.integrations.lm_eval needs lm-eval: pip install 'looptaps[lm-eval]'.") from error

_log = logging.getLogger("looptaps.lm_eval")
MODELS = ("taps-hf", "taps-ouro", "taps-huginn")


class TapsHFLM(lm_eval_hf.HFLM):  # type: ignore[misc]  # lm-eval carries no types
    """lm-eval's Hugging Face model with a controlled loop attached.

    Beside the arguments of `HFLM`: `controller` (a spec), `layers` ("15-18" or "15"), `loops`, `scope` and `kv`, as
    `lt.hf.attach` takes them, and `every` of `lt.Control`. `controller=standard` (the default) without layers is the
    model as it is; Ouro, Huginn and HRM-Text take a controller alone.

    Padding is masked, which `HFLM` leaves to causality: an eta that covers a sequence must not see it. So the batch
    size changes no score.
    """

    def __init__(
        self,
        pretrained: Any,
        *,
        controller: str = "standard",
        layers: str | int | tuple[int, int] | None = None,
        loops: int | None = None,
        scope: Any = None,
        kv: Any = "stage",
        every: int = 1,
        **kwargs: Any,
    ) -> None:
        from looptaps import hf

        hf.register()
        control = Control(spec(controller), every=every)
        window = None if layers is None else parse_layers(layers)
        super().__init__(pretrained=pretrained, **kwargs)
        self._lengths: list[int] | None = None
        self._noted = 0
        self.taps: Any = None
        if window is None and loops is None and scope is None and kv == "stage" and controller == "standard":
            _log.info("No loop: the model runs as it is.")
            return
        self.taps = hf.attach(self.model, control, layers=window, loops=loops, scope=scope, kv=kv)
        _log.info("%s", self.taps)

    def _model_call(self, inps: Tensor, attn_mask: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        lengths, self._lengths = self._lengths, None
        if self.taps is None or lengths is None or attn_mask is not None or labels is not None:
            logits: Tensor = super()._model_call(inps, attn_mask, labels)
            return logits
        if len(lengths) != inps.shape[0] or max(lengths) != inps.shape[1]:
            raise InvalidUse("lm-eval padded a batch in a way this version of looptaps does not know, so padding "
                             "cannot be masked. Use batch_size=1.")
        mask = torch.arange(inps.shape[1], device=inps.device) < torch.tensor(lengths, device=inps.device)[:, None]
        precision = self.mixed_precision_dtype
        with torch.no_grad(), torch.autocast(self.device.type, dtype=precision, enabled=precision is not None):
            masked: Tensor = self.model(inps, attention_mask=mask.long()).logits
            return masked

    def _loglikelihood_tokens(self, requests: Any, *args: Any, **kwargs: Any) -> Any:
        if self.taps is None:
            return super()._loglikelihood_tokens(requests, *args, **kwargs)
        self._noted = 0
        with self._noting_lengths():
            scores = super()._loglikelihood_tokens(requests, *args, **kwargs)
        if len(requests) > 0 and self._noted == 0:
            raise InvalidUse("This version of lm-eval builds its batches in a way looptaps does not know, so padding "
                             "was not masked. Install lm-eval 0.4.13, or use batch_size=1.")
        return scores

    @contextmanager
    def _noting_lengths(self) -> Iterator[None]:
        # The batch is built inside lm-eval's loop, which hands on the padded tensor alone: note the lengths there.
        pad = lm_eval_hf.pad_and_concat

        def noting(max_length: int, tensors: list[Tensor], *args: Any, **kwargs: Any) -> Any:
            self._lengths = [len(tensor) for tensor in tensors]
            self._noted += 1
            return pad(max_length, tensors, *args, **kwargs)

        lm_eval_hf.pad_and_concat = noting
        try:
            yield
        finally:
            lm_eval_hf.pad_and_concat = pad
            self._lengths = None

    def get_model_info(self) -> dict[str, Any]:
        """What goes into results.json: lm-eval's own record, and `taps`."""
        info: dict[str, Any] = super().get_model_info()
        if self.taps is None:
            return {**info, "taps": None}
        window, trace = self.taps.window, self.taps.trace
        stages = trace.stage_means
        loop = {} if window is None else {"layers": [window.first, window.last], "loops": window.loops,
                                          "kv": window.kv, "scope": window.scope}
        return {**info, "taps": {"control": self.taps.control.to_dict(), **loop, "forwards": trace.count,
                                 "eta_bar": trace.mean, "eta_stages": None if stages is None else stages.tolist()}}


def parse_layers(text: str | int | tuple[int, int]) -> tuple[int, int]:
    """ "15-18" or 15 as (first, last).

    >>> parse_layers("15-18"), parse_layers(3)
    ((15, 18), (3, 3))
    """
    if isinstance(text, tuple):
        return text
    first, _, last = str(text).partition("-")
    if not first.isdigit() or (last and not last.isdigit()):
        raise invalid("TapsHFLM", "layers", "FIRST-LAST, both counted from 0 and included", text, "For example 15-18.")
    return int(first), int(last or first)


def register() -> None:
    """Let lm-eval know our model types; calling it again does nothing."""
    model_registry.register(*MODELS)(TapsHFLM)


def main() -> None:
    """`taps-eval`: our `tasks`, and everything else as lm-eval has it."""
    try:
        if sys.argv[1:2] == ["tasks"]:
            from looptaps.integrations.lm_eval_tasks import main as write

            write(sys.argv[2:])
            return
        register()
        from lm_eval.__main__ import cli_evaluate

        cli_evaluate()
    except LooptapsError as error:
        print(f"taps-eval: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
