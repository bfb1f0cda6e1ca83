"""looptaps: control how far each step of a looped transformer goes.

`x <- x + eta * (f(x) - x)`, with eta chosen online, per sample, from the trajectory alone. Names load on first use;
`import looptaps` by itself imports no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public name -> where it lives.
_NAMES = {
    **dict.fromkeys(
        ("Standard", "Constant", "Schedule", "TapsGD", "TapsSign", "TapsMomentum", "TapsRMSProp", "TapsAdam",
         "TapsBB", "Sample", "Token", "Segments", "Decision", "Controller"),
        "looptaps.controllers",
    ),
    **dict.fromkeys(("Control", "Stepper", "iterate"), "looptaps.loop"),
    **dict.fromkeys(("spec", "spec_text"), "looptaps.specs"),
    **dict.fromkeys(("load_model",), "looptaps.models"),
    "BalancePenalty": "looptaps.train",
    **dict.fromkeys(
        ("FixedDepth", "AdaptiveExit", "QExit", "FixedPoint", "FPRMRule", "Anderson", "Rollouts", "Result", "Status",
         "serve_loop"),
        "looptaps.strategies",
    ),
}
_SUBPACKAGES = ("errors", "hf", "models", "strategies", "theory", "testing")

if TYPE_CHECKING:
    from looptaps import errors, hf, models, strategies, testing, theory
    from looptaps.controllers import (
        Constant,
        Controller,
        Decision,
        Sample,
        Schedule,
        Segments,
        Standard,
        TapsAdam,
        TapsBB,
        TapsGD,
        TapsMomentum,
        TapsRMSProp,
        TapsSign,
        Token,
    )
    from looptaps.loop import Control, Stepper
    from looptaps.loop.iterate import iterate as iterate
    from looptaps.models import load_model
    from looptaps.specs import spec, spec_text
    from looptaps.strategies import (
        AdaptiveExit,
        Anderson,
        FixedDepth,
        FixedPoint,
        FPRMRule,
        QExit,
        Result,
        Rollouts,
        Status,
        serve_loop,
    )
    from looptaps.train import BalancePenalty

__all__ = [
    "AdaptiveExit",
    "Anderson",
    "BalancePenalty",
    "Constant",
    "Control",
    "Controller",
    "Decision",
    "FPRMRule",
    "FixedDepth",
    "FixedPoint",
    "QExit",
    "Result",
    "Rollouts",
    "Sample",
    "Schedule",
    "Segments",
    "Standard",
    "Status",
    "Stepper",
    "TapsAdam",
    "TapsBB",
    "TapsGD",
    "TapsMomentum",
    "TapsRMSProp",
    "TapsSign",
    "Token",
    "errors",
    "hf",
    "iterate",
    "load_model",
    "models",
    "serve_loop",
    "spec",
    "spec_text",
    "strategies",
    "testing",
    "theory",
]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        value = getattr(import_module(_NAMES[name]), name)
    elif name in _SUBPACKAGES:
        value = import_module(f"looptaps.{name}")
    else:
        raise AttributeError(f"module 'looptaps' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES, *_SUBPACKAGES})
