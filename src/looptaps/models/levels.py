"""The two-level loop that TRM and HRM share: z_L refined several times, then z_H once, several cycles a loop.

    z_L <- z_L + eta (L(z_L, z_H + x) - z_L)     L_cycles times      (inner control scales these)
    z_H <- H(z_H, z_L)                           once                (always a unit step)

As released, only the end of each outer loop carries gradients (`_LAST_STEP_ONLY`), and the carry is detached between
outer loops by whoever trains.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from looptaps import state as trees
from looptaps.loop import Control, Memory, Readout, StepStats, as_control
from looptaps.models.base import DTYPES, LoopRun, Moves, check_batch, check_outer
from looptaps.models.layers import (
    CastedEmbedding,
    CastedLinear,
    PostNormCore,
    PuzzleEmbedding,
    Rotary,
    rotary_table,
    truncated_normal,
)


class Carry(NamedTuple):
    """What goes from one outer loop to the next: both states and the embedded input, each (B, prefix + n, d)."""

    z_H: Tensor  # noqa: N815
    z_L: Tensor  # noqa: N815
    x: Tensor


class Heads(NamedTuple):
    """All outputs at a carry: logits (B, n, V), and the logits for halting and for going on, (B,) float32."""

    logits: Tensor
    q_halt: Tensor
    q_continue: Tensor


class TwoLevelModel(nn.Module):
    """Embedding, states, loop and heads; a subclass brings its config and its cores.

    `batch` is `{"inputs": (B, n) tokens, "puzzle_identifiers": (B,), zeros if left out}`.
    """

    # HRM: gradients only through the last z_L and z_H update; TRM: through the whole last cycle.
    _LAST_STEP_ONLY: ClassVar[bool]
    L_level: PostNormCore

    def __init__(self, config: Any, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        width, self.prefix = config.hidden_size, config.prefix
        self._dtype, self._state_dtype = DTYPES[config.forward_dtype], DTYPES[config.resolved_state_dtype]
        self.embed_tokens = CastedEmbedding(config.vocab_size, width, width**-0.5, generator)
        if config.pos_encodings == "learned":
            self.embed_pos = CastedEmbedding(config.seq_len + self.prefix, width, width**-0.5, generator)
        if self.prefix:
            self.puzzle_emb = PuzzleEmbedding(config.num_puzzle_identifiers, config.puzzle_emb_ndim)
        self.lm_head = CastedLinear(width, config.vocab_size, generator=generator)
        self.q_head = CastedLinear(width, 2, bias=True)
        with torch.no_grad():  # at first the Q head says "go on" to everything
            self.q_head.weight.zero_()
            self.q_head.bias.fill_(-5.0)  # type: ignore[union-attr]
        self.H_init: Tensor
        self.L_init: Tensor
        self.register_buffer("H_init", truncated_normal((width,), 1.0, generator).to(self._state_dtype))
        self.register_buffer("L_init", truncated_normal((width,), 1.0, generator).to(self._state_dtype))

    @property
    def _high(self) -> PostNormCore:
        """The core that updates z_H."""
        return self.L_level

    def embed(self, batch: dict[str, Tensor]) -> Tensor:
        """The input as the cores see it, (B, prefix + n, d): sqrt(d) times prefix and token embeddings."""
        config = self.config
        inputs, ids = check_batch(type(self).__name__, batch, config.vocab_size, config.seq_len,
                                  config.num_puzzle_identifiers)
        x = self.embed_tokens(inputs, self._state_dtype)
        if self.prefix:
            rows = self.puzzle_emb(ids, self._state_dtype)
            rows = F.pad(rows, (0, self.prefix * config.hidden_size - rows.shape[-1]))
            x = torch.cat((rows.view(-1, self.prefix, config.hidden_size), x), dim=1)
        if config.pos_encodings == "learned":
            x = 0.707106781 * (x + self.embed_pos.embedding_weight.to(x.dtype))
        return torch.as_tensor(config.hidden_size**0.5 * x)

    def begin(self, batch: dict[str, Tensor]) -> Carry:
        """The carry before the first loop: the fixed initial states at every position."""
        x = self.embed(batch)
        return Carry(self.H_init.expand_as(x).contiguous(), self.L_init.expand_as(x).contiguous(), x)

    def resume(self, carry: Carry, batch: dict[str, Tensor], halted: Tensor) -> Carry:
        """The carry for the next training step: the batch embedded with today's weights, rows that halted afresh.

        Where `halted` (B,) is True the batch holds a new sample. The other rows go on, detached.
        """
        fresh = self.begin(batch)
        return trees.where(halted, fresh, trees.detach(carry))._replace(x=fresh.x)

    def advance(
        self,
        carry: Carry,
        control: Control,
        memory: Memory | None = None,
        *,
        trace: bool = False,
        moves: Moves | None = None,
    ) -> tuple[Carry, Memory, StepStats]:
        """One outer loop: H_cycles cycles of L_cycles controlled z_L updates and one z_H update each."""
        config, control = self.config, as_control(control)
        check_outer(type(self).__name__, control)
        z_H, z_L, x = carry
        per_cycle, at_loop = config.L_cycles, control.site == "outer" and control.outer_at == "loop"
        run = LoopRun(control, memory, z_L, config.H_cycles * per_cycle, trace, moves)
        # Cast once: the same copies serve every update of this loop, with and without gradients.
        low = self.L_level.weights(self._dtype)
        high = low if self._high is self.L_level else self._high.weights(self._dtype)
        rotary = self._rotary(x)
        first_H, first_L = z_H, z_L
        graded = torch.is_grad_enabled()
        for cycle in range(config.H_cycles):
            last = cycle == config.H_cycles - 1
            run.restart(z_L)
            injection, start_H, start_L = z_H + x, z_H, z_L
            for step in range(per_cycle):
                taught = last and (not self._LAST_STEP_ONLY or step == per_cycle - 1)
                with torch.set_grad_enabled(graded and taught):
                    z_L = run.step(z_L, self.L_level(z_L, injection, low, rotary))
            with torch.set_grad_enabled(graded and last):
                z_H = self._high(z_H, z_L, high, rotary)
                if control.site == "outer" and not at_loop:
                    z_L = run.outer(start_L, z_L, start_H, z_H, cycle)
        if at_loop:
            z_L = run.outer(first_L, z_L, first_H, z_H)
        memory, stats = run.finish((z_H, z_L), config.H_cycles * per_cycle * len(low), config.H_cycles * len(high))
        return Carry(z_H, z_L, x), memory, stats

    def heads(self, carry: Carry) -> Heads:
        """Logits of the answer, and both Q logits, with gradients where grad is enabled."""
        z_H = carry.z_H
        # Released models read Q at the first prefix position; without a prefix it reads the mean of all.
        q = self.q_head(z_H[:, 0] if self.prefix else z_H.mean(1)).float()
        return Heads(self.lm_head(z_H[:, self.prefix :]), q[:, 0], q[:, 1])

    def readout(self, carry: Carry) -> Readout:
        """The answer now; the score is the halting logit."""
        heads = self.heads(carry)
        return Readout(heads.logits, heads.q_halt)

    def compile_core(self, **options: Any) -> None:
        """Compile the cores in place (`torch.compile` options); parameters and their names stay as they are."""
        for core in dict.fromkeys((self.L_level, self._high)):
            core.compile(**options)

    def _rotary(self, x: Tensor) -> Rotary | None:
        config = self.config
        if config.pos_encodings != "rope" or not config.attends:
            return None
        return rotary_table(x.shape[1], config.hidden_size // config.num_heads, config.rope_theta, x.device)
