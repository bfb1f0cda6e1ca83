"""`looptaps ls KIND`: what there is, without importing any of it.

Descriptions and fields are read from the source of our own modules, so that listing loads no torch.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

import looptaps
from looptaps.errors import unknown
from looptaps.registry import Registry

# The one place that knows where each registry lives. These modules import nothing heavy.
REGISTRIES = {
    "controllers": "looptaps.specs:CONTROLLERS",
    "strategies": "looptaps.strategies:STRATEGIES",
    "models": "looptaps.models:MODELS",
    "tasks": "looptaps.tasks:TASKS",
}

app = typer.Typer(add_completion=False)


@app.command()
def ls(kind: Annotated[str, typer.Argument(help=f"What to list: {', '.join(REGISTRIES)}.")]) -> None:
    """List controllers, strategies, models or tasks, those of installed plug-ins included."""
    names = registry(kind)
    console = Console()
    if not list(names):
        console.print(f"There are no {kind} yet.")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("name", "what it is", "fields"):
        table.add_column(column)
    for name in names:
        about = describe(names.target(name))
        table.add_row(name, about.line, about.fields)
    console.print(table)
    if kind == "controllers":
        from looptaps.specs import PRESETS

        presets = ", ".join(f"@{preset}" for preset in PRESETS)
        console.print(f"\nA spec is name@preset:field=value, such as taps-gd:rho=0.3. Presets: {presets}.")


def registry(kind: str) -> Registry:
    """The registry of a kind; where this version has none of its own, the one of plug-ins alone."""
    if kind not in REGISTRIES:
        raise unknown("kind", kind, REGISTRIES)
    module, attribute = REGISTRIES[kind].split(":")
    try:
        found: Registry | None = getattr(import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        found = None
    return Registry(kind, {}) if found is None else found


class About(NamedTuple):
    """What a listing says about a name."""

    line: str
    fields: str


def describe(target: str) -> About:
    """The first line of the docstring and the fields with their defaults; for a plug-in, where it comes from."""
    module, attribute = target.split(":")
    package, *path = module.split(".")
    if package != "looptaps":
        return About(f"from {module}", "")
    base = Path(looptaps.__path__[0], *path)
    file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == attribute:
            line = (ast.get_docstring(node) or "").partition("\n")[0]
            return About(line, " ".join(_fields(node)))
    return About("", "")


def _fields(node: ast.ClassDef | ast.FunctionDef) -> list[str]:
    is_data = any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
    if not is_data:
        return []
    return [
        ast.unparse(line.target) + (f"={ast.unparse(line.value)}" if line.value else "")
        for line in node.body
        if isinstance(line, ast.AnnAssign)
    ]
