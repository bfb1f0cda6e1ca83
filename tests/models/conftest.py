"""Small models for every test here; one thread, because the suite runs beside itself on few cores."""

import pytest
import torch

import looptaps as lt

torch.set_num_threads(1)

TINY = {"vocab_size": 7, "seq_len": 16, "hidden_size": 32, "num_heads": 2, "channel_inner": 48}


def _lively(model):
    """The same model with heads that depend on the state, as after some training."""
    if hasattr(model, "q_head"):
        torch.nn.init.normal_(model.q_head.weight, generator=torch.Generator().manual_seed(3))
    return model.eval()


@pytest.fixture
def make():
    """make(kind, **config): a small model with fixed weights."""

    def build(kind, **config):
        cls = lt.models.MODELS[kind]
        given = {**TINY, "puzzle_emb_ndim": 0, "forward_dtype": "float32", **config}
        return _lively(cls(cls.config_type(**given), torch.Generator().manual_seed(0)))

    return build


@pytest.fixture
def batch():
    """batch(size): the same puzzles whatever the size."""

    def build(size=4, n=16, vocab=7):
        return {"inputs": torch.randint(vocab, (64, n), generator=torch.Generator().manual_seed(1))[:size]}

    return build


@pytest.fixture
def run():
    """run(model, batch, control, loops): the carry, the last memory and all statistics, without gradients."""

    def go(model, batch, control=None, loops=3, **options):
        with torch.no_grad():
            carry, memory, stats = model.begin(batch), None, []
            for _ in range(loops):
                carry, memory, stat = model.advance(carry, control or lt.Control(lt.Standard()), memory, **options)
                stats.append(stat)
        return carry, memory, stats

    return go
