"""A stream at full batch gives the answers of plain runs, whatever is refilled when."""

import pytest
import torch

import looptaps as lt
from looptaps.errors import InvalidShape, InvalidType, InvalidUse, InvalidValue
from looptaps.strategies import FPRMRule

STRATEGIES = [lt.FixedDepth(3), lt.AdaptiveExit(max_loops=6, k_min=2, patience=1, tau=0.5),
              lt.QExit(max_loops=5, threshold=-5.0), lt.FixedPoint(eps=0.05, max_updates=180),
              lt.Anderson(max_loops=4, eps=0.05)]
CONTROLS = {"unit": lt.Standard(), "gd": lt.TapsGD(), "adam": lt.Control(lt.TapsAdam(), every=2),
            "token": lt.Control(lt.TapsGD(), scope="token"), "outer": lt.Control(lt.TapsBB(), site="outer")}


def in_order(served):
    parts = list(served)
    ids = torch.cat([part.ids for part in parts])
    return lt.Result.join([part.result for part in parts]).select(ids.argsort()), ids


def same(one, two):
    for field in ("output", "status", "loops", "updates", "updates_high"):
        assert torch.equal(getattr(one, field), getattr(two, field)), field
    torch.testing.assert_close(one.mean_eta, two.mean_eta, rtol=0, atol=1e-4)
    torch.testing.assert_close(one.score, two.score, rtol=0, atol=1e-4)


@pytest.mark.parametrize("control", CONTROLS.values(), ids=CONTROLS)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: type(s).__name__)
def test_refill_equals_no_refill(make, batch, strategy, control):
    model, puzzles = make("trm"), batch(11)
    plain = strategy.run(model, puzzles, control)
    stream = [{"inputs": part} for part in puzzles["inputs"].split(5)]
    served, _ = in_order(lt.serve_loop(strategy, model, stream, control, batch_size=4))
    same(plain, served)


def test_refill_with_random_starts_and_fprms_rule(make, batch):
    model, puzzles = make("fprm", fixed_init=False, fp_thresh=0.3), batch(10)
    ids = torch.arange(10) * 7
    plain = FPRMRule().run(model, puzzles, lt.TapsGD(), seed=3, ids=ids)
    stream = [(ids[i : i + 4], {"inputs": puzzles["inputs"][i : i + 4]}) for i in (4, 0, 8)]
    served, order = in_order(lt.serve_loop(FPRMRule(), model, stream, lt.TapsGD(), batch_size=3, seed=3))
    assert sorted(order.tolist()) == ids.tolist()
    same(plain, served)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: type(s).__name__)
def test_refill_works_in_every_dtype(make, batch, strategy, dtype):
    model, puzzles = make("trm", forward_dtype=dtype, state_dtype=dtype), batch(7)
    plain = strategy.run(model, puzzles, lt.TapsAdam())
    for size in (7, 2):
        served, _ = in_order(lt.serve_loop(strategy, model, [puzzles], lt.TapsAdam(), batch_size=size))
        same(plain, served)


def test_the_batch_stays_full(scripted):
    leave = [1, 4, 2, 3, 1, 1, 2, 5, 1, 1]
    residuals = [[(1.0, 1.0)] * n + [(0.0, 0.0)] * (8 - n) for n in leave]
    model = scripted(8, 10, residuals=residuals)
    stream = ({"inputs": torch.tensor([[s]])} for s in range(10))
    rule = lt.AdaptiveExit(max_loops=8, k_min=1, patience=1)
    served, _ = in_order(lt.serve_loop(rule, model, stream, lt.Standard(), batch_size=3))
    assert served.loops.tolist() == [n + 1 for n in leave]
    sizes = [len(rows) for rows in model.batches]
    assert sum(sizes) == sum(leave) + 10
    waiting_gone = max(i for i, rows in enumerate(model.batches) if 9 in rows and 9 not in model.batches[i - 1])
    assert all(size == 3 for size in sizes[: waiting_gone + 1])


