"""The two-level loop that TRM and HRM share: z_L refined several times, then z_H once, several cycles a loop.

    z_L <- z_L + eta (L(z_L, z_H + x) - z_L)     L_cycles times      (inner control scales these)
    z_H <- H(z_H, z_L)                           once                (always a unit step)

As released, only the end of each outer loop carries gradients (`_LAST_STEP_ONLY`), and the carry is detached between
outer loops by whoever trains.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from looptaps.loop import Control, Memory, StepStats, as_control
from looptaps.models.base import LoopRun, Moves, check_outer
from looptaps.models.layers import PostNormCore, truncated_normal
from looptaps.models.puzzle import PuzzleModel


class Carry(NamedTuple):
    """What goes from one outer loop to the next: both states and the embedded input, each (B, prefix + n, d)."""

    z_H: Tensor  # noqa: N815
    z_L: Tensor  # noqa: N815
    x: Tensor


class TwoLevelModel(PuzzleModel):
    """Two states and their loop; a subclass brings the cores."""

    # HRM: gradients only through the last z_L and z_H update; TRM: through the whole last cycle.
    _LAST_STEP_ONLY: ClassVar[bool]
    L_level: PostNormCore

    def __init__(self, config: Any, generator: torch.Generator | None = None) -> None:
        super().__init__(config, generator)
        self.H_init: Tensor
        self.L_init: Tensor
        for name in ("H_init", "L_init"):
            start = truncated_normal((config.hidden_size,), 1.0, generator)
            self.register_buffer(name, start.to(self._state_dtype))

    @property
    def _high(self) -> PostNormCore:
        """The core that updates z_H."""
        return self.L_level

    def cores(self) -> list[nn.Module]:
        return list(dict.fromkeys((self.L_level, self._high)))

    def check_control(self, control: Control) -> None:
        check_outer(type(self).__name__, control)

    def answer_state(self, carry: Carry) -> Tensor:
        return carry.z_H

    def begin(self, batch: dict[str, Tensor]) -> Carry:
        """The carry before the first loop: the fixed initial states at every position."""
        x = self.embed(batch)
        return Carry(self.H_init.expand_as(x).contiguous(), self.L_init.expand_as(x).contiguous(), x)

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
        self.check_control(control)
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
