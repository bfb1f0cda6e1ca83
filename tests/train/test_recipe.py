"""Recipes: strict, with one clear sentence for each mistake."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from looptaps.errors import InvalidFile, InvalidUse, InvalidValue, LooptapsError, UnknownName
from looptaps.train import Trainer, load_recipe, parse_recipe
from looptaps.train.recipe import recipe_from

EXTRA = "extra = [[0, 6], [500, 2]]"
RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("train_*.toml"))


def _is_of_language(path: Path) -> bool:
    """A language recipe has no kind of model to choose and no puzzles; `looptaps lm train` reads it."""
    return "kind" not in tomllib.loads(path.read_text())["model"]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_shipped_recipe_is_read_and_makes_a_model(path: Path) -> None:
    import torch

    from looptaps.train.data import make_data
    from looptaps.train.models import build_model

    if _is_of_language(path):
        from looptaps.train.language import build_ouro
        from looptaps.train.language_recipe import load_language_recipe

        language = load_language_recipe(path)
        model = build_ouro(language.model, language.seed)
        assert model.config.total_ut_steps <= language.steps.most
        assert sum(p.numel() for p in model.parameters()) < 2_000_000
        return
    recipe = load_recipe(path)
    small = recipe.model_copy(update={"validation": recipe.validation.model_copy(update={"puzzles": 1})})
    stream = make_data(small).stream
    model = build_model(recipe, stream.seq_len, stream.vocab_size, torch.Generator().manual_seed(0))
    assert sum(p.numel() for p in model.parameters()) < 2_000_000


def test_values_round_trip_and_the_digest_is_of_the_meaning(tiny_text: str) -> None:
    recipe = parse_recipe(tiny_text)
    assert recipe_from(recipe.model_dump(mode="json")) == recipe
    assert parse_recipe(tiny_text + "\n# a comment\n").digest == recipe.digest
    assert parse_recipe(tiny_text.replace("3e-3", "0.003")).digest == recipe.digest
    assert parse_recipe(tiny_text.replace("3e-3", "4e-3")).digest != recipe.digest


@pytest.mark.parametrize(
    ("old", "new", "kind", "message"),
    [
        ("warmup = 5", "warmpu = 5", UnknownName, r"key of \[schedule\].*'warmpu'. Did you mean 'warmup'"),
        ("batch_size", "batchsize", UnknownName, "top-level key.*'batchsize'. Did you mean 'batch_size'"),
        ("steps = 20", "", InvalidValue, "lacks schedule.steps"),
        ("steps = 20", "steps = '20'", InvalidValue, "schedule.steps is '20'"),
        ("steps = 20", "steps = 0", InvalidValue, "schedule.steps is 0"),
        ("lr = 3e-3", "lr = -1.0", InvalidValue, "optimizer.lr is -1.0"),
        ("lr = 3e-3", "lr = nan", InvalidValue, "optimizer.lr is nan"),
        ("lr = 3e-3", "kind = 'sgd'", InvalidValue, "optimizer.kind is 'sgd'"),
        ("[halting]", "[loss]\npenalty_mu = 1e-3\n[halting]", InvalidValue, r"needs a \[control\] section"),
        ("[halting]", "[halting", InvalidFile, "is not TOML"),
        *((EXTRA, f"extra = {value}", InvalidValue, r"data\.extra is .*must be a whole number >= 0, or \[from sample")
          for value in ("[[5]]", "[5]", "[[0, 1, 2]]", "[[0, 1.5]]", "'6'", "true", "0.5")),
    ],
)
def test_a_mistake_is_named(tiny_text: str, old: str, new: str, kind: type[LooptapsError], message: str) -> None:
    assert old in tiny_text
    with pytest.raises(kind, match=message):
        parse_recipe(tiny_text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "kind", "message"),
    [
        ('kind = "trm"', 'kind = "tmr"', UnknownName, "Did you mean 'trm'"),
        ("hidden_size = 32", "hiden_size = 32", UnknownName, "Did you mean 'hidden_size'"),
        ("hidden_size = 32", "hidden_size = 32, seq_len = 81", InvalidUse, "seq_len is 81, but the task has 16"),
        ("[data]", "[data]\ntask = 'sudoko'", UnknownName, "Did you mean 'sudoku'"),
        ("pool = 64", "poool = 64", UnknownName, "Did you mean 'pool'"),
        ("[halting]", "[control]\ncontroller = 'taps-gf'\n[halting]", UnknownName, "Did you mean 'taps-gd'"),
        *(("box = [2, 2]", f"box = {value}", InvalidValue, "SudokuStreamConfig.box must be two whole numbers")
          for value in ("[2]", "'3x3'", "'33'", "3", "[2, 3, 4]", "[2.0, 2]", "[true, 2]")),
        ("box = [2, 2]", "box = [2, 9]", InvalidValue, "must be 2, 3 or 4"),
        (EXTRA, "extra = [[1, 6]]", InvalidValue, r"SudokuStreamConfig\.extra must be .*rising from sample 0"),
        (EXTRA, "extra = []", InvalidValue, r"SudokuStreamConfig\.extra must be .*rising from sample 0"),
        *((f"options = {{box = [2, 2], pool = 64}}\n{EXTRA}",
           f"task = 'maze'\noptions = {{size = 8, pool = 8, shortest = {value}}}", InvalidValue,
           r"MazeStreamConfig\.shortest must be moves >= 1, or \(from sample, moves\) pairs")
          for value in ("[[0]]", "[3]", "'3'", "2.5", "[[0, 2.5]]", "[[0, 0]]")),
    ],
)
def test_a_mistake_beyond_the_form_is_named_before_anything_is_written(
    tmp_path: Path, tiny_text: str, old: str, new: str, kind: type[LooptapsError], message: str
) -> None:
    assert old in tiny_text
    with pytest.raises(kind, match=message):
        Trainer(parse_recipe(tiny_text.replace(old, new, 1)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["looped", "fprm"])
def test_outer_control_of_a_model_with_one_state_is_refused_before_anything_is_written(
    tmp_path: Path, tiny_text: str, kind: str
) -> None:
    text = tiny_text.replace('"trm"', f'"{kind}"').replace(", H_cycles = 2, L_cycles = 2", "")
    text = text.replace('tracker = "none"\n', "") + "[control]\ncontroller = 'taps-gd'\nsite = 'outer'\n"
    with pytest.raises(InvalidValue, match=r"Control\.site must be 'inner', but is 'outer'.* has one state only"):
        Trainer(parse_recipe(text), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_missing_file_is_named() -> None:
    with pytest.raises(InvalidFile, match=r"nowhere\.toml cannot be read"):
        load_recipe("nowhere.toml")


def test_a_tracker_that_is_not_installed_is_an_error(tmp_path: Path, tiny_text: str, monkeypatch) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="'wandb' is not installed"):
        Trainer(parse_recipe(tiny_text.replace('tracker = "none"', 'tracker = "wandb"')), tmp_path / "run")


ROW = ("53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79",
       "534678912672195348198342567859761423426853791713924856961537284287419635345286179")


@pytest.mark.parametrize(
    ("question", "answer", "words"),
    [
        ("." * 81, ROW[1], "several solutions"),
        (ROW[0][:-1], ROW[1], "line 3: the question must have 81 characters, but has 80"),
        (ROW[0].replace("5", "x", 1), ROW[1], "line 3: character 1 of the question is 'x'"),
        # Every clue stands, but one cell is wrong.
        (ROW[0], ROW[1][:2] + "6" + ROW[1][3:], "another solution than its answer"),
    ],
)
def test_a_row_that_would_teach_a_wrong_answer_is_named_with_its_file(
    tmp_path: Path, tiny_text: str, question: str, answer: str, words: str
) -> None:
    rows = "".join(f"{q},{a}\n" for q, a in (ROW, (question, answer)))
    (tmp_path / "rows.csv").write_text("question,answer\n" + rows)
    recipe = parse_recipe(tiny_text.replace("box = [2, 2], ", "").replace("[data]", "[data]\nrows_held_out = 0"))
    with pytest.raises(LooptapsError, match=rf"rows\.csv.*{words}"):
        Trainer(recipe, tmp_path / "run", data=[tmp_path / "rows.csv"])
    assert not (tmp_path / "run").exists()
