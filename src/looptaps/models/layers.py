"""The parts of latent-reasoning models, in the released numerics bit for bit.

Weights are kept in float32. A core's weights are cast to its compute dtype once per outer loop (`weights`), not once
per call: the cast copies are passed through the loop, so nothing can go stale and autograd sees one cast per step.
The residual stream keeps the dtype of the state; only the matrix products run in the compute dtype.

Shape suffixes: B samples, n positions (prefix included), d features, h heads.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from looptaps.controllers.base import wide_dtype

Rotary = tuple[Tensor, Tensor]

# Standard deviation of a standard normal cut at +-2, by which a truncated draw is stretched back.
_CUT_STD = math.sqrt(1 - 4 * math.exp(-2) / math.sqrt(2 * math.pi) / math.erf(math.sqrt(2)))


def truncated_normal(shape: tuple[int, ...], std: float, generator: torch.Generator | None = None) -> Tensor:
    """Normal numbers cut at two standard deviations, with standard deviation `std` after the cut (0 gives zeros)."""
    values = torch.empty(shape)
    if std == 0:
        return values.zero_()
    scale = std / _CUT_STD
    return nn.init.trunc_normal_(values, 0.0, scale, -2 * scale, 2 * scale, generator)


def rms_norm(x: Tensor, eps: float, dim: int = -1) -> Tensor:
    """x / sqrt(mean(x^2) + eps) along `dim`, in float32 at least, cast back: no gain, no bias."""
    wide = x.to(wide_dtype(x.dtype))
    return (wide * torch.rsqrt(wide.square().mean(dim, keepdim=True) + eps)).to(x.dtype)


def swiglu_width(width: int, expansion: float) -> int:
    """The released inner width: two thirds of `expansion * width`, rounded up to a multiple of 256."""
    return -(-round(expansion * width * 2 / 3) // 256) * 256


def rotary_table(n: int, head_dim: int, theta: float, device: torch.device) -> Rotary:
    """cos and sin of `position * theta^(-2i/head_dim)`, each (n, head_dim), in float32."""
    frequencies = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32, device=device) / head_dim)
    angles = torch.outer(torch.arange(n, dtype=torch.float32, device=device), frequencies)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x_BnHe: Tensor, rotary: Rotary) -> Tensor:
    """Rotary positions: the two halves of each head are rotated as pairs, in float32 at least, cast back."""
    cos, sin = (table.unsqueeze(-2) for table in rotary)
    first, second = x_BnHe.chunk(2, dim=-1)
    return (x_BnHe * cos + torch.cat((-second, first), dim=-1) * sin).to(x_BnHe.dtype)


class CastedLinear(nn.Module):
    """y = x W^T + b with W and b cast to the dtype of x."""

    def __init__(
        self, inputs: int, outputs: int, *, bias: bool = False, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(truncated_normal((outputs, inputs), inputs**-0.5, generator))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return F.linear(x, self.weight.to(x.dtype), bias)


class CastedEmbedding(nn.Module):
    """Rows of a table, cast to `dtype`."""

    def __init__(self, rows: int, width: int, std: float, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.embedding_weight = nn.Parameter(truncated_normal((rows, width), std, generator))

    def forward(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        return F.embedding(ids, self.embedding_weight.to(dtype))


class PuzzleEmbedding(nn.Module):
    """One learned vector per puzzle, zero at first."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(rows, width))

    def forward(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        return F.embedding(ids, self.weights.to(dtype))


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x)); gate and up are one matrix."""

    def __init__(self, width: int, inner: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.gate_up_proj = CastedLinear(width, 2 * inner, generator=generator)
        self.down_proj = CastedLinear(inner, width, generator=generator)


class Attention(nn.Module):
    """Multi-head self-attention: queries, keys and values are one matrix."""

    def __init__(self, width: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.qkv_proj = CastedLinear(width, 3 * width, generator=generator)
        self.o_proj = CastedLinear(width, width, generator=generator)


class BlockWeights(NamedTuple):
    """The four matrices of a block in the compute dtype: into and out of the mixing of positions, and of the MLP."""

    mix_in: Tensor
    mix_out: Tensor
    mlp_in: Tensor
    mlp_out: Tensor


def mlp(x: Tensor, w_in: Tensor, w_out: Tensor) -> Tensor:
    """SwiGLU over the features of each position."""
    gate, up = F.linear(x, w_in).chunk(2, dim=-1)
    return F.linear(F.silu(gate) * up, w_out)


def mix_tokens(h: Tensor, w_in: Tensor, w_out: Tensor) -> Tensor:
    """SwiGLU over the positions of each feature. Cast and transpose are one copy, so that every product is plain."""
    x = h.transpose(1, 2).to(w_in.dtype, memory_format=torch.contiguous_format)
    return mlp(x, w_in, w_out).transpose(1, 2)


def attend(x: Tensor, w_in: Tensor, w_out: Tensor, heads: int, rotary: Rotary | None) -> Tensor:
    """Attention of every position to every position."""
    B, n, d = x.shape
    query, key, value = F.linear(x, w_in).view(B, n, 3 * heads, d // heads).chunk(3, dim=2)
    if rotary is not None:
        query, key = rotate(query, rotary), rotate(key, rotary)
    mixed = F.scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2))
    return F.linear(mixed.transpose(1, 2).reshape(B, n, d), w_out)


class Block(nn.Module):
    """The parameters of one layer: attention (or a token mixer over `mixer` = (positions, inner)), and an MLP."""

    def __init__(
        self,
        width: int,
        heads: int,
        inner: int,
        mixer: tuple[int, int] | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.mixes = mixer is not None
        if mixer is not None:
            self.mlp_t = SwiGLU(*mixer, generator=generator)
        else:
            self.self_attn = Attention(width, generator)
        self.mlp = SwiGLU(width, inner, generator)

    def weights(self, dtype: torch.dtype) -> BlockWeights:
        """This block's matrices in the compute dtype."""
        if self.mixes:
            mix = (self.mlp_t.gate_up_proj, self.mlp_t.down_proj)
        else:
            mix = (self.self_attn.qkv_proj, self.self_attn.o_proj)
        return BlockWeights(*(part.weight.to(dtype) for part in (*mix, self.mlp.gate_up_proj, self.mlp.down_proj)))

    def mix(self, h: Tensor, weights: BlockWeights, rotary: Rotary | None) -> Tensor:
        """The sublayer over positions, in the weights' dtype."""
        if self.mixes:
            return mix_tokens(h, weights.mix_in, weights.mix_out)
        return attend(h.to(weights.mix_in.dtype), weights.mix_in, weights.mix_out, self.heads, rotary)

    def think(self, h: Tensor, weights: BlockWeights) -> Tensor:
        """The sublayer over features, in the weights' dtype."""
        return mlp(h.to(weights.mlp_in.dtype), weights.mlp_in, weights.mlp_out)


