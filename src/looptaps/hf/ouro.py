"""Ouro for transformers 5: one stack of layers run `total_ut_steps` times, with the final norm inside the loop.

    X_{k+1} = X_k + eta_k (norm(layers(X_k)) - X_k),    X_0 = embeddings

Written from the released model's facts on transformers' own parts; released weights load strictly. Every step keeps
its own keys and values, and padding is honoured in every step.
"""

# mypy: disallow-subclassing-any=False, disallow-untyped-decorators=False, disallow-untyped-calls=False
# (transformers is skipped by mypy, so its classes are Any)
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, GenerationMixin, LlamaConfig, PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache
from transformers.masking_utils import create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaMLP, LlamaRMSNorm, LlamaRotaryEmbedding
from transformers.utils import can_return_tuple
from transformers.utils.output_capturing import capture_outputs

from looptaps.errors import InvalidUse, invalid
from looptaps.hf.exits import ExitGate, exit_probabilities, exit_steps
from looptaps.hf.recurrent import Controlled, LoopRun
from looptaps.hf.slots import SlotView, claim, reserve


@strict
class OuroConfig(LlamaConfig):
    """The released configuration, and `taps`: the control of the recurrent steps as a dict (None: as released).

    `taps_before_norm` measures and scales the raw residual layers(X) - X, and norms after it. A threshold of None or
    >= 1 never exits early.
    """

    model_type = "ouro"

    vocab_size: int = 49152
    hidden_size: int = 2048
    intermediate_size: int = 5632
    num_hidden_layers: int = 24
    num_attention_heads: int = 16
    max_position_embeddings: int = 65536
    default_theta = 1_000_000.0
    total_ut_steps: int = 4
    early_exit_threshold: float | int | None = 1.0
    use_sliding_window: bool = False
    layer_types: list[str] | None = None
    taps: dict[str, Any] | None = None
    taps_before_norm: bool = False

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if self.layer_types is None:  # generate reads them for a static cache
            self.layer_types = ["full_attention"] * self.num_hidden_layers
        if self.use_sliding_window or any(kind != "full_attention" for kind in self.layer_types):
            raise InvalidUse("OuroConfig: sliding-window attention is not supported (no released Ouro uses it).")
        if self.total_ut_steps < 1:
            raise invalid("OuroConfig", "total_ut_steps", "a whole number >= 1", self.total_ut_steps,
                          "Released models use 4.")


@dataclass
class OuroModelOutput(BaseModelOutputWithPast):
    """`step_states`: the normed state after every recurrent step, in order."""

    step_states: tuple[Tensor, ...] | None = None


@dataclass
class OuroOutput(CausalLMOutputWithPast):
    """`exit_pdf` (B, N, steps) and `exit_step` (B, N), where an exit was asked for."""

    exit_pdf: Tensor | None = None
    exit_step: Tensor | None = None


class OuroDecoderLayer(GradientCheckpointingLayer):
    """A Llama layer with a norm behind attention and MLP too (sandwich norms)."""

    def __init__(self, config: OuroConfig, layer_idx: int) -> None:
        super().__init__()
        self.self_attn = LlamaAttention(config, layer_idx)
        self.mlp = LlamaMLP(config)
        for name in ("input_layernorm", "input_layernorm_2", "post_attention_layernorm", "post_attention_layernorm_2"):
            setattr(self, name, LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps))

    def forward(self, hidden_states: Tensor, **kwargs: Any) -> Tensor:
        attended, _ = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **kwargs)
        hidden_states = hidden_states + self.input_layernorm_2(attended)
        mixed = self.mlp(self.post_attention_layernorm(hidden_states))
        out: Tensor = hidden_states + self.post_attention_layernorm_2(mixed)
        return out


class OuroPreTrainedModel(PreTrainedModel):
    config_class = OuroConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["OuroDecoderLayer"]  # noqa: RUF012 (transformers' own convention)
    _skip_keys_device_placement = ["past_key_values"]  # noqa: RUF012
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_record_outputs = {"hidden_states": OuroDecoderLayer, "attentions": LlamaAttention}  # noqa: RUF012


