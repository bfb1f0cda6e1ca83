"""Huginn (Raven) for transformers 5: prelude, one recurrent core, coda.

    e = prelude(sqrt(d) embed),  X_{k+1} = X_k + eta_k (core(adapter[X_k, e]) - X_k),  logits = head(ln coda(ln X_K))

Written from the released model's facts on transformers' own parts; released weights load strictly. Every recurrent
step keeps its own keys and values, padding is honoured, and X_0 is drawn per position from a seed, so that cached,
uncached, batched and padded runs start from the same state.
"""

# mypy: disallow-subclassing-any=False, disallow-untyped-decorators=False, disallow-untyped-calls=False
# (transformers is skipped by mypy, so its classes are Any)
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, GenerationMixin, PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache
from transformers.masking_utils import create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRMSNorm, eager_attention_forward
from transformers.utils import can_return_tuple

from looptaps.errors import InvalidShape, InvalidUse, invalid
from looptaps.hf.huginn_config import HuginnConfig
from looptaps.hf.recurrent import Controlled, LoopRun, no_grad_if
from looptaps.hf.slots import SlotView, claim, reserve


@dataclass
class HuginnOutput(CausalLMOutputWithPast):
    """`core_states` (B, N, d): X_K, the raw state after the last recurrent step, which `input_states` accepts."""

    core_states: Tensor | None = None


