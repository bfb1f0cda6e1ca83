"""Names are lazy, open to other packages, and collide loudly."""

import subprocess
import sys
import textwrap

import pytest

import looptaps as lt
from looptaps.registry import Registry


def test_listing_imports_nothing_and_asking_imports_the_target():
    registry = Registry("cores", {"missing": "no_such_module:thing", "ok": "math:sqrt"})
    assert list(registry) == ["missing", "ok"]
    assert registry["ok"](4) == 2
    with pytest.raises(ModuleNotFoundError):
        registry["missing"]
    assert "ok" in registry
    assert registry.target("ok") == "math:sqrt"


def test_names_can_be_added_once():
    registry = Registry("cores", {"ok": "math:sqrt"})
    registry.add("other", "math:exp")
    registry.add("other", "math:exp")
    with pytest.raises(lt.errors.InvalidValue, match="already has 'ok'"):
        registry.add("ok", "math:exp")
    with pytest.raises(lt.errors.InvalidValue, match=r"package\.module:attribute"):
        registry.add("bad", "math.exp")


def test_unknown_names_name_the_closest_and_all():
    with pytest.raises(lt.errors.UnknownName, match=r"Unknown core 'ko'.*Known: ok"):
        Registry("cores", {"ok": "math:sqrt"})["ko"]
    with pytest.raises(lt.errors.UnknownName, match=r"Unknown strategy 'x'\. Known: \(none\)"):
        Registry("strategies", {})["x"]


def test_a_class_is_found_by_identity_as_well_as_by_name():
    registry = Registry("cores", {"alias": "looptaps:TapsGD"})
    assert registry.name_of(lt.TapsGD) == "alias"


def test_another_package_adds_a_controller_by_an_entry_point(tmp_path):
    """A third-party distribution on the path: no edit here, and `lt.spec` knows its name."""
    (tmp_path / "elsewhere.py").write_text(textwrap.dedent("""
        from dataclasses import dataclass
        from looptaps.controllers import Constant

        @dataclass(frozen=True)
        class Gentle(Constant):
            eta: float = 0.95
    """))
    info = tmp_path / "elsewhere-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[looptaps.controllers]\ngentle = elsewhere:Gentle\n")
    code = "import looptaps as lt; print(lt.spec('gentle'), lt.spec_text(lt.spec('gentle:eta=0.9')))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                         env={"PYTHONPATH": str(tmp_path), "PATH": ""})
    assert out.stdout == "Gentle(eta=0.95) gentle:eta=0.9\n"