class OuroModel(Controlled, OuroPreTrainedModel):
    """The looped stack. `set_control` schedules its steps."""

    def __init__(self, config: OuroConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, config.pad_token_id)
        self.layers = nn.ModuleList(OuroDecoderLayer(config, index) for index in range(config.num_hidden_layers))
        self.norm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.rotary_emb = LlamaRotaryEmbedding(config)
        self.early_exit_gate = ExitGate(config.hidden_size, 1)
        self.gradient_checkpointing = False
        self.init_control()
        self.post_init()

    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> OuroModelOutput:
        if (input_ids is None) == (inputs_embeds is None):
            raise InvalidUse("OuroModel needs either input_ids or inputs_embeds, and not both.")
        if isinstance(attention_mask, dict):  # as generate prepares it for a static cache
            attention_mask = attention_mask["full_attention"]
        x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        use_cache = self.config.use_cache if use_cache is None else use_cache
        if use_cache and past_key_values is None and not (self.training and self.gradient_checkpointing):
            past_key_values = DynamicCache(config=self.config)
        depth, steps = len(self.layers), self.config.total_ut_steps
        if past_key_values is not None:
            setting = ("ouro", steps, self.control, self.config.taps_before_norm)
            claim(past_key_values, setting, depth, new=x.shape[1])
            reserve(past_key_values, list(range(depth)) * (steps - 1), depth)
        if position_ids is None:
            seen = past_key_values.get_seq_length() if past_key_values is not None else 0
            position_ids = (torch.arange(x.shape[1], device=x.device) + seen).unsqueeze(0)
        mask = create_causal_mask(config=self.config, inputs_embeds=x, attention_mask=attention_mask,
                                  past_key_values=past_key_values, position_ids=position_ids)
        positions = self.rotary_emb(x, position_ids=position_ids)
        run = LoopRun(self.control, attention_mask)
        states = []
        for step in range(steps):
            h = x
            view = None if past_key_values is None else SlotView(past_key_values, step * depth)
            for layer in self.layers:
                h = layer(h, attention_mask=mask, position_embeddings=positions, position_ids=position_ids,
                          past_key_values=view, use_cache=use_cache, **kwargs)
            x = self.norm(run.step(x, h)) if self.config.taps_before_norm else run.step(x, self.norm(h))
            states.append(x)
        run.record(self.trace)
        return OuroModelOutput(last_hidden_state=x, past_key_values=past_key_values, step_states=tuple(states))


class OuroForCausalLM(OuroPreTrainedModel, GenerationMixin):
    """Ouro with its head and exit gate. Steps are scheduled by `set_control(...)` or `config.taps`."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: OuroConfig) -> None:
        super().__init__(config)
        self.model = OuroModel(config)
        self.vocab_size = config.vocab_size
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    @property
    def control(self) -> Any:
        """The control of the recurrent steps, or None."""
        return self.model.control

    @property
    def trace(self) -> Any:
        """eta by step and forward."""
        return self.model.trace

    def set_control(self, control: Any) -> None:
        """Schedule the recurrent steps by a controller or `Control`; None gives the model as it was released."""
        self.model.set_control(control)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        exit_at_step: int | None = None,
        exit_threshold: float | None = None,
        use_weighted_exit: bool = False,
        **kwargs: Any,
    ) -> OuroOutput:
        """Logits of the last step, or of the step that an exit chooses; the loss is taken on those logits.

        Args:
            exit_at_step: read the state of this step (0-based) for every token.
            exit_threshold: per token, the first step at which the exit probability has summed to this much; None takes
                `config.early_exit_threshold`; None or >= 1 there never exits.
            use_weighted_exit: the logits' mean under the exit probabilities.
        """
        steps = self.config.total_ut_steps
        if exit_at_step is not None and not 0 <= exit_at_step < steps:
            raise invalid("OuroForCausalLM", "exit_at_step", f"a step in 0..{steps - 1}", exit_at_step,
                          "Steps are counted from 0.")
        out = self.model(input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids,
                         past_key_values=past_key_values, inputs_embeds=inputs_embeds, use_cache=use_cache,
                         return_dict=True, **kwargs)
        keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        states = [state[:, keep, :] for state in out.step_states]
        threshold = self.config.early_exit_threshold if exit_threshold is None else exit_threshold
        exits = threshold is not None and threshold < 1
        pdf = chosen = None
        if use_weighted_exit:
            pdf = exit_probabilities(self.model.early_exit_gate, states)
            logits = sum(self.lm_head(state) * pdf[..., k, None].to(state.dtype) for k, state in enumerate(states))
        elif exit_at_step is not None:
            logits = self.lm_head(states[exit_at_step])
        elif exits:
            pdf = exit_probabilities(self.model.early_exit_gate, states)
            chosen = exit_steps(pdf, threshold)
            index = chosen[..., None, None].expand(*chosen.shape, 1, states[0].shape[-1])
            logits = self.lm_head(torch.stack(states, dim=2).gather(2, index).squeeze(2))
        else:
            logits = self.lm_head(states[-1])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return OuroOutput(loss=loss, logits=logits, past_key_values=out.past_key_values,
                          hidden_states=out.hidden_states, attentions=out.attentions, exit_pdf=pdf, exit_step=chosen)


AutoConfig.register("ouro", OuroConfig, exist_ok=True)
AutoModel.register(OuroConfig, OuroModel, exist_ok=True)
AutoModelForCausalLM.register(OuroConfig, OuroForCausalLM, exist_ok=True)
