"""FPRM, the fixed-point reasoning model: one state, iterated until it stands still, with a step rule of its own.

    y <- s Phi(y) + (1 - s) y
    residue  = max over positions of |y - Phi(y)|_inf / (|Phi(y)|_inf + 1e-8), of the undamped proposal
    patience = its start where the residue is the lowest so far, else one less
    s        <- decay * s, and patience starts anew, where patience <= 0 and residue >= fp_thresh

A controller's eta multiplies this step: its Delta is s (Phi(y) - y), and at eta = 1 the model's own rule is untouched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from looptaps.errors import InvalidUse, invalid
from looptaps.loop import Control, Memory, StepStats, as_control
from looptaps.models.base import LoopRun, Moves, check_inner
from looptaps.models.config import MixerConfig, ModelConfig
from looptaps.models.fprm_core import FPRMCore
from looptaps.models.layers import Block, truncated_normal
from looptaps.models.puzzle import PuzzleModel

# A step this small counts as standing still.
LEAST_STEP = 1e-3


@dataclass(frozen=True, kw_only=True)
class FPRMConfig(MixerConfig):
    """FPRM's make and its step rule; the defaults are those of the released Sudoku configuration, but for `fixed_init`.

    Args:
        L_layers: layers of the network.
        n_backwards_L: iterations per outer loop in training, all with gradients; in evaluation a loop is one.
        max_iter: iterations at which training cuts a sample off.
        max_iter_eval: iterations at which evaluation does.
        fp_thresh: residue below which a sample has converged.
        stepsize: the first s.
        decay_patience: iterations without a new lowest residue until s decays.
        stepsize_decay_train, stepsize_decay_eval: the factor by which it decays.
        init_std: standard deviation of the initial state.
        fixed_init: one initial vector, drawn once and saved (as in TRM), instead of a fresh draw per sample (released).
        conv_type: depthwise convolution over the grid before each iteration: `conv2d` (square grids), `conv1d`
            (causal), or `none`.
        conv_kernel_size: its width; odd for `conv2d`.
        norm_placement: `output` ends each iteration with a norm, `none` does not.
        alpha_1_init, alpha_2_init: initial share of the stream kept at each sublayer, and at the injection.
    """

    L_layers: int = 2
    n_backwards_L: int = 6  # noqa: N815
    max_iter: int = 12
    max_iter_eval: int = 1000
    fp_thresh: float = 0.1
    stepsize: float = 1.0
    decay_patience: int = 5
    stepsize_decay_train: float = 0.9
    stepsize_decay_eval: float = 0.99
    init_std: float = 6.0
    fixed_init: bool = True
    conv_type: Literal["conv2d", "conv1d", "none"] = "conv2d"
    conv_kernel_size: int = 3
    norm_placement: Literal["none", "output"] = "none"
    alpha_1_init: float = 0.75
    alpha_2_init: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("alpha_1_init", "alpha_2_init", "stepsize_decay_train", "stepsize_decay_eval"):
            if not getattr(self, field) < 1:
                raise invalid(self._owner, field, "a number in (0, 1)", getattr(self, field),
                              f"The default is {getattr(type(self), field)}.")
        if not self.stepsize <= 1:
            raise invalid(self._owner, "stepsize", "a number in (0, 1]", self.stepsize, "The default is 1.0.")
        if self.norm_placement not in ("none", "output"):
            raise invalid(self._owner, "norm_placement", "one of none, output", self.norm_placement,
                          "Sudoku uses 'none', mazes 'output'.")
        if self.conv_type not in ("conv2d", "conv1d", "none"):
            raise invalid(self._owner, "conv_type", "one of conv2d, conv1d, none", self.conv_type,
                          "Sudoku uses 'conv2d', mazes 'conv1d'.")
        if self.conv_type == "conv2d" and self.conv_kernel_size % 2 == 0:
            raise invalid(self._owner, "conv_kernel_size", "odd for conv2d", self.conv_kernel_size, "Sudoku uses 3.")
        if self.conv_type == "conv2d" and self.seq_len is not None and round(self.seq_len**0.5) ** 2 != self.seq_len:
            raise invalid(self._owner, "seq_len", "a square number for conv2d", self.seq_len,
                          "Use conv_type='conv1d' for puzzles that are no square grid.")


class FPRMCarry(NamedTuple):
    """The state y as `z_L` (B, prefix + n, d), the embedded input, and the step rule's memory, (B,) each.

    `step` is s in the state's dtype, `residue` and `best` the last and lowest residue, `iterations` how many there
    were.
    """

    z_L: Tensor  # noqa: N815
    x: Tensor
    step: Tensor
    residue: Tensor
    best: Tensor
    patience: Tensor
    iterations: Tensor


class FPRM(PuzzleModel):
    """y <- s Phi(y) + (1 - s) y, where s decays when the residue stalls.

    Args:
        config: what it is made of.
        generator: draws the initial weights; None uses torch's own.

    >>> import looptaps as lt, torch
    >>> model = FPRM(FPRMConfig(vocab_size=7, seq_len=16, hidden_size=32, num_heads=2, puzzle_emb_ndim=0)).eval()
    >>> carry = model.begin({"inputs": torch.randint(7, (2, 16))})
    >>> carry, memory, stats = model.advance(carry, lt.Control(lt.Standard()))
    >>> carry.iterations, stats.updates, model.stopped(carry)
    (tensor([1, 1]), 2, tensor([False, False]))
    """

    kind: ClassVar[str] = "fprm"
    config_type: ClassVar[type[ModelConfig]] = FPRMConfig
    config: FPRMConfig

    def __init__(self, config: FPRMConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config, generator)
        blocks = [Block(config.hidden_size, config.num_heads, config.channel_width, config.mixer, generator)
                  for _ in range(config.L_layers)]
        self.L_level = FPRMCore(config, blocks, generator)
        if config.fixed_init:
            self.init_vec: Tensor
            start = truncated_normal((config.hidden_size,), config.init_std, generator)
            self.register_buffer("init_vec", start.to(self._state_dtype))

    def cores(self) -> list[nn.Module]:
        return [self.L_level]

    def begin(self, batch: dict[str, Tensor], generators: Sequence[torch.Generator] | None = None) -> FPRMCarry:
        """The carry before the first iteration.

        Without `fixed_init` the state is drawn, by one generator per sample, so that it does not depend on batching.
        """
        config, x = self.config, self.embed(batch)
        size = x.shape[0]
        if config.fixed_init:
            y = self.init_vec.expand_as(x).contiguous()
        elif generators is None or len(generators) != size:
            raise InvalidUse(f"FPRM without fixed_init draws its initial states: begin(batch, generators) needs {size} "
                             "torch generators, one per sample. Or make the model with fixed_init=True.")
        else:
            drawn = [truncated_normal(tuple(x.shape[1:]), config.init_std, generator) for generator in generators]
            y = torch.stack(drawn).to(device=x.device, dtype=x.dtype)
        endless = torch.full((size,), torch.inf, device=x.device)
        zeros = torch.zeros(size, dtype=torch.int64, device=x.device)
        step = torch.full((size,), config.stepsize, dtype=x.dtype, device=x.device)
        return FPRMCarry(y, x, step, endless, endless.clone(), zeros + config.decay_patience, zeros)

    def advance(
        self,
        carry: FPRMCarry,
        control: Control,
        memory: Memory | None = None,
        *,
        trace: bool = False,
        moves: Moves | None = None,
    ) -> tuple[FPRMCarry, Memory, StepStats]:
        """One outer loop: one iteration in evaluation, `n_backwards_L` in training."""
        control = as_control(control)
        self.check_control(control)
        iterations = self.config.n_backwards_L if self.training else 1
        run = LoopRun(control, memory, carry.z_L, iterations, trace, moves)
        weights, rotary = self.L_level.weights(self._dtype), self._rotary(carry.x)
        for _ in range(iterations):
            proposal = self.L_level(carry.z_L, carry.x, weights, rotary)
            s = carry.step.reshape(-1, 1, 1)
            moved = run.step(carry.z_L, proposal * s + carry.z_L * (1 - s))
            carry = self._adapt(carry, proposal)._replace(z_L=moved)
        memory, stats = run.finish((carry.z_L,), iterations * self.config.L_layers, 0)
        return carry, memory, stats

    def check_control(self, control: Control) -> None:
        check_inner(type(self).__name__, control)

    def answer_state(self, carry: FPRMCarry) -> Tensor:
        return carry.z_L

    def stopped(self, carry: FPRMCarry, *, batch_max: bool = False) -> Tensor:
        """(B,): who has converged, stands still, or has had all iterations (after at least one).

        Each sample for itself; `batch_max` stops all when the worst of the batch would, as the released code does in
        evaluation: then the count depends on who else is in the batch.
        """
        config = self.config
        longest = config.max_iter if self.training else config.max_iter_eval
        residue, step = carry.residue, carry.step
        if batch_max:
            residue, step = (values.amax().expand_as(values) for values in (residue, step))
        return (residue < config.fp_thresh) | (step < LEAST_STEP) | (carry.iterations >= longest)

    @torch.no_grad()
    def _adapt(self, carry: FPRMCarry, proposal: Tensor) -> FPRMCarry:
        """The step rule's memory after a proposal."""
        config = self.config
        residue = residue_of(carry.z_L, proposal)
        patience = torch.where(residue < carry.best, config.decay_patience, carry.patience - 1)
        stalled = (patience <= 0) & (residue >= config.fp_thresh)
        decay = config.stepsize_decay_train if self.training else config.stepsize_decay_eval
        return carry._replace(
            step=carry.step * torch.where(stalled, decay, 1.0).to(carry.step.dtype),
            residue=residue,
            best=torch.minimum(residue, carry.best),
            patience=torch.where(stalled, config.decay_patience, patience),
            iterations=carry.iterations + 1,
        )


def residue_of(y: Tensor, proposal: Tensor) -> Tensor:
    """(B,) float32: the largest relative move of a position, in the maximum norm, were the proposal taken whole."""
    move = (y - proposal).abs().amax(-1) / (proposal.abs().amax(-1) + 1e-8)
    return move.amax(1).float()


__all__ = ["FPRM", "FPRMCarry", "FPRMConfig"]
