"""The timing protocol: everyone in each repeat, in rotating order, ratios within a repeat."""

import json

import pytest
import torch
from typer.testing import CliRunner

import looptaps as lt
from looptaps.cli.main import app
from looptaps.evaluation import timing
from looptaps.evaluation.measure import Policy
from looptaps.models import save_model
from looptaps.models.trm import TRM, TRMConfig
from looptaps.tasks import open_task

POLICIES = {"unit": Policy(lt.Standard()), "gd": Policy(lt.TapsGD()), "bb": Policy(lt.TapsBB())}


@pytest.fixture
def scripted(monkeypatch, telling):
    """Seconds as written: the machine slows down over the repeats, gd always takes 1.5 times as long as unit."""
    order, calls = [], {"n": 0}
    real = timing.measure

    def measure(model, part, policy, horizon):
        rule = type(policy.control).__name__
        calls["n"] += 1
        order.append(rule)
        repeat = (calls["n"] - 1 - len(POLICIES)) // len(POLICIES)  # the first pass is the warm-up
        slow = 1.0 + 0.3 * max(repeat, 0) ** 2
        own = {"Standard": 1.0, "TapsGD": 1.5, "TapsBB": 1.2}[rule]
        return real(model, part, policy, horizon)._replace(seconds=own * slow)

    monkeypatch.setattr(timing, "measure", measure)
    return order


def test_ratios_are_taken_within_a_repeat_and_the_order_rotates(scripted, telling):
    part = next(iter(open_task("sudoku").batches(4)))
    found = timing.time_policies(telling, part, POLICIES, loops=2, repeats=5)
    assert found["gd"].ratio == pytest.approx((1.5, 1.5, 1.5)), "a slow machine slows both"
    assert found["unit"].ratio == (1.0, 1.0, 1.0)
    assert found["gd"].seconds.median == pytest.approx(1.5 * (1 + 0.3 * 4))
    assert found["gd"].seconds.low < found["gd"].seconds.median < found["gd"].seconds.high
    repeats = [scripted[i : i + 3] for i in range(3, len(scripted), 3)]
    assert len(repeats) == 5
    assert all(sorted(repeat) == ["Standard", "TapsBB", "TapsGD"] for repeat in repeats)
    assert [repeat[0] for repeat in repeats[:3]] == ["Standard", "TapsGD", "TapsBB"]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"repeats": 2}, "repeats must be an integer >= 3"), ({"baseline": "x"}, "'x' is not among the policies")],
)
def test_wrong_options_are_one_sentence(telling, options, message):
    part = next(iter(open_task("sudoku").batches(4)))
    with pytest.raises(lt.errors.LooptapsError, match=message):
        timing.time_policies(telling, part, POLICIES, loops=2, **options)


def test_the_command_prints_a_row_for_each_and_writes_a_record(tmp_path):
    config = TRMConfig(vocab_size=11, seq_len=81, hidden_size=16, num_heads=2, puzzle_emb_ndim=0, mlp_t=True,
                       pos_encodings="none", H_cycles=1, L_cycles=2, L_layers=1, token_inner=16, channel_inner=16)
    save_model(TRM(config, torch.Generator().manual_seed(0)), tmp_path / "tiny")
    words = ["bench", "--model", f"trm:{tmp_path}/tiny", "--controllers", "all", "--loops", "2", "--repeats", "3",
             "--batch-size", "4", "--device", "cpu", "--out", str(tmp_path / "bench.json")]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "bench.json").read_text())
    assert list(record["policies"]) == ["standard", "taps-gd", "taps-sign", "taps-momentum", "taps-rmsprop",
                                        "taps-adam", "taps-bb"]
    for name, timed in record["policies"].items():
        assert name in done.output
        assert len(timed["all_seconds"]) == 3
        assert min(timed["all_seconds"]) > 0
    assert record["policies"]["standard"]["ratio"]["median"] == 1.0
    assert record["device"]["threads"] == 1
