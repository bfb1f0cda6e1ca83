"""`looptaps ls KIND`: what there is, without importing any of it.

Descriptions and fields are read from the source of our own modules, so that listing loads no torch.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

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
    console = Console(highlight=False)
    if not list(names):
        console.print(f"There are no {kind} yet.")
        return
    rows = [(name, describe(names.target(name))) for name in names]
    console.print(_table(("name", "what it is", "opened by" if kind == "tasks" else "fields"),
                         [(name, about.line, about.fields) for name, about in rows]))
    if kind == "controllers":
        from looptaps.specs import PRESETS

        presets = ", ".join(f"@{preset}" for preset in PRESETS)
        console.print(f"\nA spec is name@preset:field=value, such as taps-gd:rho=0.3. Presets: {presets}.")
    if kind == "models":
        _bundled(console)
    if kind == "tasks":
        console.print("\nA set is task:source, such as sudoku, sudoku:test.csv or maze:generated:n=64:size=14.")


def _bundled(console: Console) -> None:
    """The models in the package, as their cards describe them."""
    from looptaps.models.bundled import bundled_file, bundled_models, card_line

    rows = [(model, card_line(model).partition(", trained by")[0], _size(bundled_file(*model.split(":", 1))))
            for model in bundled_models()]
    console.print("\nIn the package, by lt.load_model(name) and --model name:\n")
    console.print(_table(("name", "what it is", "size"), rows))


def _size(file: Path) -> str:
    return f"{file.stat().st_size / 1e6:.1f} MB"


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in header:
        # A name is what one types: it stays on one line, whatever the terminal.
        table.add_column(column, no_wrap=column == "name", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


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
    """The first line of the docstring and the fields with their defaults; for a plug-in, where it comes from.

    A model's fields are those of its own config; of a task the texts are told that its `open` takes.
    """
    module, attribute = target.split(":")
    package, *path = module.split(".")
    if package != "looptaps":
        return About(f"from {module}", "")
    base = Path(looptaps.__path__[0], *path)
    file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    nodes = {node.name: node for node in ast.parse(file.read_text(encoding="utf-8")).body
             if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    node = nodes.get(attribute)
    if node is None:
        return About("", "")
    line = (ast.get_docstring(node) or "").partition("\n")[0]
    return About(line, " ".join(_fields(node)) or _config_fields(node, nodes) or _sources(node))


def _fields(node: ast.stmt) -> list[str]:
    is_data = isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(d) for d in node.decorator_list)
    if not is_data:
        return []
    return [
        ast.unparse(line.target) + (f"={ast.unparse(line.value)}" if line.value else "")
        for line in _annotated(node)
    ]


def _config_fields(node: ast.stmt, nodes: dict[str, Any]) -> str:
    """The fields of the config that a class names by `config: ItsConfig`."""
    kinds = [ast.unparse(line.annotation) for line in _annotated(node) if ast.unparse(line.target) == "config"]
    return " ".join(field for kind in kinds if kind in nodes for field in _fields(nodes[kind]))


def _sources(node: ast.stmt) -> str:
    """What a task's `open` says about the texts that it takes."""
    for method in getattr(node, "body", []):
        if isinstance(method, ast.FunctionDef) and method.name == "open":
            return (ast.get_docstring(method) or "").partition("\n")[0].partition(": ")[2]
    return ""


def _annotated(node: ast.stmt) -> list[ast.AnnAssign]:
    return [line for line in getattr(node, "body", []) if isinstance(line, ast.AnnAssign)]
