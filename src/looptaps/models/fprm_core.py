"""FPRM's network: a depthwise convolution, a gated injection, and gated pre-norm layers.

    h <- conv(h) on the grid;   h <- a2 h + b2 x;   h <- a1 h + b1 sublayer(norm(h)), twice per layer
    b2 = 1 - a2 a1^2L,   b1 = b2 (1 - a1) / (1 - a1^2L + 1e-5),   a1, a2 = sigmoid of a parameter per feature

The b's follow from the a's so that the stream's scale settles, whatever the depth.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from looptaps.errors import InvalidShape
from looptaps.models.layers import Block, BlockWeights, Core, Rotary, rms_norm, truncated_normal


class Gates(NamedTuple):
    """What is kept of the stream (a) and what is added (b), per feature, at sublayers (1) and injection (2)."""

    a1: Tensor
    b1: Tensor
    a2: Tensor
    b2: Tensor


def gates(logit_1: Tensor, logit_2: Tensor, layers: int, dtype: torch.dtype) -> Gates:
    """The four gates from two parameters."""
    a1, a2 = torch.sigmoid(logit_1).to(dtype), torch.sigmoid(logit_2).to(dtype)
    kept = a1.pow(2 * layers)
    b2 = 1 - a2 * kept
    return Gates(a1, b2 * (1 - a1) / (1 - kept + 1e-5), a2, b2)


class FPRMCore(Core):
    """Phi(y): one iteration's proposal."""

    def __init__(self, config: Any, blocks: list[Block], generator: torch.Generator | None = None) -> None:
        super().__init__(blocks, config.rms_norm_eps)
        width, kernel = config.hidden_size, config.conv_kernel_size
        self.prefix, self.conv_type = config.prefix, config.conv_type
        self.norm_output = config.norm_placement == "output"
        self.alpha_1_param, self.alpha_2_param = (
            nn.Parameter(torch.full((width,), math.log(start / (1 - start))))
            for start in (config.alpha_1_init, config.alpha_2_init)
        )
        if self.conv_type != "none":
            window = (kernel, kernel) if self.conv_type == "conv2d" else (kernel,)
            drawn = truncated_normal((width, 1, *window), math.prod(window) ** -0.5, generator)
            self.conv_weight = nn.Parameter(drawn)

    def forward(
        self, h: Tensor, injection: Tensor, weights: tuple[BlockWeights, ...], rotary: Rotary | None = None
    ) -> Tensor:
        keep, add, keep_in, add_in = gates(self.alpha_1_param, self.alpha_2_param, len(weights), h.dtype)
        h = keep_in * self._convolve(h) + add_in * injection
        for block, matrices in zip(self.blocks, weights, strict=True):
            # Before a token mixer the norm runs over the positions of each feature, as released.
            h = keep * h + add * block.mix(rms_norm(h, self.eps, 1 if block.mixes else -1), matrices, rotary)
            h = keep * h + add * block.think(rms_norm(h, self.eps), matrices)
        return rms_norm(h, self.eps) if self.norm_output else h

    def _convolve(self, h: Tensor) -> Tensor:
        if self.conv_type == "none":
            return h
        weight, width = self.conv_weight.to(h.dtype), h.shape[-1]
        grid = h[:, self.prefix :].transpose(1, 2)
        n, kernel = grid.shape[-1], weight.shape[-1]
        if self.conv_type == "conv1d":  # causal: a position sees itself and those before it
            grid = F.conv1d(F.pad(grid, (kernel - 1, 0)), weight, groups=width)
        else:
            side = math.isqrt(n)
            if side * side != n:
                raise InvalidShape(f"FPRM with conv2d needs a square grid, but the puzzle has {n} positions. "
                                   "Use conv_type='conv1d'.")
            square = grid.reshape(-1, width, side, side)
            grid = F.conv2d(square, weight, padding=kernel // 2, groups=width).flatten(2)
        return torch.cat((h[:, : self.prefix], grid.transpose(1, 2)), dim=1)
