"""Runs: what a folder holds is what the model did, however it was batched, interleaved or stopped."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import looptaps as lt
from looptaps.cli.main import app
from looptaps.evaluation import records
from looptaps.evaluation.measure import Policy
from looptaps.evaluation.options import RunOptions, options_of
from looptaps.evaluation.records import export_parquet, load_run
from looptaps.evaluation.runner import matched_constants, run, run_many
from looptaps.models import save_model
from looptaps.models.trm import TRM, TRMConfig
from looptaps.tasks import open_task
from looptaps.tasks.base import score

TASK = open_task("sudoku").select(slice(0, 48))


@pytest.fixture(scope="module")
def runs(telling, tmp_path_factory):
    policies = {
        "unit": Policy(lt.Standard()), "gd": Policy(lt.TapsGD()), "exit": Policy(lt.TapsGD(), "adaptive-exit"),
        "rolls": Policy(lt.TapsGD(), "rollouts:n=3:sigma=0.2"),
    }  # fmt: skip
    return run_many(telling, TASK, policies, out=tmp_path_factory.mktemp("runs"), loops=10, batch_size=20, seed=3,
                    constants=True, trace=5)


def test_what_is_recorded_is_what_a_plain_loop_gives(telling, runs):
    control = lt.Control(lt.TapsGD())
    batch = TASK.batch(torch.arange(48))
    carry, memory, exact, etas = telling.begin(batch), None, [], []
    for _ in range(10):
        carry, memory, stats = telling.advance(carry, control, memory)
        exact.append(score(telling.readout(carry).logits.argmax(-1), batch).exact)
        etas.append(stats.mean_eta)
    found = runs["gd"]
    assert (found.correct == torch.stack(exact, 1).numpy()).all()
    assert found.eta_by_loop == pytest.approx(torch.stack(etas, 1).numpy(), abs=1e-4)
    assert found.mean_eta == pytest.approx(float(torch.stack(etas).mean()), abs=1e-5)
    assert 0 < found.correct[:, 0].mean() < found.final.mean() < 1, "the model would show nothing"
    assert (found.updates == 30).all()
    assert set(found.status) == {"RAN_ALL"}


def test_an_early_exit_keeps_its_last_answer_and_its_cost(runs):
    found = runs["exit"]
    assert set(found.status) >= {"EXITED"}
    assert (found.loops < 10).any()
    assert (found.updates == 3 * found.loops).all()
    for row in range(len(found)):
        stop = found.loops[row] - 1
        assert (found.correct[row, stop:] == found.correct[row, stop]).all()
        assert np.isnan(found.eta_by_loop[row, stop + 1 :]).all()
        assert np.isfinite(found.eta_by_loop[row, : stop + 1]).all()


def test_rollouts_count_all_their_work_and_any_of_them(runs):
    found = runs["rolls"]
    assert (found.updates == 3 * 30).all()
    assert found.any is not None
    assert found.any.mean() >= found.final.mean()
    assert not (found.final & ~found.any).any(), "the selected rollout is one of them"


@pytest.mark.parametrize("policy", ["gd", "exit", "rolls"])
def test_batching_changes_nothing(telling, runs, policy, tmp_path):
    other = run(telling, TASK, lt.TapsGD(), runs[policy].meta["strategy"], out=tmp_path, batch_size=7, seed=3)
    assert (other.correct == runs[policy].correct).all()
    assert other.eta == pytest.approx(runs[policy].eta, abs=1e-5)


def test_refilled_places_change_nothing_but_the_clock(telling, runs, tmp_path):
    other = run(telling, TASK, lt.TapsGD(), "adaptive-exit", out=tmp_path, loops=10, batch_size=6, seed=3, refill=True)
    assert (other.correct == runs["exit"].correct).all()
    assert (other.loops == runs["exit"].loops).all()
    assert other.label == "taps-gd adaptive-exit:max_loops=10 refilled"


def test_the_record_says_what_was_run_on_what(runs):
    meta = json.loads((runs["gd"].folder / "run.json").read_text())
    assert meta["schema"] == 1
    assert meta["controller"] == "taps-gd"
    assert lt.Control.from_dict(meta["control"]) == lt.Control(lt.TapsGD())
    assert meta["strategy"] == "fixed-depth:loops=10"
    assert meta["task"]["sha256"] == TASK.fingerprint()
    assert (meta["seed"], meta["loops"], meta["batch_size"], meta["dtype"]) == (3, 10, 20, "float32")
    assert meta["versions"]["torch"] == torch.__version__
    assert meta["device"]["type"] == "cpu"
    assert set(meta["git"]) == {"commit", "dirty"}
    timing = meta["timing"]
    assert timing["protocol"] == "interleaved"
    assert timing["policies"] == ["unit", "gd", "exit", "rolls"]
    assert len(timing["batch_seconds"]) == 3
    assert timing["seconds"] == pytest.approx(sum(timing["batch_seconds"]))
    assert meta["counts"] == {"puzzles": 48, "loops": 480, "updates": 1440, "updates_high": 480}
    groups = {name: found.meta["timing"]["group"] for name, found in runs.items()}
    assert len({groups[name] for name in ("unit", "gd", "exit", "rolls")}) == 1
    assert groups[next(name for name in runs if name.startswith("constant"))] != groups["unit"], "timed in another call"


def test_constants_stand_at_the_rules_mean_etas(runs):
    for name, policy in matched_constants(runs).items():
        assert name in runs
        rules = [runs[rule] for rule in ("gd", "exit", "rolls") if runs[rule].meta["strategy"] == policy.strategy]
        assert any(abs(policy.control.controller.eta - rule.mean_eta) <= 0.005 for rule in rules)
    assert sum(name.startswith("constant") for name in runs) == 3, "one for each rule and strategy"


def test_traces_are_the_boards_of_the_run(runs):
    traces = runs["exit"].traces
    assert traces["boards"].shape == (5, 10, 81)
    batch = TASK.batch(torch.arange(5))
    for row in range(5):
        stop = runs["exit"].loops[row]
        assert (traces["boards"][row, stop:] == 255).all()
        right = (torch.from_numpy(traces["boards"][row, :stop].astype(np.int64)) == batch["labels"][row]).all(1)
        assert (right.numpy() == runs["exit"].correct[row, :stop]).all()
    assert runs["gd"].traces["eta"].shape == (5, 30)


def test_parquet_is_the_same_run(runs, tmp_path):
    run = runs["exit"]
    export_parquet(run, tmp_path / "samples.parquet")
    (tmp_path / "run.json").write_bytes((run.folder / "run.json").read_bytes())
    other = load_run(tmp_path)
    assert other.rows == run.rows
    assert (other.correct == run.correct).all()


def test_a_finished_run_is_loaded_not_run_again(telling, runs):
    folder = runs["unit"].folder
    before = (folder / "samples.jsonl").stat().st_mtime_ns
    again = run(telling, TASK, lt.Standard(), out=folder, loops=10, batch_size=20, seed=3, trace=5)
    assert (folder / "samples.jsonl").stat().st_mtime_ns == before
    assert again.meta["parts"] == runs["unit"].meta["parts"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 4}, "another seed: 3 there, 4 here"),
        ({"loops": 9}, "another strategy"),
        ({"batch_size": 10}, "another batch_size: 20 there, 10 here"),
        ({"limit": 40}, "another task.n: 48 there, 40 here"),
    ],
)
def test_a_folder_of_another_run_is_refused(telling, runs, options, message):
    given = {"loops": 10, "batch_size": 20, "seed": 3, "trace": 5, **options}
    with pytest.raises(lt.errors.InvalidUse, match=message):
        run(telling, TASK, lt.Standard(), out=runs["unit"].folder, **given)


def damaged(folder, tmp_path, name, change):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    path = tmp_path / name
    path.write_text(change(path.read_text()))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("run.json", lambda text: text[:50], "cannot be read"),
        ("run.json", lambda text: text.replace('"schema": 1', '"schema": 7'), "schema 7, but this version reads 1"),
        ("run.json", lambda text: text.replace('"seed"', '"sed"'), "lacks seed"),
        ("samples.jsonl", lambda text: text[:-9], "middle of line 48"),
        ("samples.jsonl", lambda text: text.replace("RAN_ALL", "RAN", 1), "line 1 has status 'RAN', but: .*'RAN_ALL'"),
        ("samples.jsonl", lambda text: "".join(text.splitlines(True)[1:]), "line 1 is of puzzle 1, not 0"),
        ("samples.jsonl", lambda text: text.replace('"correct":"', '"correct":"2', 1), "line 1 has correct '2.*01"),
        ("samples.jsonl", lambda text: text.replace("{", "[", 1), "line 1 is no JSON"),
        ("samples.jsonl", lambda text: "".join(text.splitlines(True)[:40]), "not finished|holds 40 puzzles"),
    ],
)
def test_corrupt_records_are_refused_with_the_place(runs, tmp_path, name, change, message):
    with pytest.raises(lt.errors.InvalidFile, match=message):
        load_run(damaged(runs["unit"].folder, tmp_path, name, change))


def edited(folder, tmp_path, place, value):
    """A copy with one field changed: `timing.seconds` of run.json, or `3.eta` of the third line of samples.jsonl."""
    name, line, keys = "run.json", 0, place.split(".")
    if keys[0].isdecimal():
        name, line, keys = "samples.jsonl", int(keys[0]) - 1, keys[1:]
    lines = (folder / name).read_text().split("\n") if name == "samples.jsonl" else [(folder / name).read_text()]
    record = at = json.loads(lines[line])
    for key in keys[:-1]:
        at = at[key]
    at[keys[-1]] = value
    if value is LEFT_OUT:
        del at[keys[-1]]
    lines[line] = json.dumps(record)
    return damaged(folder, tmp_path, name, lambda _: "\n".join(lines))


LEFT_OUT = object()
WRONG = [
    *(("3.updates", value) for value in ("x", None, -5, 3.7, True, 10**30)), ("3.eta", "abc"), ("3.eta", [1.0]),
    ("3.eta", float("nan")), ("3.eta_by_loop", ["1.0"] * 10), ("3.eta_by_loop", [1.0]), ("3.difficulty", None),
    ("3.difficulty", {}), ("3.difficulty", "hard"), ("3.difficulty.empty", "many"), ("3.score", "high"),
    ("3.id", "2"), ("3.loops", 11), ("3.loops", "10"), ("3.correct", "01"), ("3.status", 0), ("3.any", True),
    ("3.updates_high", LEFT_OUT),
    ("task.n", "48"), ("task", []), ("loops", "10"), ("timing", {}), ("timing.seconds", None),
    ("timing.batch_seconds", ["1.0"]), ("timing.batch_seconds", [float("inf")]), ("control", {}), ("control", None),
    ("control.every", 0), ("control.site", "middle"), ("controller", LEFT_OUT), ("model.parameters", LEFT_OUT),
    ("counts.updates", 1), ("counts.puzzles", 47), ("device.threads", "2"), ("git", None), ("finished", 3),
]  # fmt: skip


@pytest.mark.parametrize(("place", "value"), WRONG, ids=lambda part: part if isinstance(part, str) else None)
def test_one_wrong_field_is_refused_with_file_line_and_field(runs, tmp_path, place, value):
    with pytest.raises(lt.errors.InvalidFile) as caught:
        load_run(edited(runs["unit"].folder, tmp_path, place, value))
    said, line = str(caught.value), place.split(".")[0]
    assert ("samples.jsonl: line 3 " if line == "3" else "run.json ") in said
    assert place.split(".")[1 if line == "3" else -1] in said or "is of puzzle" in said
    assert said.endswith("Remove the folder and run again.")


def test_checking_a_record_costs_little_more_than_reading_it(runs, tmp_path):
    rows = [{**runs["unit"].rows[0], "id": place} for place in range(10_000)]
    lines = [json.dumps(row) for row in rows]
    ratios = []
    for _ in range(3):
        began = time.process_time()
        for line in lines:
            json.loads(line)
        read = time.process_time()
        records._check(rows, tmp_path, 10)
        ratios.append((time.process_time() - read) / (read - began))
    assert min(ratios) < 5  # 0.9 was measured


def test_damaged_traces_are_refused(runs, tmp_path):
    folder = runs["exit"].folder
    whole = (folder / "traces.npz").read_bytes()
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())

    def read(data):
        (tmp_path / "traces.npz").write_bytes(data)
        return load_run(tmp_path).traces

    for size in range(0, len(whole), len(whole) // 20):
        with pytest.raises(lt.errors.InvalidFile, match=r"traces\.npz is damaged"):
            read(whole[:size])
    refused = 0
    for place in range(0, len(whole), 23):  # a flipped bit is found, or falls on a byte that says nothing
        try:
            found = read(whole[:place] + bytes([whole[place] ^ 64]) + whole[place + 1 :])
        except lt.errors.InvalidFile:
            refused += 1
        else:
            assert all(np.array_equal(found[name], array, equal_nan=True)
                       for name, array in runs["exit"].traces.items())
    assert refused > 0.8 * len(whole) / 23

    def stored(arrays):
        np.savez(tmp_path / "traces.npz", **arrays)
        return load_run(tmp_path).traces

    arrays = dict(runs["exit"].traces)
    for change in ({"eta": arrays["eta"][:2]}, {"boards": arrays["boards"][:, :4]}, {"ids": arrays["ids"] + 48},
                   {"labels": arrays["labels"][0]}, {"inputs": arrays["inputs"].astype("U3")}):
        with pytest.raises(lt.errors.InvalidFile, match=next(iter(change))):
            stored({**arrays, **change})
    del arrays["balance"]
    with pytest.raises(lt.errors.InvalidFile, match="balance is missing"):
        stored(arrays)


def test_decisions_are_traced_for_every_loop_though_all_stopped_before(telling, tmp_path):
    """So a place in a series is a place in a loop."""
    early = "adaptive-exit:tau=1000000:k_min=1:patience=1"
    found = run(telling, TASK, lt.TapsGD(), early, out=tmp_path, loops=10, limit=4, trace=4)
    assert found.loops.max() < 10, "the test would show nothing"
    eta = found.traces["eta"]
    assert eta.shape == (4, 30)
    assert (np.isfinite(eta).sum(1) == 3 * found.loops).all()


def test_two_processes_do_not_write_one_folder(telling, tmp_path):
    from looptaps.evaluation.folder import RunFolder

    run(telling, TASK, lt.Standard(), out=tmp_path / "a", loops=2, batch_size=20)
    meta = json.loads((tmp_path / "a" / "run.json").read_text()) | {"finished": None}
    first, second = RunFolder(tmp_path / "b", meta, 20), RunFolder(tmp_path / "b", meta, 20)
    first.open({})
    try:
        with pytest.raises(lt.errors.InvalidUse, match="Another process is writing"):
            second.open({})
    finally:
        first.close()


def test_a_recipe_gives_options_and_the_command_line_wins(tmp_path):
    (tmp_path / "r.toml").write_text('model = "trm:sudoku"\ncontroller = ["standard", "taps-gd@trm"]\nloops = 8\n')
    options, facts = options_of({"loops": 4}, tmp_path / "r.toml")
    assert (options.loops, options.controller) == (4, ("standard", "taps-gd@trm"))
    assert facts["name"] == "r"
    assert len(facts["hash"]) == 64
    assert len(RunOptions(model="trm:sudoku", controller="all@trm").policies()) == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('modle = "trm:sudoku"\n', "Did you mean 'model'"),
        ('model = "trm:sudoku"\nloops = "8"\n', "loops is '8'"),
        ("model = \n", "cannot be read"),
        ("loops = 4\n", "needs --model"),
        ('model = "trm:sudoku"\nsite = "middle"\n', "site is 'middle'"),
    ],
)
def test_a_wrong_recipe_is_one_sentence(tmp_path, text, message):
    (tmp_path / "r.toml").write_text(text)
    with pytest.raises(lt.errors.LooptapsError, match=message):
        options_of({}, tmp_path / "r.toml")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--controller", "taps-dg"], "Did you mean 'taps-gd'"),
        (["--device", "cuda:99"], "cannot be used here"),
        (["--rows", "10:9999"], "start < stop <= 512"),
        (["--strategy", "fixed-point:max_updates=1"], "at least"),
        (["--batch-size", "0"], "batch_size must be an integer >= 1"),
        (["--dtype", "float8"], "float8"),
    ],
)
def test_wrong_options_are_one_sentence(tmp_path, words, message):
    save_model(tiny(), tmp_path / "tiny")
    words = ["run", "--model", f"trm:{tmp_path}/tiny", "--out", str(tmp_path / "out"), *words]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, lt.errors.LooptapsError), done.output
    assert message in str(done.exception)


def tiny(**config):
    given = {"vocab_size": 11, "seq_len": 81, "hidden_size": 16, "num_heads": 2, "puzzle_emb_ndim": 0, "H_cycles": 1,
             "L_cycles": 2, "L_layers": 1}
    return TRM(TRMConfig(**given | config), torch.Generator().manual_seed(0)).eval()


@pytest.mark.parametrize(
    ("task", "config", "message"),
    [
        ("maze:generated:n=8:size=9", {}, "TRM.config.vocab_size is 11, but the task 'maze' has vocab_size 6"),
        ("sudoku", {"vocab_size": 6}, "TRM.config.vocab_size is 6, but the task 'sudoku' has vocab_size 11"),
        ("sudoku", {"seq_len": 64}, "TRM.config.seq_len is 64, but the task 'sudoku' has seq_len 81"),
        ("maze:generated:n=8:size=8", {"vocab_size": 6}, "TRM.config.seq_len is 81, but the task 'maze' has seq_len"),
    ],
)
def test_a_model_of_other_puzzles_is_refused_before_a_folder_is_made(tmp_path, task, config, message):
    with pytest.raises(lt.errors.InvalidUse, match=message):
        run(tiny(**config), open_task(task), lt.Standard(), out=tmp_path / "out", loops=2)
    assert not (tmp_path / "out").exists()


def test_a_model_of_any_length_takes_any_puzzle(tmp_path):
    model = tiny(seq_len=None, vocab_size=6)
    for size in (8, 9):
        task = open_task(f"maze:generated:n=4:size={size}")
        found = run(model, task, lt.Standard(), out=tmp_path / f"{size}", loops=1)
        assert len(found) == 4


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ({"strategy": "fprm"}, {"strategy": "fixed-depth"}),
        ({"strategy": "rollouts:n=2", "refill": True}, {"strategy": "rollouts:n=2"}),
    ],
    ids=["fprm-on-trm", "refilled-rollouts"],
)
def test_what_cannot_run_leaves_nothing_that_stands_in_the_corrected_ones_way(tmp_path, wrong, right):
    model, task = tiny(), TASK.select(slice(0, 4))
    with pytest.raises(lt.errors.LooptapsError, match=r"FPRM|refill"):
        run(model, task, lt.Standard(), out=tmp_path / "out", loops=2, **wrong)
    assert not (tmp_path / "out").exists()
    assert len(run(model, task, lt.Standard(), out=tmp_path / "out", loops=2, **right)) == 4


def test_refilled_rollouts_are_refused_before_anything_is_computed(tmp_path, monkeypatch):
    monkeypatch.setattr(TRM, "advance", lambda *_: pytest.fail("the model ran"))
    with pytest.raises(lt.errors.InvalidUse, match="refill serves stopping rules, but out is rollouts"):
        run(tiny(), TASK, lt.Standard(), "rollouts:n=2", out=tmp_path / "out", loops=2, refill=True)


def test_run_says_how_often_any_rollout_is_right(tmp_path):
    save_model(tiny(), tmp_path / "tiny")
    words = ["run", "--model", f"trm:{tmp_path}/tiny", "--limit", "4", "--loops", "1", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, [*words, "--strategy", "rollouts:n=2"])
    assert "of 4 puzzles, any of its rollouts 0.0 %, mean eta" in done.output
    plain = CliRunner().invoke(app, [*words[:-1], str(tmp_path / "plain")])
    assert "of 4 puzzles, mean eta" in plain.output


def test_running_needs_neither_pyarrow_nor_matplotlib_nor_jinja2(tmp_path):
    """And no numba where the task is made of arrays: what a bare machine with a GPU has is enough."""
    code = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyarrow", "matplotlib", "jinja2", "numba", "transformers"):
            raise ImportError(name)
sys.meta_path.insert(0, Missing())
import numpy as np, torch
import looptaps as lt
from looptaps.evaluation.compare import compare
from looptaps.evaluation.measure import Policy
from looptaps.evaluation.runner import run_many
from looptaps.models.trm import TRM, TRMConfig
from looptaps.tasks.base import Task
model = TRM(TRMConfig(vocab_size=11, seq_len=16, hidden_size=8, num_heads=2, puzzle_emb_ndim=0, mlp_t=True, L_layers=1,
            pos_encodings="none", H_cycles=1, L_cycles=1, token_inner=8, channel_inner=8), torch.Generator())
rows = np.ones((6, 16), np.uint8)
task = Task(name="sudoku", vocab_size=11, inputs=rows, labels=rows, difficulty={{}}, origin="arrays")
runs = run_many(model.eval(), task, {{"unit": Policy(lt.Standard()), "gd": Policy(lt.TapsGD())}}, out={str(tmp_path)!r},
                loops=2, constants=True, trace=2, dtype="bfloat16")
print(compare(runs).rows[0].name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "unit"
