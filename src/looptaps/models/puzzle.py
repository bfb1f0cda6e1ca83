"""What every model here has in front of its loop and behind it: embeddings, a puzzle prefix, heads."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from looptaps import state as trees
from looptaps.loop import Control, Readout
from looptaps.models.base import DTYPES, Heads, check_batch
from looptaps.models.hub import SavedModel
from looptaps.models.layers import CastedEmbedding, CastedLinear, PuzzleEmbedding, Rotary, rotary_table

C = TypeVar("C")


class PuzzleModel(SavedModel):
    """Embedding and heads around a loop; a subclass brings cores, carry and `advance`.

    `batch` is `{"inputs": (B, n) tokens, "puzzle_identifiers": (B,), zeros if left out}`. A carry has a field `x`, the
    embedded input, and a field `z_L`, the state that control scales.
    """

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
        if config.scores:
            self.q_head = CastedLinear(width, 2, bias=True)
            # At first the Q head says "go on" to everything.
            nn.init.zeros_(self.q_head.weight)
            nn.init.constant_(self.q_head.bias, -5.0)  # type: ignore[arg-type]

    def embed(self, batch: dict[str, Tensor]) -> Tensor:
        """The input as the cores see it, (B, prefix + n, d): sqrt(d) times prefix and token embeddings."""
        config = self.config
        inputs, ids = check_batch(type(self).__name__, batch, config.vocab_size, config.seq_len,
                                  config.num_puzzle_identifiers)
        x: Tensor = self.embed_tokens(inputs, self._state_dtype)
        if self.prefix:
            rows = self.puzzle_emb(ids, self._state_dtype)
            rows = F.pad(rows, (0, self.prefix * config.hidden_size - rows.shape[-1]))
            x = torch.cat((rows.view(-1, self.prefix, config.hidden_size), x), dim=1)
        if config.pos_encodings == "learned":
            x = 0.707106781 * (x + self.embed_pos.embedding_weight.to(x.dtype))
        scale: float = config.hidden_size**0.5
        return x * scale

    def begin(self, batch: dict[str, Tensor]) -> Any:
        """The carry before the first loop."""
        raise NotImplementedError

    def resume(self, carry: C, batch: dict[str, Tensor], halted: Tensor) -> C:
        """The carry for the next training step: the batch embedded with today's weights, rows that halted afresh.

        Where `halted` (B,) is True the batch holds a new sample. The other rows go on, detached.
        """
        fresh = self.begin(batch)
        return trees.where(halted, fresh, trees.detach(carry))._replace(x=fresh.x)  # type: ignore[no-any-return]

    def check_control(self, control: Control) -> None:
        """Raise where `advance` would refuse this control; by default it refuses none."""

    def answer_state(self, carry: Any) -> Tensor:
        """The state (B, prefix + n, d) that the heads read."""
        raise NotImplementedError

    def heads(self, carry: Any) -> Heads:
        """Logits of the answer, and both Q logits, with gradients where grad is enabled."""
        state = self.answer_state(carry)
        logits = self.lm_head(state[:, self.prefix :])
        if not self.config.scores:
            return Heads(logits, None, None)
        # Released models read Q at the first prefix position; without a prefix it reads the mean of all.
        q = self.q_head(state[:, 0] if self.prefix else state.mean(1)).float()
        return Heads(logits, q[:, 0], q[:, 1])

    def readout(self, carry: Any) -> Readout:
        """The answer now; the score is the halting logit."""
        heads = self.heads(carry)
        return Readout(heads.logits, heads.q_halt)

    def cores(self) -> list[nn.Module]:
        """The networks that are applied again and again."""
        raise NotImplementedError

    def compile_core(self, **options: Any) -> None:
        """Compile the cores in place (`torch.compile` options); parameters and their names stay as they are."""
        for core in self.cores():
            core.compile(**options)

    def _rotary(self, x: Tensor) -> Rotary | None:
        config = self.config
        if config.pos_encodings != "rope" or not config.attends:
            return None
        return rotary_table(x.shape[1], config.hidden_size // config.num_heads, config.rope_theta, x.device)
