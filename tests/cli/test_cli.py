"""The command line: light until a verb is called, and plain about mistakes."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from importlib import import_module

import pytest
import typer
from typer.testing import CliRunner

from looptaps import __version__
from looptaps.cli.ls import REGISTRIES
from looptaps.cli.main import VERBS, app
from looptaps.cli.toy import CONSTANTS, LOOPS, RULES, lines
from looptaps.errors import LooptapsError
from looptaps.specs import CONTROLLERS

HEAVY = ("torch", "numpy", "scipy", "transformers", "numba", "matplotlib")


def looptaps(*args: str, code: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "looptaps", *args] if code is None else [sys.executable, "-c", code]
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def loaded_by(*args: str) -> set[str]:
    code = f"""
import sys
sys.argv = ["looptaps", *{args!r}]
from looptaps.cli.main import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("LOADED", *(name for name in {HEAVY!r} if name in sys.modules))
"""
    done = looptaps(code=code)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("LOADED")[2].split())


@pytest.mark.parametrize("args", [("--help",), ("--version",), ("ls", "--help"), ("ls", "controllers")])
def test_help_and_controller_list_load_nothing_heavy(args):
    assert loaded_by(*args) == set()


@pytest.mark.parametrize("kind", REGISTRIES)
def test_listing_any_kind_loads_no_torch(kind):
    assert "torch" not in loaded_by("ls", kind)


def test_help_takes_under_half_a_second_of_cpu_time():
    def cpu() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    costs = []
    for _ in range(5):
        before = cpu()
        assert looptaps("--help").returncode == 0
        costs.append(cpu() - before)
    assert min(costs) < 0.5, costs  # 0.18 to 0.24 s where this was written; the minimum, because others may be running


def test_every_verb_exists_and_is_listed():
    shown = looptaps("--help").stdout
    for name, verb in VERBS.items():
        module, attribute = verb.target.split(":")
        assert isinstance(getattr(import_module(module), attribute), typer.Typer)
        assert verb.help in shown
        assert looptaps(name, "--help").returncode == 0


def test_version():
    assert looptaps("--version").stdout == f"looptaps {__version__}\n"


def test_no_arguments_show_the_help():
    assert "Commands" in CliRunner().invoke(app, []).output


def test_ls_names_every_controller_with_its_defaults():
    shown = looptaps("ls", "controllers").stdout
    for name in CONTROLLERS:
        assert re.search(rf"^{name} ", shown, re.MULTILINE)
    assert "gamma=1.5 rho=0.275" in shown
    assert "@blocks" in shown


def test_an_error_of_ours_is_one_sentence_and_exit_code_2():
    code = """
import sys, types
from looptaps.cli import main
from looptaps import errors
import typer
verb = types.ModuleType("broken_verb"); verb.app = typer.Typer()
@verb.app.command()
def broken():
    raise errors.invalid("Thing", "rho", "a number > 0", -1, "Use [1].")
sys.modules["broken_verb"] = verb
main.VERBS["ls"] = main.Verb("broken_verb:app", "")
sys.argv = ["looptaps", "ls"]
main.main()
"""
    done = looptaps(code=code)
    assert done.returncode == 2
    assert done.stderr == "Thing.rho must be a number > 0, but is -1. Use [1].\n"
    assert issubclass(LooptapsError, Exception)


@pytest.mark.parametrize("args", [("lss",), ("ls", "nothing"), ("ls",), ("ls", "controllers", "--depth", "3")])
def test_a_wrong_call_is_exit_code_2_without_a_traceback(args):
    done = looptaps(*args)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr


def test_demo_shows_unit_constants_and_rules_and_their_matched_constants():
    found = {line.policy: line for line in lines()}
    assert set(RULES) <= set(found)
    unit = found["unit step"]
    assert unit.loops == LOOPS
    assert (unit.low, unit.high) == (1, 1)
    for name in RULES:
        assert found[name].loss < unit.loss
        assert found[name].low < 0.9
        assert found[name].high > 1.1
        assert found[name].matched is not None
    best = next(line for name, line in found.items() if name.startswith("best constant"))
    assert best.loss <= min(found[f"constant {eta:g}"].loss for eta in CONSTANTS)
    assert found["constant 1.2"].loops is None