def rotary_table(config: HuginnConfig) -> Tensor:
    """cos and sin of every position, (1, block_size, 1, head_dim / 2, 2): the released buffer."""
    dim = config.n_embd // config.n_heads
    frequencies = 1.0 / config.rope_base ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    angles = torch.outer(torch.arange(config.block_size, dtype=torch.float32), frequencies)
    return torch.stack([angles.cos(), angles.sin()], dim=-1)[None, :, None]


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Rotate neighbouring pairs of features, in float32. x (B, N, H, d), table (B or 1, N, 1, d/2, 2)."""
    pairs = x.float().unflatten(-1, (-1, 2))
    cos, sin = table.unbind(-1)
    turned = torch.stack([pairs[..., 0] * cos - pairs[..., 1] * sin, pairs[..., 1] * cos + pairs[..., 0] * sin], dim=-1)
    return turned.flatten(-2).type_as(x)


class HuginnAttention(nn.Module):
    """Causal self-attention with one fused projection and biases on queries and keys."""

    is_causal = True
    num_key_value_groups = 1

    def __init__(self, config: HuginnConfig, layer_idx: int) -> None:
        super().__init__()
        self.config, self.layer_idx = config, layer_idx
        self.head_dim = config.n_embd // config.n_heads
        self.scaling = self.head_dim ** -0.5
        self.Wqkv = nn.Linear(config.n_embd, 3 * config.n_embd, bias=False)
        if config.qk_bias:
            self.qk_bias = nn.Parameter(torch.zeros(2, 1, config.n_heads, self.head_dim))
        self.proj = nn.Linear(config.n_embd, config.n_embd, bias=False)

    def forward(self, x: Tensor, table: Tensor, mask: Any, past_key_values: Any = None, **kwargs: Any) -> Tensor:
        queries, keys, values = self.Wqkv(x).unflatten(-1, (3, self.config.n_heads, self.head_dim)).unbind(2)
        if self.config.qk_bias:
            queries, keys = queries + self.qk_bias[0], keys + self.qk_bias[1]
        queries, keys = rotate(queries, table).transpose(1, 2), rotate(keys, table).transpose(1, 2)
        values = values.transpose(1, 2)
        if past_key_values is not None:
            keys, values = past_key_values.update(keys, values, self.layer_idx)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        out, _ = attend(self, queries, keys, values, mask, dropout=0.0, scaling=self.scaling, **kwargs)
        projected: Tensor = self.proj(out.flatten(-2).contiguous())
        return projected


class GatedMLP(nn.Module):
    """proj(silu(a) * b), with a and b from one fused projection."""

    def __init__(self, config: HuginnConfig) -> None:
        super().__init__()
        self.fc = nn.Linear(config.n_embd, 2 * config.intermediate_size, bias=False)
        self.proj = nn.Linear(config.intermediate_size, config.n_embd, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.fc(x).chunk(2, dim=-1)
        out: Tensor = self.proj(nn.functional.silu(gate) * value)
        return out


class SandwichBlock(GradientCheckpointingLayer):
    """Norms before and after both halves; the output is normed."""

    def __init__(self, config: HuginnConfig, layer_idx: int) -> None:
        super().__init__()
        self.attn = HuginnAttention(config, layer_idx)
        self.mlp = GatedMLP(config)
        for number in (1, 2, 3, 4):
            setattr(self, f"norm_{number}", LlamaRMSNorm(config.n_embd, eps=config.norm_eps))

    def forward(self, x: Tensor, **kwargs: Any) -> Tensor:
        x = self.norm_2(self.attn(self.norm_1(x), **kwargs) + x)
        out: Tensor = self.norm_4(self.mlp(self.norm_3(x)) + x)
        return out


class HuginnForCausalLM(Controlled, PreTrainedModel, GenerationMixin):
    """Huginn with its head. Steps are scheduled by `set_control(...)` or `config.taps`."""

    config_class = HuginnConfig
    base_model_prefix = ""
    supports_gradient_checkpointing = True
    _no_split_modules = ["SandwichBlock"]  # noqa: RUF012 (transformers' own convention)
    _skip_keys_device_placement = ["past_key_values"]  # noqa: RUF012
    _tied_weights_keys = {"lm_head.weight": "transformer.wte.weight"}  # noqa: RUF012
    _supports_sdpa = True
    _supports_attention_backend = True

    def __init__(self, config: HuginnConfig) -> None:
        super().__init__(config)
        prelude, core, coda = config.n_layers_in_prelude, config.n_layers_in_recurrent_block, config.n_layers_in_coda
        # Slots: prelude, coda, then the core's, step by step, so that they do not move with the number of steps.
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(config.vocab_size, config.n_embd),
            "prelude": nn.ModuleList(SandwichBlock(config, n) for n in range(prelude)),
            "adapter": nn.Linear(2 * config.n_embd, config.n_embd, bias=config.bias),
            "core_block": nn.ModuleList(SandwichBlock(config, prelude + coda + n) for n in range(core)),
            "coda": nn.ModuleList(SandwichBlock(config, prelude + n) for n in range(coda)),
            "ln_f": LlamaRMSNorm(config.n_embd, eps=config.norm_eps),
        })
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.register_buffer("freqs_cis", rotary_table(config), persistent=True)
        self._angles: Tensor | None = None  # the same table, in float32 whatever dtype the model is cast to
        self._rows: tuple[int, Tensor] | None = None  # a seed, and X_0 by position as drawn from it
        self.init_control()
        self.post_init()

    def get_input_embeddings(self) -> Any:
        return self.transformer["wte"]

    def set_input_embeddings(self, value: Any) -> None:
        self.transformer["wte"] = value

    @torch.no_grad()
    def _init_weights(self, module: Any) -> None:
        super()._init_weights(module)
        if module is self:  # not in a checkpoint of another library version: computed, never random
            self.freqs_cis.copy_(rotary_table(self.config))

    def initial_state(self, position_ids: Tensor, like: Tensor, *, seed: int, scale: float) -> Tensor:
        """X_0: a truncated normal of std sqrt(2 / 5d) scale, times sqrt(d), the same at a position in every run."""
        d = self.config.n_embd
        if scale == 0:
            return torch.zeros_like(like)
        rows = self._rows[1] if self._rows is not None and self._rows[0] == seed else torch.zeros(0, d)
        needed = int(position_ids.max()) + 1
        if needed > len(rows):
            std, new = math.sqrt(2 / (5 * d)), torch.empty(needed - len(rows), d)
            for n, row in enumerate(new, len(rows)):  # a generator per position: no row depends on how many there are
                draw = torch.Generator().manual_seed((seed * 1_000_003 + n) % 2**63)
                nn.init.trunc_normal_(row, std=std, a=-3 * std, b=3 * std, generator=draw)
            rows = torch.cat([rows, new])
            self._rows = (seed, rows)
        return (rows[position_ids.cpu()] * (scale * math.sqrt(d))).to(like).expand_as(like)

    def _rotary(self, positions: Tensor) -> Tensor:
        if self._angles is None or self._angles.device != positions.device:
            self._angles = rotary_table(self.config).to(positions.device)
        return self._angles[0][positions]

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
        input_states: Tensor | None = None,
        num_steps: int | tuple[int, int] | None = None,
        init_scale: float | None = None,
        state_seed: int | None = None,
        **kwargs: Any,
    ) -> HuginnOutput:
        """Logits in float32, as released; the loss is the shifted one of transformers.

        Args:
            input_states: X_0 (B, N, d) itself.
            num_steps: recurrent steps (None: `config.mean_recurrence`), or (without gradient, with gradient).
            init_scale: scale of the random X_0 (0: zeros); `state_seed`: its seed. None takes the configuration's.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise InvalidUse("HuginnForCausalLM needs either input_ids or inputs_embeds, and not both.")
        config: Any = self.config
        net: Any = self.transformer
        e = (net["wte"](input_ids) if inputs_embeds is None else inputs_embeds) * math.sqrt(config.n_embd)
        still, moving = _split_steps(config.mean_recurrence if num_steps is None else num_steps)
        use_cache = config.use_cache if use_cache is None else use_cache
        past = past_key_values
        if use_cache and past is None and not (self.training and net["prelude"][0].gradient_checkpointing):
            past = DynamicCache(config=config)
        seed = config.state_seed if state_seed is None else state_seed
        scale = config.init_scale if init_scale is None else init_scale
        core, outer = len(net["core_block"]), len(net["prelude"]) + len(net["coda"])
        if past is not None:
            claim(past, ("huginn", still + moving, seed, scale, self.control), outer + core, new=e.shape[1])
            reserve(past, list(range(outer, outer + core)) * (still + moving - 1), outer + core)
        positions = self._positions(position_ids, attention_mask, past, e)
        mask = create_causal_mask(config=config, inputs_embeds=e, attention_mask=attention_mask, past_key_values=past,
                                  position_ids=positions)
        shared = {"table": self._rotary(positions), "mask": mask, **kwargs}
        for block in net["prelude"]:
            e = block(e, past_key_values=past, **shared)
        if input_states is not None and input_states.shape != e.shape:
            raise InvalidShape(f"input_states must be {tuple(e.shape)}, one state for each position of this forward, "
                               f"but is {tuple(input_states.shape)}. For generate, use state_seed.")
        x = self.initial_state(positions, e, seed=seed, scale=scale) if input_states is None else input_states.to(e)
        run = LoopRun(self.control, attention_mask)
        for step in range(still + moving):
            view = None if past is None else SlotView(past, step * core)
            with no_grad_if(step < still):
                h = net["adapter"](torch.cat([x, e.to(x.device)], dim=-1))
                for block in net["core_block"]:
                    h = block(h, past_key_values=view, **shared)
                x = run.step(x, h)
        run.record(self.trace)
        h = net["ln_f"](x)
        for block in net["coda"]:
            h = block(h, past_key_values=past, **shared)
        keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(net["ln_f"](h)[:, keep, :]).float()
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=config.vocab_size)
        return HuginnOutput(loss=loss, logits=logits, past_key_values=past, core_states=x.detach())

    def _positions(self, position_ids: Tensor | None, attention_mask: Any, past: Any, e: Tensor) -> Tensor:
        """(B|1, N): as given, else counted over real tokens, so that left padding moves no initial state."""
        n, seen = e.shape[1], 0 if past is None else int(past.get_seq_length())
        if position_ids is None and isinstance(attention_mask, Tensor) and attention_mask.ndim == 2:
            position_ids = (attention_mask.long().cumsum(-1) - 1).clamp(min=0)[:, -n:]
        elif position_ids is None:
            position_ids = torch.arange(seen, seen + n, device=e.device)[None]
        if int(position_ids.max()) >= self.config.block_size:
            raise invalid("HuginnForCausalLM", "position_ids", f"below block_size = {self.config.block_size}",
                          int(position_ids.max()), "Shorten the text.")
        return position_ids


def _split_steps(num_steps: Any) -> tuple[int, int]:
    pair = tuple(num_steps) if isinstance(num_steps, tuple | list) else (0, num_steps)
    if len(pair) != 2 or any(isinstance(v, bool) or not isinstance(v, int) or v < 0 for v in pair) or sum(pair) < 1:
        raise invalid("HuginnForCausalLM", "num_steps", "a whole number >= 1 or a pair of them (without gradient, with "
                      "gradient)", num_steps, "The released model uses 32.")
    return pair


AutoConfig.register("huginn_raven", HuginnConfig, exist_ok=True)
AutoModel.register(HuginnConfig, HuginnForCausalLM, exist_ok=True)  # (released without a base model of its own)
AutoModelForCausalLM.register(HuginnConfig, HuginnForCausalLM, exist_ok=True)
