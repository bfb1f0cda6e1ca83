"""`looptaps`: a table of verbs, of which only the one that was asked for is imported.

So `looptaps --help` costs next to nothing, and no verb pays for another's dependencies. A verb is a `typer.Typer` named
`app` in a module of this package; to add one, write the file and its line in `VERBS`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from looptaps import __version__
from looptaps.errors import LooptapsError


class Verb(NamedTuple):
    """Where a verb lives ("package.module:attribute") and the line that `--help` shows for it."""

    target: str
    help: str


VERBS = {
    "ls": Verb("looptaps.cli.ls:app", "List controllers, strategies, models or tasks."),
    "data": Verb("looptaps.cli.data:app", "Build datasets in the released format."),
    "train": Verb("looptaps.cli.train:app", "Train a model by a recipe."),
    "run": Verb("looptaps.cli.run:app", "Measure policies on puzzles, into folders of records."),
    "compare": Verb("looptaps.cli.compare:app", "Put runs side by side: differences, intervals, speedups, a verdict."),
    "report": Verb("looptaps.cli.report:app", "Make one page of runs, with figures and a player of boards."),
    "bench": Verb("looptaps.cli.bench:app", "Time controllers against the unit step, in turns."),
    "reproduce": Verb("looptaps.cli.reproduce:app", "Run a table of the paper: our numbers beside its own."),
    "demo": Verb("looptaps.cli.demo:app", "Solve Sudokus with the bundled model, every rule beside the unit step."),
    "solve": Verb("looptaps.cli.solve:app", "Solve one Sudoku or maze with a bundled model."),
    "lm": Verb("looptaps.cli.lm:app", "Language models: loop a block of SmolLM2 (demo), train a tiny Ouro (train)."),
    "toy": Verb("looptaps.cli.toy:app", "See the mechanism on a toy loop: a table, in seconds."),
}


class LazyGroup(TyperGroup):
    """A group whose verbs are stand-ins (name and help) until one of them is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        verb = VERBS.get(args[0])
        if verb is not None:
            module, attribute = verb.target.split(":")
            command = typer.main.get_command(getattr(import_module(module), attribute))
            command.name = args[0]
            self.commands[args[0]] = command
        return super().resolve_command(ctx, args)


def _stand_in() -> None:
    """Replaced by the real command before it could run."""


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"looptaps {__version__}")
        raise typer.Exit


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
for _name, _verb in VERBS.items():
    app.command(_name, help=_verb.help)(_stand_in)


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Control how far each step of a looped transformer goes."""


def main() -> None:
    """Run the command line; an error of ours is one sentence and exit code 2, without a traceback."""
    try:
        app(prog_name="looptaps")
    except LooptapsError as error:
        from rich.console import Console
        from rich.text import Text

        Console(stderr=True, soft_wrap=True).print(Text(str(error), style="red"))
        sys.exit(2)
