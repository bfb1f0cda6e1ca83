"""Inductor's kernels compute what eager computes. (That each rule is one graph is in the contract table.)"""

import pytest
import torch

import looptaps as lt
from looptaps.testing import WaveCore, updates

# Measured differences after 4 steps: 1.2e-7 (state) and 6e-8 (eta) in float32, one bfloat16 rounding of a state in
# [0.5, 2) (0.0078) and 2.6e-4 (eta) in bfloat16, where sin is fused and rounded once instead of twice.
CLOSE = {torch.float32: (1e-6, 1e-6), torch.bfloat16: (0.0157, 2e-3)}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize("rule", [lt.TapsAdam(), lt.TapsBB()], ids=lambda rule: type(rule).__name__)
def test_inductor_equals_eager(rule, dtype):
    core, x = WaveCore(16, dtype=dtype), updates(1, 5, 7, 16, dtype=dtype)[0]

    def loop(x):
        return lt.iterate(core, x, rule, 4, trace=True)

    torch._dynamo.reset()
    with torch.no_grad():
        compiled, eager = torch.compile(loop, fullgraph=True)(x), loop(x)
    state, eta = CLOSE[dtype]
    assert (compiled.x.float() - eager.x.float()).abs().max() <= state
    assert (compiled.trace.eta - eager.trace.eta).abs().max() <= eta
    assert (eager.trace.eta != 1).any()


def test_segments_compile_into_one_graph():
    """A serving engine compiles its forward, segment ids included."""
    core, x = WaveCore(8), updates(1, 1, 12, 8)[0, 0]

    def loop(x, ids):
        return lt.iterate(core, x, lt.TapsAdam(), 4, scope=lt.Segments(ids)).x

    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(loop, fullgraph=True, backend="eager")
        for ids in (torch.arange(3).repeat_interleave(4), torch.arange(12) // 6):
            assert torch.equal(compiled(x, ids), loop(x, ids))


def test_segments_of_no_rows_are_no_requests():
    x = torch.zeros(0, 8)
    run = lt.iterate(WaveCore(8), x, lt.TapsAdam(), 4, scope=lt.Segments(torch.zeros(0, dtype=torch.int64)))
    assert run.x.shape == (0, 8)
