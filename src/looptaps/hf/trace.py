"""What a loop inside a language model did: eta by stage and forward."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import torch
from torch import Tensor

KEEP = 4096  # forwards whose etas are kept one by one; the means run over all of them


class EtaTrace:
    """eta of every forward, `trace[f]`: (K, B), or (K, B, N) in token scope.

    `means[f]` is the mean of forward f (padding left out), `stage_means` (K,) and `mean` are the paper's
    E_forward[eta_k] and eta-bar: every forward counts the same, a prefill as much as a decoded token.
    The last 4096 forwards are kept; the means run over all of them.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything, for instance between two measurements."""
        self._etas: deque[Tensor] = deque(maxlen=KEEP)
        self._means: deque[Tensor] = deque(maxlen=KEEP)
        self._sum: Tensor | None = None
        self.count = 0

    def record(self, etas: list[Tensor], mask: Tensor | None) -> None:
        """One forward: the etas of its stages, and which rows or positions are real."""
        eta = torch.stack([value.detach() for value in etas])
        rows = eta.flatten(1).double()
        if mask is None or mask.shape != eta.shape[1:]:
            stages = rows.mean(1)
        else:
            real = mask.flatten()
            stages = torch.where(real, rows, 0).sum(1) / real.sum().clamp(min=1)
        if self._sum is not None and self._sum.shape != stages.shape:
            self.clear()  # the number of stages was changed
        self._etas.append(eta)
        self._means.append(stages.mean())
        self._sum = stages if self._sum is None else self._sum.to(stages.device) + stages
        self.count += 1

    @property
    def means(self) -> Tensor:
        """Mean eta of each kept forward."""
        return torch.stack([mean.cpu() for mean in self._means]) if self._means else torch.zeros(0)

    @property
    def stage_means(self) -> Tensor | None:
        """E_forward[eta_k] for each stage k; None before the first forward."""
        return None if self._sum is None else (self._sum / self.count).cpu()

    @property
    def mean(self) -> float | None:
        """eta-bar: the mean over stages and forwards; None before the first forward."""
        stages = self.stage_means
        return None if stages is None else float(stages.mean())

    def __len__(self) -> int:
        return len(self._etas)

    def __getitem__(self, index: int) -> Tensor:
        return self._etas[index]

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._etas)

    def __repr__(self) -> str:
        return f"EtaTrace({self.count} forwards, mean eta {self.mean})"
