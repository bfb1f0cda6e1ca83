"""`looptaps ls` says what there is, and how to name it."""

import re

import pytest
from typer.testing import CliRunner

from looptaps.cli.ls import describe, registry
from looptaps.cli.main import app
from looptaps.models.bundled import bundled_models


@pytest.fixture
def ls(monkeypatch):
    """ls(kind): what is shown in a wide terminal."""

    def show(kind):
        done = CliRunner().invoke(app, ["ls", kind], env={"COLUMNS": "240", "NO_COLOR": "1"})
        assert done.exit_code == 0, done.output
        return done.output

    return show


def test_models_are_listed_with_their_own_fields_and_those_in_the_package(ls):
    shown = ls("models")
    assert re.search(r"^trm +z_L .* H_cycles=3 L_cycles=6 L_layers=2 *$", shown, re.MULTILINE)
    assert re.search(r"^hrm +.* H_layers=4 L_layers=4 *$", shown, re.MULTILINE)
    for name in bundled_models():
        assert re.search(rf"^{name} +\w+ with [\d,]+ parameters for .* \d\.\d MB *$", shown, re.MULTILINE)


def test_tasks_are_listed_with_what_opens_them(ls):
    shown = ls("tasks")
    for name, sources in (("sudoku", '"generated:n=4096:seed=0:box=3x3:extra=0", a csv file, or a folder'),
                          ("maze", '"generated:n=1000:seed=0:size=30:min_path=109", or a folder')):
        assert re.search(rf"^{name} .*{sources}", shown, re.MULTILINE)


@pytest.mark.parametrize("kind", ["controllers", "strategies", "models", "tasks"])
def test_nothing_of_ours_is_listed_without_a_description(kind):
    names = registry(kind)
    for name in names:
        about = describe(names.target(name))
        assert about.line, name
        assert about.fields or name == "standard", name