class Core(nn.Module):
    """A stack of blocks that is applied again and again."""

    def __init__(self, blocks: list[Block], eps: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(blocks)
        self.eps = eps

    @property
    def blocks(self) -> list[Block]:
        """The layers, typed."""
        return [block for block in self.layers if isinstance(block, Block)]

    def weights(self, dtype: torch.dtype) -> tuple[BlockWeights, ...]:
        """All matrices, cast once: pass them to every call of one outer loop."""
        return tuple(block.weights(dtype) for block in self.blocks)


class PostNormCore(Core):
    """h <- h + injection, then layers of h <- norm(h + sublayer(h)): what TRM and HRM apply.

    After a token mixer the norm runs over the positions of each feature, as released.
    """

    def forward(
        self, h: Tensor, injection: Tensor, weights: tuple[BlockWeights, ...], rotary: Rotary | None = None
    ) -> Tensor:
        h = h + injection
        for block, matrices in zip(self.blocks, weights, strict=True):
            h = rms_norm(h + block.mix(h, matrices, rotary), self.eps, 1 if block.mixes else -1)
            h = rms_norm(h + block.think(h, matrices), self.eps)
        return h


class PreNormCore(Core):
    """h <- h + injection, then layers of h <- h + sublayer(norm(h))."""

    def forward(
        self, h: Tensor, injection: Tensor, weights: tuple[BlockWeights, ...], rotary: Rotary | None = None
    ) -> Tensor:
        h = h + injection
        for block, matrices in zip(self.blocks, weights, strict=True):
            h = h + block.mix(rms_norm(h, self.eps), matrices, rotary)
            h = h + block.think(rms_norm(h, self.eps), matrices)
        return h
