"""`run` is killed with SIGKILL at twenty random points: started again, it ends with the file of a run left alone."""

import json
import multiprocessing
import os
import random
import signal
import time

import pytest
import torch

import looptaps as lt
from looptaps.evaluation.folder import SAMPLES
from looptaps.evaluation.options import RunOptions, execute
from looptaps.evaluation.records import load_run
from looptaps.models import save_model
from looptaps.models.trm import TRM, TRMConfig

KILLS = 20


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    config = TRMConfig(vocab_size=11, seq_len=81, hidden_size=16, num_heads=2, puzzle_emb_ndim=0, mlp_t=True,
                       pos_encodings="none", H_cycles=1, L_cycles=2, L_layers=1, token_inner=16, channel_inner=16)
    folder = tmp_path_factory.mktemp("model") / "tiny"
    save_model(TRM(config, torch.Generator().manual_seed(0)), folder)
    # Noise too: what a puzzle draws must not depend on where the run was cut.
    return RunOptions(model=f"trm:{folder}", controller=("taps-gd",), strategy="rollouts:n=2:inner=fixed-depth:loops=3",
                      limit=61, batch_size=4, device="cpu", threads=1, trace=3)


def started(server, options, out):
    process = server.Process(target=execute, args=(options, out))
    process.start()
    return process


def test_a_killed_run_ends_with_the_file_of_the_uninterrupted_one(options, tmp_path):
    (whole,) = execute(options, tmp_path / "whole").values()
    expected = (tmp_path / "whole" / SAMPLES).read_bytes()
    assert expected.count(b"\n") == 61
    server = multiprocessing.get_context("forkserver")  # children begin with torch imported, and nothing run
    server.set_forkserver_preload(["looptaps.evaluation.options", "looptaps.models.trm", "looptaps.tasks.sudoku"])
    began = time.perf_counter()
    process = started(server, options, tmp_path / "timed")  # the first also waits for the server
    process.join()
    began = time.perf_counter()
    process = started(server, options, tmp_path / "timed-again")
    process.join()
    usual = time.perf_counter() - began
    assert process.exitcode == 0
    assert (tmp_path / "timed" / SAMPLES).read_bytes() == expected, "another process writes the same file"

    chance, cut = random.Random(0), []
    for number in range(KILLS):
        out = tmp_path / f"killed-{number}"
        process = started(server, options, out)
        # As soon as there is a folder, so that kills fall on writing rather than on loading.
        while not out.exists() and process.is_alive():
            time.sleep(0.0005)
        time.sleep(chance.uniform(0.0, 0.6 * usual))
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
        process.join()
        left = (out / SAMPLES).read_bytes() if (out / SAMPLES).exists() else b""
        assert expected.startswith(left), "what was written before the kill is not what the run writes"
        cut.append(len(left))
        (resumed,) = execute(options, out).values()
        assert (out / SAMPLES).read_bytes() == expected, f"kill {number}, after {len(left)} bytes"
        assert resumed.meta["counts"] == whole.meta["counts"]
        assert len(resumed.meta["timing"]["batch_seconds"]) == 16, "one time for each batch, not two for any"
        assert (resumed.traces["boards"] == whole.traces["boards"]).all()
    assert sum(0 < size < len(expected) for size in cut) >= KILLS // 4, f"hardly any kill fell on writing: {cut}"
    assert len(set(cut)) > 3


def test_a_half_line_and_a_half_batch_are_cut_off(options, tmp_path):
    execute(options, tmp_path / "run")
    whole = (tmp_path / "run" / SAMPLES).read_bytes()
    meta = json.loads((tmp_path / "run" / "run.json").read_text())
    unfinished = json.dumps({**meta, "finished": None})
    for keep in (0, 5, len(whole) // 2, len(whole) - 1):
        (tmp_path / "run" / "run.json").write_text(unfinished)
        (tmp_path / "run" / SAMPLES).write_bytes(whole[:keep])
        with pytest.raises(lt.errors.InvalidFile, match="Start the same"):
            load_run(tmp_path / "run")
        execute(options, tmp_path / "run")
        assert (tmp_path / "run" / SAMPLES).read_bytes() == whole
