"""Models whose every residual and answer is given, a linear loop, and small real models."""

from typing import NamedTuple

import pytest
import torch

import looptaps as lt
from looptaps.loop import Readout, StepStats, begin_memory

torch.set_num_threads(1)

TINY = {"vocab_size": 7, "seq_len": 16, "hidden_size": 32, "num_heads": 2, "channel_inner": 48, "puzzle_emb_ndim": 0,
        "forward_dtype": "float32"}


class ScriptCarry(NamedTuple):
    z_L: torch.Tensor  # noqa: N815
    z_H: torch.Tensor  # noqa: N815
    script: torch.Tensor
    t: torch.Tensor


class Scripted:
    """A model that plays tables: row s of every table is what happens to a sample whose first input is s.

    `residuals` (S, T, 2), `eta` (S, T), `answers` (S, T) (the answer's only token), `score` (S, T), `moves`
    (S, T, K), `finite` (S, T). The answer before the first loop is token 0.
    """

    def __init__(self, loops, scripts=1, *, residuals=None, eta=None, answers=None, score=None, moves=None,
                 finite=None, updates=36, updates_high=6, vocab=50):
        def table(values, *shape, fill):
            if values is None:
                return torch.full((scripts, loops, *shape), fill)
            values = torch.as_tensor(values)
            return values.reshape(scripts, loops, *shape)

        self.residuals = table(residuals, 2, fill=1.0)
        self.eta = table(eta, fill=1.0)
        self.answers = table(answers, fill=1)
        self.score = None if score is None else table(score, fill=0.0)
        self.moves = None if moves is None else torch.as_tensor(moves).reshape(scripts, loops, -1)
        self.finite = table(finite, fill=True)
        self.updates, self.updates_high, self.vocab = updates, updates_high, vocab
        self.batches = []

    def begin(self, batch):
        script = batch["inputs"][:, 0]
        state = torch.zeros(len(script), 1, 4)
        return ScriptCarry(state, state.clone(), script, torch.zeros_like(script))

    def advance(self, carry, control, memory=None, *, trace=False, moves=None):
        at = carry.script, carry.t
        self.batches.append(carry.script.tolist())
        memory = begin_memory(control.rule(), carry.z_L) if memory is None else memory
        known = moves is not None and self.moves is not None
        stats = StepStats(self.residuals[at].T, self.eta[at], self.eta[at], self.finite[at], self.updates,
                          self.updates_high, None, self.moves[at].T if known else None)
        return carry._replace(z_L=carry.z_L + 1, t=carry.t + 1), memory, stats

    def readout(self, carry):
        before = (carry.t - 1).clamp(min=0)
        token = torch.where(carry.t > 0, self.answers[carry.script, before], 0)
        logits = torch.nn.functional.one_hot(token, self.vocab).float().unsqueeze(1)
        return Readout(logits, None if self.score is None else self.score[carry.script, before])


@pytest.fixture(scope="session")
def scripted():
    return Scripted


@pytest.fixture
def play():
    """play(strategy, model, size, **run): run the scripts 0..size-1."""

    def go(strategy, model, size=1, **options):
        return strategy.run(model, {"inputs": torch.arange(size).unsqueeze(1)}, lt.Standard(), **options)

    return go


@pytest.fixture
def make():
    """make(kind, **config): a small model with fixed weights and heads that depend on the state."""

    def build(kind, **config):
        cls = lt.models.MODELS[kind]
        model = cls(cls.config_type(**{**TINY, **config}), torch.Generator().manual_seed(0))
        if hasattr(model, "q_head"):
            torch.nn.init.normal_(model.q_head.weight, generator=torch.Generator().manual_seed(3))
        return model.eval()

    return build


@pytest.fixture
def batch():
    """batch(size): the same puzzles whatever the size."""

    def build(size=6):
        return {"inputs": torch.randint(7, (64, 16), generator=torch.Generator().manual_seed(1))[:size]}

    return build
