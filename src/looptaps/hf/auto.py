"""Let transformers' Auto classes know Ouro and Huginn, so that released checkpoints load without remote code."""

from __future__ import annotations


def register() -> None:
    """Register `ouro` and `huginn_raven` with `AutoConfig`, `AutoModel` and `AutoModelForCausalLM`.

    Calling it again does nothing.

    Using `lt.hf.OuroForCausalLM` or `lt.hf.HuginnForCausalLM` registers that one by itself.
    """
    from importlib import import_module

    for module in ("ouro", "huginn"):
        import_module(f"looptaps.hf.{module}")
