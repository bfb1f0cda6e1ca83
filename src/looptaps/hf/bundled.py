"""The tiny Ouro that comes along: recurrence on weights that mean something, without a download.

    b=3+4;k=b-9;d=k+5;m=d+1;?d  ->  3

Trained by `looptaps lm train --recipe recipes/train_ouro_tiny.toml` on programs of 4, 8 and 12 statements; the card
lies beside the weights.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any


def tiny_ouro_folder() -> Path:
    """The folder of weights, tokenizer and card, as `from_pretrained` takes it."""
    return Path(str(files("looptaps"))) / "assets" / "ouro-tiny"


def load_tiny_ouro() -> tuple[Any, Any]:
    """(model, tokenizer) in float32."""
    from looptaps.hf.smollm import load_language_model

    return load_language_model(tiny_ouro_folder())
