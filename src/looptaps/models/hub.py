"""Saving and sharing: our own format is weights as safetensors, a config and a model card.

A folder holds `model.safetensors`, `config.json` and `README.md`, and is what `save_pretrained`, `push_to_hub` and
`from_pretrained` (of huggingface_hub's PyTorchModelHubMixin) read and write. A single `.safetensors` file carries its
config in the file's metadata.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from huggingface_hub import PyTorchModelHubMixin, hf_hub_download
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from looptaps.errors import InvalidFile, InvalidType, LooptapsError
from looptaps.models.config import ModelConfig

WEIGHTS_NAME, CONFIG_NAME, CARD_NAME = "model.safetensors", "config.json", "README.md"
# The metadata key of a single file.
METADATA_KEY = "looptaps"


class SavedModel(nn.Module, PyTorchModelHubMixin, library_name="looptaps", tags=["looped-transformer"]):
    """A model that knows its kind and config, and can be saved, pushed and read back."""

    kind: ClassVar[str]
    config_type: ClassVar[type[ModelConfig]]
    config: Any

    def description(self) -> dict[str, Any]:
        """What is written beside the weights: enough to build the model again."""
        return {"kind": self.kind, "config": self.config.to_dict()}

    @classmethod
    def from_weights(cls, config: ModelConfig, weights: dict[str, Tensor], source: str) -> Self:
        """The model with these weights: every one needed is there, fits, and none is left over."""
        with torch.device("meta"):
            model = cls(config)
        wanted = model.state_dict()
        for name in sorted(wanted.keys() | weights.keys()):
            if name not in weights:
                raise InvalidFile(f"{source} has no weight {name!r}, which a {cls.__name__} of its config needs. "
                                  "Is it the checkpoint of another model?")
            if name not in wanted:
                raise InvalidFile(f"{source} holds a weight {name!r} that a {cls.__name__} of its config does not "
                                  "have. Is it the checkpoint of another model?")
            if wanted[name].shape != weights[name].shape:
                raise InvalidFile(f"{source}: weight {name!r} has shape {tuple(weights[name].shape)}, but its config "
                                  f"makes a {cls.__name__} with {tuple(wanted[name].shape)}. Do file and config belong "
                                  "together?")
        # Copies, so that the model does not hang on to the file's memory.
        own = {name: weights[name].to(like.dtype, copy=True).contiguous() for name, like in wanted.items()}
        model.load_state_dict(own, assign=True)
        return model.eval()

    def _save_pretrained(self, save_directory: Path) -> None:
        write_folder(self, save_directory, None)

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        map_location: str = "cpu",
        **unknown: Any,
    ) -> Self:
        # The mixin hands over a part of the config file; ours is read whole, because it also says the model's kind.
        unknown.pop("config", None)
        if unknown:
            raise InvalidType(f"{cls.__name__}.from_pretrained does not know {', '.join(sorted(unknown))}.")

        def fetch(name: str) -> Path:
            if Path(model_id).is_dir():
                return Path(model_id) / name
            return Path(hf_hub_download(model_id, name, revision=revision, cache_dir=cache_dir, token=token,
                                        force_download=force_download, local_files_only=local_files_only))

        description = read_json(fetch(CONFIG_NAME))
        path = fetch(WEIGHTS_NAME)
        weights, _ = read_safetensors(path)
        return cls.from_weights(described_config(cls, description, str(model_id)), weights, str(path)).to(map_location)


def described_config(cls: type[SavedModel], description: Any, source: str) -> ModelConfig:
    """The config in a description, if it is one of this kind of model."""
    if not isinstance(description, dict) or not isinstance(description.get("config"), dict):
        raise InvalidFile(f"{source}: its config must be {{'kind': ..., 'config': {{...}}}}. "
                          "Was it written by looptaps?")
    if description.get("kind") != cls.kind:
        raise InvalidFile(f"{source} holds a model of kind {description.get('kind')!r}, not {cls.kind!r}. Load it with "
                          f"load_model({description.get('kind')!r}, ...).")
    try:
        return cls.config_type.from_dict(description["config"])
    except (LooptapsError, TypeError) as error:
        raise InvalidFile(f"{source}: its config makes no {cls.__name__}: {error}") from error


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All tensors and the metadata of a file."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except FileNotFoundError as error:
        raise InvalidFile(f"{path} does not exist.") from error
    except (SafetensorError, OSError) as error:
        raise InvalidFile(f"{path} is damaged, truncated, or no safetensors file ({error}).") from error


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    try:
        return parse_json(path.read_text(encoding="utf-8"), str(path))
    except (UnicodeDecodeError, OSError) as error:
        raise InvalidFile(f"{path} cannot be read as text ({error}).") from error


def parse_json(text: str, source: str) -> Any:
    """The content of a JSON text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidFile(f"{source} is no JSON ({error}).") from error


def write_folder(model: SavedModel, folder: Path, card: str | None) -> None:
    """Weights, config and card into a folder; an existing card stays unless a new one is given."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_weights(model, folder / WEIGHTS_NAME, None)
    write_text(folder / CONFIG_NAME, json.dumps(model.description(), indent=2) + "\n")
    if card is not None or not (folder / CARD_NAME).exists():
        write_text(folder / CARD_NAME, card or plain_card(model))


def write_file(model: SavedModel, path: Path, card: str | None) -> None:
    """One `.safetensors` file with its config inside, and the card beside it as `.md`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _write_weights(model, path, {METADATA_KEY: json.dumps(model.description())})
    if card is not None or not path.with_suffix(".md").exists():
        write_text(path.with_suffix(".md"), card or plain_card(model))


def plain_card(model: SavedModel) -> str:
    """A card with what the model itself knows."""
    numbers = sum(parameter.numel() for parameter in model.parameters())
    config = json.dumps(model.config.to_dict(), indent=2)
    return (f"---\nlibrary_name: looptaps\ntags: [looped-transformer, {model.kind}]\n---\n\n"
            f"# {type(model).__name__}\n\n{numbers:,} parameters. How it was trained is not recorded here.\n\n"
            f"```json\n{config}\n```\n")


def _write_weights(model: SavedModel, path: Path, metadata: dict[str, str] | None) -> None:
    part = path.with_name(path.name + ".part")
    weights = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    save_file(weights, part, metadata={"format": "pt", **(metadata or {})})
    os.replace(part, path)


def write_text(path: Path, text: str) -> None:
    """Write a text file in one go, so that no half of it is ever seen."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
