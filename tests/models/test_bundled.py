"""The models in the package: whole, described by their cards, made by the recipes here, good at what they are for."""

import hashlib
import json
import re
from pathlib import Path

import pytest

import looptaps as lt
from looptaps.models import bundled_models
from looptaps.models.bundled import card_line
from looptaps.tasks import MazeTask, SudokuTask
from looptaps.train.recipe import load_recipe

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "src" / "looptaps" / "assets"
RECIPES = {"trm:sudoku": "sudoku", "looped:sudoku": "sudoku_looped", "fprm:sudoku": "sudoku_fprm", "trm:maze": "maze"}


def _card(name):
    return (ASSETS / f"{name.replace(':', '-')}.md").read_text()


def test_these_models_are_in_the_package():
    assert bundled_models() == sorted(RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_a_card_names_the_file_it_describes_and_the_recipe_that_made_it(name):
    file = ASSETS / f"{name.replace(':', '-')}.safetensors"
    assert file.stat().st_size < 4 * 2**20
    assert f"`{file.name}` sha256 {hashlib.sha256(file.read_bytes()).hexdigest()}" in _card(name)
    recipes = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", _card(name), re.DOTALL)]
    assert recipes == [load_recipe(ROOT / "recipes" / f"train_{RECIPES[name]}.toml").model_dump(mode="json")]


@pytest.mark.parametrize(
    ("name", "task", "loops", "least"),
    [
        ("trm:sudoku", SudokuTask.generated(64, seed=77), 16, 0.85),
        ("looped:sudoku", SudokuTask.generated(64, seed=77), 16, 0.80),
        ("fprm:sudoku", SudokuTask.generated(32, seed=77), 96, 0.60),
        ("trm:maze", MazeTask.generated(16, seed=77, size=14), 8, 0.70),
    ],
)
def test_a_bundled_model_solves_puzzles_it_never_saw(name, task, loops, least):
    # The floors lie about four standard errors below the long runs' accuracies.
    model = lt.load_model(name)
    (_, batch), = task.batches(len(task))
    answer = lt.FixedDepth(loops).run(model, batch, lt.Control(lt.Standard())).output
    assert (answer == batch["labels"]).all(1).double().mean() >= least


def test_cards_say_what_a_model_is_for_in_one_sentence():
    for name in RECIPES:
        assert re.match(r"\w+ with [\d,]+ parameters for (9x9 Sudoku|14x14 mazes), trained by", card_line(name))
    assert card_line("trm:none") == ""
