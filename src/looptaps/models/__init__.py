"""Models that we drive: TRM, HRM, FPRM and a plain looped transformer. Names load on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from looptaps.registry import Registry

MODELS = Registry(
    "models",
    {
        "trm": "looptaps.models.trm:TRM",
        "hrm": "looptaps.models.hrm:HRM",
        "fprm": "looptaps.models.fprm:FPRM",
        "looped": "looptaps.models.looped:LoopedTransformer",
    },
)

_NAMES = {
    **dict.fromkeys(("TRM", "TRMConfig"), "trm"),
    **dict.fromkeys(("HRM", "HRMConfig"), "hrm"),
    **dict.fromkeys(("FPRM", "FPRMConfig"), "fprm"),
    **dict.fromkeys(("LoopedTransformer", "LoopedConfig"), "looped"),
    **dict.fromkeys(("Carry", "TwoLevelModel"), "levels"),
    **dict.fromkeys(("Heads",), "base"),
    "bundled_models": "bundled",
    **dict.fromkeys(("load_model", "save_model"), "checkpoints"),
}

if TYPE_CHECKING:
    from looptaps.models.base import Heads
    from looptaps.models.bundled import bundled_models
    from looptaps.models.checkpoints import load_model, save_model
    from looptaps.models.fprm import FPRM, FPRMConfig
    from looptaps.models.hrm import HRM, HRMConfig
    from looptaps.models.levels import Carry, TwoLevelModel
    from looptaps.models.looped import LoopedConfig, LoopedTransformer
    from looptaps.models.trm import TRM, TRMConfig

__all__ = [
    "FPRM",
    "HRM",
    "MODELS",
    "TRM",
    "Carry",
    "FPRMConfig",
    "HRMConfig",
    "Heads",
    "LoopedConfig",
    "LoopedTransformer",
    "TRMConfig",
    "TwoLevelModel",
    "bundled_models",
    "load_model",
    "save_model",
]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'looptaps.models' has no attribute {name!r}")
    value = getattr(import_module(f"looptaps.models.{_NAMES[name]}"), name)
    globals()[name] = value
    return value