def test_bad_samples_are_retired_and_replaced(scripted):
    finite = [[s != 1 or t < 1 for t in range(4)] for s in range(4)]
    model = scripted(4, 4, finite=finite)
    stream = [{"inputs": torch.arange(4).unsqueeze(1)}]
    served, _ = in_order(lt.serve_loop(lt.FixedDepth(4), model, stream, lt.Standard(), batch_size=2))
    assert served.loops.tolist() == [4, 2, 4, 4]
    assert served.counts() == {"RAN_ALL": 3, "NONFINITE": 1}


def test_the_stream_is_read_only_as_far_as_there_is_room(scripted):
    read = []

    def stream():
        for s in range(100):
            read.append(s)
            yield {"inputs": torch.zeros(1, 1, dtype=torch.int64)}

    served = lt.serve_loop(lt.FixedDepth(2), scripted(2), stream(), lt.Standard(), batch_size=3)
    next(served)
    assert len(read) == 3


def test_an_empty_stream_is_no_work(scripted):
    assert list(lt.serve_loop(lt.FixedDepth(2), scripted(2), [], lt.Standard(), batch_size=3)) == []


def test_bad_input(scripted):
    model, stream = scripted(2), [{"inputs": torch.zeros(1, 1, dtype=torch.int64)}]
    with pytest.raises(InvalidValue, match=r"serve_loop.batch_size"):
        lt.serve_loop(lt.FixedDepth(2), model, stream, lt.Standard(), batch_size=0)
    with pytest.raises(InvalidUse, match="not Rollouts"):
        lt.serve_loop(lt.Rollouts(lt.FixedDepth(2), n=2), model, stream, lt.Standard(), batch_size=2)
    with pytest.raises(InvalidUse, match="batch_max"):
        lt.serve_loop(FPRMRule(batch_max=True), model, stream, lt.Standard(), batch_size=2)
    with pytest.raises(InvalidType, match=r"has no begin\(\)"):
        lt.serve_loop(lt.FixedDepth(2), None, stream, lt.Standard(), batch_size=2)
    for wrong in (None, stream[0], "stream"):
        with pytest.raises(InvalidType, match="serve_loop needs a stream, an iterable"):
            lt.serve_loop(lt.FixedDepth(2), model, wrong, lt.Standard(), batch_size=2)
    with pytest.raises(InvalidType, match="stream of batches"):
        list(lt.serve_loop(lt.FixedDepth(2), model, [3], lt.Standard(), batch_size=2))
    with pytest.raises(InvalidType, match="holds NoneType"):  # no end of the stream: what follows would be lost
        list(lt.serve_loop(lt.FixedDepth(2), model, [stream[0], None, stream[0]], lt.Standard(), batch_size=1))


def test_samples_of_another_size_are_refused(make):
    model = make("looped", seq_len=None)
    stream = [{"inputs": torch.zeros(2, n, dtype=torch.int64)} for n in (16, 1)]
    with pytest.raises(InvalidShape, match=r"began with inputs \(16,\) and goes on with inputs \(1,\)"):
        list(lt.serve_loop(lt.FixedDepth(2), model, stream, lt.Standard(), batch_size=4))


@pytest.mark.parametrize("extra", [[1, 2, 1], torch.zeros(2), torch.tensor(1), None], ids=repr)
def test_whatever_a_batch_holds_has_a_row_for_each_sample(make, extra):
    model, puzzles = make("trm"), {"inputs": torch.zeros(3, 16, dtype=torch.int64), "puzzle_identifiers": extra}
    rollouts = lt.Rollouts(lt.FixedDepth(1), n=1, sigma=0.0)
    for go in (lt.FixedDepth(1).run, rollouts.run):
        with pytest.raises(InvalidShape, match=r"batch\['puzzle_identifiers'\] must be a tensor with a row for each"):
            go(model, puzzles, lt.Standard())
    with pytest.raises(InvalidShape, match="a row for each of the 3 samples"):
        list(lt.serve_loop(lt.FixedDepth(1), model, [puzzles], lt.Standard(), batch_size=4))
