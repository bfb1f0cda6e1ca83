"""A recipe so small that a step takes milliseconds."""

from __future__ import annotations

from pathlib import Path

import pytest

TINY = """
name = "tiny"
batch_size = 16
tracker = "none"
log_every = 1

[model]
kind = "trm"
config = {hidden_size = 32, num_heads = 2, puzzle_emb_ndim = 0, mlp_t = true, token_inner = 32, channel_inner = 64, \
pos_encodings = "none", H_cycles = 2, L_cycles = 2, state_dtype = "float32"}

[data]
options = {box = [2, 2], pool = 64}
extra = [[0, 6], [500, 2]]

[optimizer]
lr = 3e-3

[schedule]
steps = 20
warmup = 5

[halting]
max_loops = 4

[validation]
every = 1000
puzzles = 20
batch = 16
loops = [1, 4]
"""


@pytest.fixture
def tiny_text() -> str:
    return TINY


@pytest.fixture
def tiny_file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path
