"""Runs of the model that is told the answers, and a page of them."""

import pytest

import looptaps as lt
from looptaps.evaluation.measure import Policy
from looptaps.evaluation.runner import run_many
from looptaps.tasks import open_task

TRACED = 24


@pytest.fixture(scope="session")
def folder(telling, tmp_path_factory):
    """Folders of runs: unit, rules, refresh intervals, outer control, an early exit, constants; 64 puzzles, 8 loops."""
    out = tmp_path_factory.mktemp("runs")
    gd = lt.spec("taps-gd")
    policies = {
        "unit": Policy(lt.Standard()), "taps-gd": Policy(gd), "taps-bb": Policy(lt.spec("taps-bb")),
        "gd-q3": Policy(lt.Control(gd, every=3)), "gd-outer": Policy(lt.Control(gd, site="outer")),
        "gd-exit": Policy(gd, "adaptive-exit"),
    }  # fmt: skip
    run_many(telling, open_task("sudoku"), policies, out=out, loops=8, limit=64, batch_size=16, trace=TRACED,
             constants=True)
    return out
