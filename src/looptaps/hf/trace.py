"""What a loop inside a language model did: eta by stage and forward."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import torch
from torch import Tensor

KEEP = 4096  # forwards whose etas are kept one by one; the means run over all of them


class EtaTrace:
    """eta of every forward, `trace[f]`: (K, B), or (K, B, N) in token scope.

    `means[f]` is the mean of forward f over stages and rows (padding left out); `stage_means` (K,) and `mean` are the
    paper's E_forward[eta_k] and eta-bar. Every forward of every row counts the same, a prompt as much as a decoded
    token, so that batching does not change them. The last 4096 forwards are kept; the means run over all of them.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything, for instance between two measurements."""
        self._etas: deque[Tensor] = deque(maxlen=KEEP)
        self._means: deque[Tensor] = deque(maxlen=KEEP)
        self._sum: Tensor | None = None
        self._rows: Tensor | None = None
        self.count = 0

    def record(self, etas: list[Tensor], mask: Tensor | None) -> None:
        """One forward: the etas of its stages, and which rows or positions are real."""
        eta = torch.stack([value.detach() for value in etas])
        wide = eta.double()
        weight = torch.ones(eta.shape[1:], dtype=wide.dtype, device=eta.device) if mask is None else mask.to(wide)
        if eta.ndim == 3:  # the mean over a row's real positions; a row without any does not count
            wide = (wide * weight).sum(2) / weight.sum(1).clamp(min=1)
            weight = (weight.sum(1) > 0).to(wide)
        stages, rows = (wide * weight).sum(1), weight.sum()
        if self._sum is not None and self._sum.shape != stages.shape:
            self.clear()  # the number of stages was changed
        self._etas.append(eta)
        self._means.append(stages.mean() / rows.clamp(min=1))
        self._sum = stages if self._sum is None else self._sum.to(stages.device) + stages
        self._rows = rows if self._rows is None else self._rows.to(rows.device) + rows
        self.count += 1

    @property
    def means(self) -> Tensor:
        """Mean eta of each kept forward."""
        return torch.stack([mean.cpu() for mean in self._means]) if self._means else torch.zeros(0)

    @property
    def stage_means(self) -> Tensor | None:
        """E_forward[eta_k] for each stage k, over rows and forwards; None before the first."""
        if self._sum is None or self._rows is None:
            return None
        return (self._sum / self._rows.clamp(min=1)).cpu()

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
