"""Language models: loop a window of any Hugging Face decoder, and Ouro and Huginn for today's transformers.

Names load on first use, so that importing looptaps loads no transformers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from looptaps.errors import MissingExtra

_NAMES = {
    **dict.fromkeys(("Handle", "attach"), "looptaps.hf.attachment"),
    "EtaTrace": "looptaps.hf.trace",
    **dict.fromkeys(("OuroConfig", "OuroForCausalLM", "OuroModel"), "looptaps.hf.ouro"),
    "HuginnConfig": "looptaps.hf.huginn_config",
    "HuginnForCausalLM": "looptaps.hf.huginn",
    "load_tiny_ouro": "looptaps.hf.bundled",
    "register": "looptaps.hf.auto",
}

if TYPE_CHECKING:
    from looptaps.hf.attachment import Handle, attach
    from looptaps.hf.auto import register
    from looptaps.hf.bundled import load_tiny_ouro
    from looptaps.hf.huginn import HuginnForCausalLM
    from looptaps.hf.huginn_config import HuginnConfig
    from looptaps.hf.ouro import OuroConfig, OuroForCausalLM, OuroModel
    from looptaps.hf.trace import EtaTrace

__all__ = [
    "EtaTrace",
    "Handle",
    "HuginnConfig",
    "HuginnForCausalLM",
    "OuroConfig",
    "OuroForCausalLM",
    "OuroModel",
    "attach",
    "load_tiny_ouro",
    "register",
]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'looptaps.hf' has no attribute {name!r}")
    try:
        value = getattr(import_module(_NAMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
        raise MissingExtra("looptaps.hf needs transformers: pip install 'looptaps[hf]'.") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
