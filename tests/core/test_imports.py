"""Imports go one way, heavy packages load only where they are used, and every error is a builtin too."""

import ast
import builtins
import subprocess
import sys
from pathlib import Path

import pytest

import looptaps
from looptaps import errors

ROOT = Path(looptaps.__file__).parent

# A layer may import itself and those before it.
LAYERS = [
    {"errors"},
    {"state"},
    {"registry"},
    {"specs"},
    {"kernels"},
    {"controllers"},
    {"loop"},
    {"strategies"},
    {"models", "hf", "tasks"},
    {"train", "evaluation", "theory"},
    {"report", "integrations", "testing"},
    {"cli"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}


def _imported(path):
    """The first part below `looptaps` of every import that runs, wherever in the file it stands."""
    tree = ast.parse(path.read_text())
    typing_only = {id(node) for test in ast.walk(tree) if isinstance(test, ast.If)
                   and ast.unparse(test.test).endswith("TYPE_CHECKING") for node in ast.walk(test)}
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith("looptaps."):
                yield name.split(".")[1]


def _layer(path):
    part = path.relative_to(ROOT).parts[0]
    return part.removesuffix(".py")


def test_imports_go_one_way():
    wrong = []
    for path in ROOT.rglob("*.py"):
        own = _layer(path)
        if own in ("__init__", "__main__"):
            continue
        assert own in RANK, f"{path.relative_to(ROOT)} is in no layer"
        for name in _imported(path):
            if name != own and RANK.get(name, -1) >= RANK[own]:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong, "\n".join(wrong)


def _modules_after(code):
    run = subprocess.run([sys.executable, "-c", f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"],
                         capture_output=True, text=True, check=True)
    return set(run.stdout.splitlines())


def test_importing_the_package_loads_no_torch():
    loaded = _modules_after("import looptaps as lt; lt.__version__; dir(lt)")
    assert not loaded & {"torch", "numpy", "scipy", "numba", "pydantic", "rich", "typer"}


def test_using_the_core_loads_no_heavy_package():
    loaded = _modules_after(
        "import looptaps as lt, torch\n"
        "lt.iterate(lambda x: 0.5 * x, torch.ones(2, 3, 4), lt.Control(lt.spec('taps-adam@trm')), 4, trace=True)\n"
        "lt.theory.ema_weights(0.5, 3); lt.testing.updates(2, 2, 2, 2); lt.Stepper(lt.TapsGD())"
    )
    heavy = {"transformers", "lm_eval", "triton", "matplotlib", "vllm", "numba", "pyarrow", "accelerate", "jinja2",
             "pydantic", "scipy"}
    assert not loaded & heavy


def test_public_names_resolve_and_unknown_ones_do_not():
    for name in looptaps.__all__:
        assert getattr(looptaps, name) is not None
        assert name in dir(looptaps)
    with pytest.raises(AttributeError, match="no attribute 'TapsSGD'"):
        looptaps.TapsSGD  # noqa: B018


def test_all_controllers_strategies_and_core_names_are_at_the_top():
    from looptaps.specs import CONTROLLERS
    from looptaps.strategies import STRATEGIES

    registered = {registry[name].__name__ for registry in (CONTROLLERS, STRATEGIES) for name in registry
                  if registry.target(name).startswith("looptaps.")}
    others = {"Sample", "Token", "Segments", "Control", "Decision", "Stepper", "iterate", "Result", "Status",
              "load_model", "spec", "spec_text", "BalancePenalty", "errors", "hf", "theory", "testing"}
    assert registered | others <= set(looptaps.__all__)


def test_every_error_is_also_the_builtin_that_a_caller_would_catch():
    own = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.LooptapsError)]
    assert len(own) >= 7
    for cls in own:
        if cls is not errors.LooptapsError:
            bases = [base for base in cls.__mro__ if base.__module__ == "builtins"]
            assert any(base not in (Exception, BaseException, object) for base in bases), cls
            assert getattr(builtins, bases[0].__name__) is bases[0]


def test_an_unknown_name_prints_as_a_sentence():
    assert str(errors.unknown("rule", "x", ["xy"])) == "Unknown rule 'x'. Did you mean 'xy'? Known: xy."
