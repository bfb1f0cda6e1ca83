"""The wheel holds the package with everything that it reads at run time, and nothing else."""

import subprocess
import zipfile
from pathlib import Path

import pytest

from looptaps.models.bundled import bundled_models

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "looptaps"


def _tracked():
    """Files of the package that git knows, or would add."""
    done = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "src/looptaps"],
                          cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    names = (Path(name).relative_to("src") for name in done.stdout.split("\0") if name)
    return {str(name) for name in names if (ROOT / "src" / name).is_file()}


def _needed():
    names = {f"looptaps/assets/{model.replace(':', '-')}{end}" for model in bundled_models()
             for end in (".safetensors", ".md")}
    kinds = ("*.csv", "*.json", "*.css", "*.js", "*.j2", "*.yaml", "*.safetensors", "py.typed")
    return names | {str(file.relative_to(PACKAGE.parent)) for kind in kinds for file in PACKAGE.rglob(kind)}


def test_no_file_that_is_read_at_run_time_is_ignored_by_git():
    # The build leaves out what git ignores.
    assert _needed() <= _tracked()
    assert {Path(name).suffix for name in _needed()} >= {".safetensors", ".md", ".csv", ".json", ".css", ".js", ".j2"}


def test_the_wheel_is_the_package_and_its_licence(tmp_path):
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="the wheel is built by hatchling, which is missing")
    built = next(wheel.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))
    with zipfile.ZipFile(built) as file:
        names = set(file.namelist())
    assert {name for name in names if name.startswith("looptaps/")} == _tracked()
    assert all(name.startswith(("looptaps/", "looptaps-")) for name in names)  # no recipes, tests or benchmarks
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert Path(built).stat().st_size < 10 * 2**20
