"""The released checkpoints' logits, bit for bit, through the public loader.

Run as a script, this file writes the probe: products on which another CPU's kernels may differ in the last bit.
"""

import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import looptaps as lt

DATA = Path(__file__).parents[1] / "data" / "parity"
CASES = [("trm", "sudoku_mlp", 36, 6), ("trm", "maze_att", 24, 6), ("hrm", "sudoku_hrm", 8, 4)]


def probe():
    """The kernels these models use, on fixed numbers: products, SwiGLU, attention, and a norm."""

    def numbers(*shape, step):
        count = torch.Size(shape).numel()
        return ((torch.arange(count) * step % 1009 - 504) / 256).reshape(shape).to(torch.bfloat16)

    x = numbers(4, 97, 32, step=7919)
    mixed = F.linear(x.transpose(1, 2).contiguous(), numbers(1024, 97, step=104729) / 16)
    gate, up = F.linear(x, numbers(512, 32, step=15485863) / 8).chunk(2, -1)
    down = F.linear(F.silu(gate) * up, numbers(32, 256, step=611953) / 16)
    query, key, value = x.view(4, 97, 4, 8).transpose(1, 2), x.flip(1).view(4, 97, 4, 8).transpose(1, 2), down
    attended = F.scaled_dot_product_attention(query, key, value.view(4, 97, 4, 8).transpose(1, 2))
    normed = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-5)
    return {"mixed": mixed[:, ::4, ::16].clone(), "down": down, "attended": attended.contiguous(), "normed": normed}


def probe_error():
    """How far this CPU's kernels are from those the fixtures were made with: 0.0 where they agree in every bit."""
    recorded = load_file(DATA / "probe.safetensors")
    return max((value.float() - recorded[name].float()).abs().max().item() for name, value in probe().items())


@pytest.mark.parametrize(("kind", "name", "low", "high"), CASES)
def test_released_checkpoints_give_the_released_logits(kind, name, low, high):
    torch.set_num_threads(1)
    expected = torch.load(DATA / name / "expected.pt", weights_only=True)
    model = lt.load_model(kind, DATA / name / "step_1")
    error = probe_error()
    if error:
        warnings.warn(f"This CPU's matrix kernels differ from the fixtures' by {error:.3g} on the probe, so {name} is "
                      f"compared within {100 * error:.3g}, not bit for bit.", stacklevel=1)
    with torch.no_grad():
        carry, memory = model.begin({"inputs": expected["inputs"]}), None
        for loop in range(4):
            carry, memory, stats = model.advance(carry, lt.Control(lt.Standard()), memory)
            logits, score = model.readout(carry)
            if error:
                torch.testing.assert_close(logits.float(), expected["logits"][loop], rtol=0, atol=100 * error)
                torch.testing.assert_close(score, expected["q"][loop], rtol=0, atol=100 * error)
            else:
                assert torch.equal(logits.float(), expected["logits"][loop])
                assert torch.equal(score, expected["q"][loop])
            assert score.dtype == torch.float32
            assert (stats.updates, stats.updates_high) == (low, high)


@pytest.mark.parametrize(("kind", "name", "low", "high"), CASES)
def test_the_controlled_path_at_unit_step_gives_the_same_bits(kind, name, low, high):
    # Constant(1) and a traced Standard go through the arithmetic of a controlled step; Standard alone skips it.
    inputs = torch.load(DATA / name / "expected.pt", weights_only=True)["inputs"]
    model = lt.load_model(kind, DATA / name / "step_1")
    results = []
    with torch.no_grad():
        for rule, trace in ((lt.Standard(), False), (lt.Standard(), True), (lt.Constant(1.0), False)):
            carry, memory = model.begin({"inputs": inputs}), None
            for _ in range(3):
                carry, memory, stats = model.advance(carry, lt.Control(rule), memory, trace=trace)
            results.append((*carry, memory.rule.k, memory.eta, stats.residuals, stats.mean_eta))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


if __name__ == "__main__":
    torch.set_num_threads(1)
    save_file(probe(), DATA / "probe.safetensors")
