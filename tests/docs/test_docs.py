"""The README and the documentation do what they say: every Python block runs, and so does every looptaps command.

The blocks of a page share one namespace, in order. A block that must not run has `<!-- not run: why -->` above it.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
import types
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from looptaps.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
BLOCK = re.compile(
    r"^(?P<skip><!-- not run: [^\n]+ -->\n+)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)


class Block(NamedTuple):
    language: str
    text: str
    line: int
    skip: bool


def blocks(page: Path, language: str) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = [
        Block(m["language"], m["text"], text[: m.start("text")].count("\n"), m["skip"] is not None)
        for m in BLOCK.finditer(text)
    ]
    assert len(found) == len(re.findall(r"^```\w+$", text, re.MULTILINE)), "a block was not understood"
    return [block for block in found if block.language == language and not block.skip]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=name)
def test_python_blocks_run(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = types.ModuleType("page_" + re.sub(r"\W", "_", page.stem))  # dataclasses look their module up
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.chdir(tmp_path)
    for block in blocks(page, "python"):
        code = compile("\n" * block.line + block.text, str(page), "exec")  # tracebacks show the page's own lines
        exec(code, module.__dict__)


def commands(page: Path) -> list[str]:
    lines = [line for block in blocks(page, "sh") for line in block.text.splitlines()]
    return [line for line in lines if line.startswith("looptaps ")]


CASES = sorted({command.partition("#")[0].strip() for page in PAGES for command in commands(page)})


@pytest.mark.parametrize("command", CASES)
def test_commands_run(command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert done.exit_code == 0, done.output


def test_relative_links_of_the_readme_exist() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (ROOT / target).exists(), f"{page.name} links to {target}, which does not exist"


def test_site_builds_strictly(tmp_path: Path) -> None:
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    with contextlib.chdir(ROOT):
        config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path / "site"), strict=True)
        build(config)
    assert (tmp_path / "site" / "index.html").exists()


def test_the_toys_table_is_what_the_command_prints() -> None:
    from looptaps.cli.toy import COLUMNS, cells, lines

    table = [f"| {' | '.join(row)} |" for row in (COLUMNS, *map(cells, lines()))]
    page = (ROOT / "docs" / "start.md").read_text(encoding="utf-8").splitlines()
    missing = [row for row in table if row not in page]
    assert not missing, "\n".join(missing)
