"""`load_model` and `save_model`: released files, our own, and the models in the package."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from looptaps.errors import InvalidFile, InvalidValue
from looptaps.models import MODELS
from looptaps.models.bundled import bundled_file, bundled_models
from looptaps.models.hub import (
    CONFIG_NAME,
    METADATA_KEY,
    WEIGHTS_NAME,
    SavedModel,
    described_config,
    parse_json,
    read_json,
    read_safetensors,
    write_file,
    write_folder,
)
from looptaps.models.released import YAML_NAME, load_released


def load_model(
    kind: str,
    path: str | Path | None = None,
    *,
    seq_len: int | None = None,
    vocab_size: int | None = None,
    num_puzzle_identifiers: int | None = None,
) -> Any:
    """A model from a released checkpoint, from a file or folder of ours, or bundled with the package.

    Args:
        kind: `trm`, `hrm`, `fprm`, `looped`, or a registered kind.
        path: a released file with `all_config.yaml` beside it; a folder or `.safetensors` file of ours; or the name
            of a bundled model, which comes first (`./sudoku` is a path). `load_model("trm:sudoku")` is
            `load_model("trm", "sudoku")`.
        seq_len, vocab_size, num_puzzle_identifiers: sizes of the data; read from the weights where left out, and
            compared with them where given. A model with attention and rotary positions accepts any length unless
            seq_len is given.

    The weights stay float32; the cores compute in the config's `forward_dtype`.
    """
    if path is None:
        kind, _, name = kind.partition(":")
        path = name or None
    cls = MODELS[kind]
    if path is None:
        raise InvalidValue(f"load_model({kind!r}) needs a path or the name of a bundled model. {_bundled_list()}")
    given = {"seq_len": seq_len, "vocab_size": vocab_size, "num_puzzle_identifiers": num_puzzle_identifiers}
    for field, value in given.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise InvalidValue(f"load_model: {field} must be a whole number >= 1 or left out, but is {value!r}.")
    # A name of ours means our model, whatever lies in the working folder; ./name or a Path is a path.
    bundled = bundled_file(kind, path) if isinstance(path, str) else None
    where = bundled if bundled is not None and bundled.is_file() else Path(path)
    if not where.exists():
        raise InvalidFile(f"{path} is no file or folder, and no bundled model of kind {kind!r} has that name. "
                          f"{_bundled_list()}")
    return _load(cls, where, given)


def save_model(model: SavedModel, path: str | Path, *, card: str | None = None) -> Path:
    """Write a model: into one file if the path ends in `.safetensors`, else into a folder as the hub has it.

    Args:
        model: any model of this package.
        path: where to.
        card: text of the model card; left out, a plain one is written unless there is one already.
    """
    path = Path(path)
    if path.suffix == ".safetensors":
        write_file(model, path, card)
    elif path.is_file():
        raise InvalidFile(f"{path} is a file, but a model goes into a folder or a .safetensors file.")
    else:
        write_folder(model, path, card)
    return path


def _bundled_list() -> str:
    return f"Bundled models: {', '.join(bundled_models()) or 'none in this installation'}."


def _load(cls: type[SavedModel], path: Path, given: dict[str, int | None]) -> SavedModel:
    if path.is_dir():
        if not (path / CONFIG_NAME).is_file():
            hint = " Name the checkpoint file in it, such as 'step_65100'." if (path / YAML_NAME).is_file() else ""
            raise InvalidFile(f"{path} is a folder without {CONFIG_NAME}, so it is no model of looptaps.{hint}")
        description, weights_path = read_json(path / CONFIG_NAME), path / WEIGHTS_NAME
        weights, _ = read_safetensors(weights_path)
    else:
        weights_path = path
        if path.suffix != ".safetensors":
            return load_released(cls, path, given)
        weights, metadata = read_safetensors(path)
        if METADATA_KEY in metadata:
            description = parse_json(metadata[METADATA_KEY], f"the metadata of {path}")
        elif path.name == WEIGHTS_NAME and (path.parent / CONFIG_NAME).is_file():
            description = read_json(path.parent / CONFIG_NAME)
        else:
            return load_released(cls, path, given)
    config = described_config(cls, description, str(path))
    for field, value in given.items():
        own = getattr(config, field, None)
        if value is not None and own not in (None, value):
            raise InvalidFile(f"{path} was made with {field} = {own}, not {value}. Leave {field} out to use its own.")
    if given["seq_len"] is not None and config.seq_len is None:
        config = dataclasses.replace(config, seq_len=given["seq_len"])
    return cls.from_weights(config, weights, str(weights_path))
