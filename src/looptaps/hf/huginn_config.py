"""Configuration of Huginn, under the released type `huginn_raven` and the released field names."""

# mypy: disallow-subclassing-any=False, disallow-untyped-decorators=False, disallow-untyped-calls=False
# (transformers is skipped by mypy, so its classes are Any)
from __future__ import annotations

from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from looptaps.errors import InvalidUse, invalid


@strict
class HuginnConfig(PreTrainedConfig):
    """The released fields that shape the model, and three of ours.

    `init_scale` and `state_seed` set the random initial state; `taps` is the control of the recurrent steps as a dict
    (None: as released).
    """

    model_type = "huginn_raven"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values"]
    attribute_map: ClassVar[dict[str, str]] = {
        "num_attention_heads": "n_heads", "hidden_size": "n_embd", "num_hidden_layers": "n_layers",
        "max_position_embeddings": "block_size",
    }

    n_embd: int = 5280
    n_heads: int = 55
    n_layers: int = 8
    block_size: int = 4096
    vocab_size: int = 65536
    intermediate_size: int = 17920
    bias: bool = False
    norm_eps: float = 1e-6
    n_layers_in_prelude: int = 2
    n_layers_in_recurrent_block: int = 4
    n_layers_in_coda: int = 2
    mean_recurrence: int = 32
    qk_bias: bool = True
    rope_base: float | int = 50_000.0
    tie_word_embeddings: bool = True
    tie_embeddings: bool | None = None
    test_time_noise: float | int = 0.0
    use_cache: bool = True
    initializer_range: float = 0.02
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    init_scale: float | int = 1.0
    state_seed: int = 0
    taps: dict[str, Any] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        if self.tie_embeddings is not None:  # the released name
            self.tie_word_embeddings = self.tie_embeddings
        if self.test_time_noise:
            raise InvalidUse("HuginnConfig.test_time_noise must be 0: noise in the loop is not part of this port.")
        blocks = self.n_layers_in_prelude + self.n_layers_in_recurrent_block + self.n_layers_in_coda
        if self.n_layers != blocks:
            raise invalid("HuginnConfig", "n_layers", f"prelude + recurrent + coda = {blocks}", self.n_layers,
                          "It counts the blocks that have weights.")
        super().__post_init__(**kwargs)
