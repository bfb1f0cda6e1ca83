"""Reading released TRM and HRM checkpoints as they are: weights from the file, the make from `all_config.yaml`.

Nothing in a file is ever executed: tensors are read with `weights_only=True`, YAML with the safe loader.
"""

from __future__ import annotations

import dataclasses
import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from looptaps.errors import InvalidFile, LooptapsError
from looptaps.models.config import ModelConfig
from looptaps.models.hub import SavedModel, read_safetensors

YAML_NAME = "all_config.yaml"
# What the released `arch` holds beside the model's own fields: names, the loss, and options of training or data.
_ASIDE = {"name", "loss", "no_ACT_continue", "batch_size", "causal"}
# A weight that only one kind of model has.
_SIGNS = {"hrm": "H_level.", "fprm": "L_optimizer.", "trm": "L_level."}


def load_released(cls: type[SavedModel], path: Path, given: dict[str, int | None]) -> SavedModel:
    """The model in a released file; `given` holds what the caller said about its data."""
    weights = _bare_names(read_tensors(path), path)
    found = next((kind for kind, sign in _SIGNS.items() if any(name.startswith(sign) for name in weights)), None)
    if found is None:
        raise InvalidFile(f"{path} holds no TRM or HRM: its weights are {', '.join(sorted(weights)[:3])}, ...")
    if found != cls.kind:
        raise InvalidFile(f"{path} is a checkpoint of {found!r}, not of {cls.kind!r}. Load it with "
                          f"load_model({found!r}, ...).")
    config = _config(cls, _arch(path), weights, given, path)
    return cls.from_weights(config, weights, str(path))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """A flat dictionary of tensors from a torch or safetensors file."""
    if path.suffix == ".safetensors":
        return read_safetensors(path)[0]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about pickle protocols of files we then refuse
            state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        code = re.search(r"GLOBAL (\S+)", str(error))
        what = f"code ({code[1]})" if code else "something other than tensors"
        raise InvalidFile(f"{path} holds pickled {what} and was not loaded: only plain tensors are read. Ask its "
                          "author for the state dict alone, or for safetensors.") from error
    except (EOFError, RuntimeError, KeyError, ValueError, IndexError, AttributeError, OSError) as error:
        raise InvalidFile(f"{path} is damaged, truncated, or no torch checkpoint.") from error
    if not isinstance(state, dict) or not state or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in state.items()
    ):
        raise InvalidFile(f"{path} holds no plain dictionary of weights (name -> tensor), so it is not a released "
                          "TRM or HRM checkpoint.")
    return state


def _bare_names(state: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Names as the bare network has them: without the prefixes of compilation, loss head and wrapper."""
    bare: dict[str, Tensor] = {}
    for name, value in state.items():
        short = name.removeprefix("_orig_mod.").removeprefix("model.").removeprefix("inner.")
        if short in bare:
            raise InvalidFile(f"{path} holds {short!r} twice, under different prefixes.")
        bare[short] = value
    return bare


def _arch(path: Path) -> dict[str, Any]:
    """The `arch` section of the configuration beside the file."""
    beside = path.parent / YAML_NAME
    try:
        content = yaml.safe_load(beside.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InvalidFile(f"{path} has no {YAML_NAME} beside it. Copy it from the folder the checkpoint came from: "
                          "it says what the model is made of.") from error
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise InvalidFile(f"{beside} is not readable as plain YAML ({' '.join(str(error).split())}).") from error
    if not isinstance(content, dict) or not isinstance(content.get("arch"), dict):
        raise InvalidFile(f"{beside} has no section 'arch'. Is it the file of another program?")
    return {str(key): value for key, value in content["arch"].items()}


def _config(
    cls: type[SavedModel], arch: dict[str, Any], weights: dict[str, Tensor], given: dict[str, int | None], path: Path
) -> ModelConfig:
    known = {field.name for field in dataclasses.fields(cls.config_type)}
    # TRM's release carries a field H_layers that it ignores.
    values = {key: value for key, value in arch.items()
              if key not in _ASIDE and not (key == "H_layers" and "H_layers" not in known)}
    if "mlp_t" in known:
        mixes = any(".mlp_t." in name for name in weights)
        if values.setdefault("mlp_t", mixes) != mixes:
            raise InvalidFile(f"{path} and its {YAML_NAME} disagree: the weights are those of the "
                              f"{'mixer' if mixes else 'attention'} variant, the file says mlp_t: {values['mlp_t']}.")
    values |= {name: size for name, size in _sizes(cls, values, weights, path).items() if size is not None}
    for name, size in given.items():
        read = values.get(name)
        if size is not None and read not in (None, size):
            raise InvalidFile(f"{path} was made with {name} = {read}, not {size}. Leave {name} out to use the file's.")
    values |= {name: size for name, size in given.items() if size is not None}
    values.setdefault("seq_len", None)
    try:
        return cls.config_type.from_dict(values)
    except (LooptapsError, TypeError) as error:
        raise InvalidFile(f"{path.parent / YAML_NAME} makes no {cls.__name__} that goes with {path.name}: "
                          f"{error}") from error


def _sizes(
    cls: type[SavedModel], values: dict[str, Any], weights: dict[str, Tensor], path: Path
) -> dict[str, int | None]:
    """Vocabulary, puzzles and positions as the weights tell them (attention with rotary positions tells no length)."""

    def rows(name: str, axis: int = 0) -> int | None:
        weight = weights.get(name)
        return None if weight is None or weight.ndim != 2 else weight.shape[axis]

    vocab_size = rows("embed_tokens.embedding_weight")
    if vocab_size is None:
        raise InvalidFile(f"{path} has no token embedding, so it is not a whole {cls.__name__}.")
    positions = rows("embed_pos.embedding_weight")
    if positions is None:
        positions = rows("L_level.layers.0.mlp_t.gate_up_proj.weight", 1)
    seq_len = None
    if positions is not None:
        try:
            # The prefix follows from the config alone, whatever the length.
            seq_len = positions - cls.config_type.from_dict({**values, "vocab_size": 1, "seq_len": 1}).prefix  # type: ignore[attr-defined]
        except (LooptapsError, TypeError) as error:
            raise InvalidFile(f"{path.parent / YAML_NAME} makes no {cls.__name__}: {error}") from error
    return {"vocab_size": vocab_size, "num_puzzle_identifiers": rows("puzzle_emb.weights"), "seq_len": seq_len}
