"""Recipes: complete, checked, resumable; our numbers beside the paper's; and the page says what the records say."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import looptaps as lt
from looptaps.cli.main import app
from looptaps.evaluation.recipe_record import read_record
from looptaps.evaluation.recipes import ALSO, load_recipe, recipe_names
from looptaps.evaluation.reproduce import Bench, compare_cells, pool, run_cell, run_recipe
from looptaps.models import save_model
from looptaps.models.trm import TRM, TRMConfig
from looptaps.report.reproducing import page_text

ROOT = Path(__file__).parents[2]
RECIPES, RECORDS = ROOT / "recipes", ROOT / "benchmarks" / "results"


@pytest.mark.parametrize("name", recipe_names(RECIPES))
def test_every_recipe_is_complete(name):
    recipe = load_recipe(name, RECIPES).recipe
    for cell in recipe.cell:
        full, small = cell.options(small=False), cell.options(small=True)
        assert (full is None) == (not cell.run)
        if small is not None:
            assert small.model.count(":") == 1
            assert "/" not in small.model, "the small version runs on bundled models"
            puzzles = small.limit or int(small.task.partition(":n=")[2].partition(":")[0])
            assert puzzles <= 1024
            adaptive = any("taps" in text for text in small.controller)
            assert small.constants or not adaptive, "the constants at the mean etas belong beside adaptive rules"
        for place in cell.also:
            found = ALSO.fullmatch(place)
            other = load_recipe(found["recipe"], RECIPES).recipe
            (there,) = [one for one in other.cell if one.name == found["cell"]]
            for version in (False, True):
                assert not there.left_out(version) or cell.left_out(version)


def test_every_table_and_figure_with_numbers_of_the_paper_has_a_recipe():
    """The labels of the paper, but those of its overview figure and of its protocol's description."""
    labels = {label.strip() for name in recipe_names(RECIPES)
              for label in load_recipe(name, RECIPES).recipe.paper.split(",")}
    assert labels == {
        "tab:inner-loop-main", "fig:difficulty-adaptive-compute", "fig:frequency_pareto", "tab:inner-outer-codesign",
        "tab:ouro-huginn-task-specific", "tab:intermediate-loop", "fig:codesign_loss", "fig:codesign_lr",
        "tab:codesign-training-recipe", "tab:taps-adaptive-exit", "tab:inner-outer-maze-codesign",
        "fig:inner_outer_frequency_outer", "tab:fixed-point-efficiency", "tab:parallel-sampling",
        "tab:ptrm-noise-location", "tab:ouro-task-specific", "tab:taps-acceleration-ablation", "fig:operator",
    }  # fmt: skip


def test_full_size_recipes_follow_the_papers_protocol():
    cell = load_recipe("table-main", RECIPES).recipe.cell[0]
    assert cell.subsets == 5
    assert cell.options(small=False).loops == 32
    maze = load_recipe("table-main", RECIPES).recipe.cell[1].options(small=False)
    assert (maze.loops, maze.limit) == (16, None), "the full test set"
    budgets = [cell.options(small=False).strategy for cell in load_recipe("table-parallel", RECIPES).recipe.cell]
    assert budgets == [f"rollouts:n={n}" for n in (10, 25, 50, 100)]


RECIPE = """
title = "A table"
paper = "tab:x"
says = "Rules are better."
notes = ["A note."]
{views}

[[cell]]
name = "main"
title = "Main"
claim = "better-than-unit"

[cell.run]
model = "{model}"
task = "sudoku:generated:n=24:seed=1"
controller = ["standard", "taps-gd@trm"]
loops = 4
batch_size = 8
constants = true

[cell.small]
limit = 16

[cell.numbers]
"standard" = {{accuracy = 89.67, speedup = 1.0}}
"taps-gd" = {{accuracy = 90.07, speedup = "N/R"}}
"""
SECOND = """
title = "A figure"
paper = "fig:y"
says = "By difficulty."
views = ["difficulty", "step-sizes"]
figures = ["eta", "difficulty"]

[[cell]]
name = "all"
title = "All"
also = ["table-x.main as in", "table-x.main/standard as unit"]
"""
OUTSIDE = """
title = "Big"
paper = "tab:z"
says = "Bigger is better."
[outside]
reason = "needs a GPU"
columns = ["policy", "MMLU"]
rows = [["standard", 73.65], ["taps-gd", "N/R"]]

[[outside.evaluate]]
model = "taps-ouro"
arguments = "pretrained=a/b"
controllers = ["standard", "taps-gd@blocks"]
tasks = ["taps_mmlu", "taps_gsm8k_cot"]
out = "runs/big"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("recipes")
    config = TRMConfig(vocab_size=11, seq_len=81, hidden_size=16, num_heads=2, puzzle_emb_ndim=0, mlp_t=True,
                       pos_encodings="none", H_cycles=1, L_cycles=2, L_layers=1, token_inner=16, channel_inner=16)
    save_model(TRM(config, torch.Generator().manual_seed(0)), where / "tiny")
    (where / "table-x.toml").write_text(RECIPE.format(model=f"trm:{where}/tiny", views=""))
    (where / "figure-y.toml").write_text(SECOND)
    (where / "table-z.toml").write_text(OUTSIDE)
    return where


def call(folder, out, *words):
    fixed = ["reproduce", "--recipes", str(folder), "--out", str(out), "--device", "cpu"]
    done = CliRunner().invoke(app, [*fixed, *words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def test_it_runs_everything_puts_numbers_beside_each_other_and_goes_on(folder, tmp_path):
    said = call(folder, tmp_path, "--small", "--all", "--record", str(tmp_path / "records"))
    record = read_record(tmp_path / "records" / "small" / "table-x.json")
    (table,) = record.tables
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert rows["standard"]["paper, %"] == "89.67"
    assert rows["taps-gd-trm"]["paper minus unit"] == "+0.40"
    assert rows["taps-gd-trm"]["paper's speedup"] == "N/R"
    assert rows["taps-gd-trm"]["minus constant at mean eta"].endswith("no difference")
    assert "16 puzzles" in table.caption
    assert "5,042 parameters" in table.caption
    assert record.command == "looptaps reproduce table-x --small"
    assert "Not run: needs a GPU." in said
    assert "73.65" in said
    figure = read_record(tmp_path / "records" / "small" / "figure-y.json")
    assert [table.title for table in figure.tables] == ["All: by difficulty",
                                                        "All: eta by loop, mean ± standard deviation over puzzles"]
    assert {row[0] for row in figure.tables[0].rows} >= {"in-standard", "in-taps-gd-trm"}
    assert sum(int(row[2]) for row in figure.tables[0].rows if row[0] == "in-standard") == 16, "each in one range"
    samples = sorted(tmp_path.glob("small/*/*/*/samples.jsonl"))
    assert len(samples) == 3, "the figure shows the table's runs and makes none"
    before = [path.stat().st_mtime_ns for path in samples]
    call(folder, tmp_path, "--small", "--all")
    assert [path.stat().st_mtime_ns for path in samples] == before, "what is there is not run again"


def test_the_page_says_what_the_records_say(folder, tmp_path):
    call(folder, tmp_path, "--small", "--all", "--record", str(tmp_path / "records"))
    without = page_text(folder, tmp_path / "nothing")
    assert without.count("no record yet") == 2
    text = page_text(folder, tmp_path / "records")
    assert "no record yet" not in text
    record = read_record(tmp_path / "records" / "small" / "table-x.json")
    for row in record.tables[0].rows:
        assert f"| {' | '.join(row)} |" in text
    assert "0 of 1 rules significantly better and 0 worse; best taps-gd-trm +" in text
    assert "| undecided | `looptaps reproduce table-x --small` |" in text
    assert "All small recipes together computed for 0 minutes" in text
    assert "not run: needs a GPU" in text
    values = json.loads((tmp_path / "records" / "small" / "table-x.json").read_text())
    larger = values["comparisons"]["main"]
    assert "Larger run beside it" not in text
    (tmp_path / "records" / "big.json").write_text(json.dumps(larger))
    other = tmp_path / "others"
    other.mkdir()
    (other / "table-x.toml").write_text((folder / "table-x.toml").read_text().replace(
        'title = "Main"', 'title = "Main"\nrecorded = ["big"]'))
    again = page_text(other, tmp_path / "records")
    assert "Larger run beside it: Main" in again
    assert "The recipe has been changed since." in again


def test_a_record_on_a_smaller_model_stands_beside_what_is_not_run(folder, tmp_path):
    measured = {"questions": 10, "percent": 30.0, "interval_95": [10.0, 60.0]}
    other = measured | {"percent": 40.0, "minus base": {"points": 10.0, "interval_95": [-5.0, 25.0]}}
    record = {"measured": "How.", "model": {"name": "small", "parameters": 7, "dtype": "float32"}, "commit": "abc",
              "device": {"name": "cpu"}, "finished": "2026-01-01T00:00:00Z",
              "figures": {"policies": {"base": {"arc": measured}, "gd": {"arc": other}}}}
    (tmp_path / "smaller.json").write_text(json.dumps(record))
    (tmp_path / "table-z.toml").write_text(OUTSIDE.replace(
        "[outside]", '[outside]\nrecorded = ["smaller", "lm_ouro_steps"]'))
    text = page_text(tmp_path, tmp_path)
    assert "| gd | 40.0 [10.0, 60.0]; minus base +10.00 [-5.00, +25.00] |" in text
    assert "small, 7 parameters" in text
    assert "| see the smaller model below |" in text
    (tmp_path / "smaller.json").write_text("{}")
    with pytest.raises(lt.errors.InvalidFile, match="no record of policies"):
        page_text(tmp_path, tmp_path)


def test_the_documented_page_is_up_to_date():
    """Each of its numbers comes from a record: it is what the records give, to the letter."""
    expected = page_text(RECIPES, RECORDS)
    page = ROOT / "docs" / "reproducing.md"
    assert page.read_text(encoding="utf-8") == expected, (
        "run: looptaps reproduce --record benchmarks/results --page docs/reproducing.md")


def test_subsets_are_pooled(telling, tmp_path):
    from looptaps.evaluation.runner import run
    from looptaps.tasks import open_task

    task = open_task("sudoku")
    whole = run(telling, task.select(slice(0, 40)), lt.TapsGD(), out=tmp_path / "whole", loops=4)
    parts = [run(telling, task.select(slice(a, a + 20)), lt.TapsGD(), out=tmp_path / str(a), loops=4) for a in (0, 20)]
    both = pool(parts)
    assert (both.correct == whole.correct).all()
    assert both.mean_eta == pytest.approx(whole.mean_eta)
    assert (both.ids == np.arange(40)).all()
    assert both.meta["task"]["n"] == 40
    assert len(both.meta["timing"]["batch_seconds"]) == 2
    assert pool(parts[:1]) is parts[0]


def test_the_full_version_runs_disjoint_subsets(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("looptaps.evaluation.reproduce.SUBSET", 12)
    recipes = tmp_path / "recipes"
    recipes.mkdir()
    text = (folder / "table-x.toml").read_text().replace('title = "Main"', 'title = "Main"\nsubsets = 2')
    (recipes / "table-x.toml").write_text(text)
    found = load_recipe("table-x", recipes)
    runs = run_cell(found, found.recipe.cell[0], Bench(recipes=recipes, out=tmp_path / "out", small=False))
    assert len(runs["standard"]) == 24
    files = sorted((tmp_path / "out").glob("table-x/main.*/standard/run.json"))
    metas = [json.loads(path.read_text()) for path in files]
    assert [meta["seed"] for meta in metas] == [0, 1]
    assert [meta["task"]["spec"].split()[-1] for meta in metas] == ["[0:12]", "[12:24]"]
    assert metas[0]["task"]["sha256"] != metas[1]["task"]["sha256"]


def test_every_subset_runs_the_constant_at_the_mean_eta_of_all_of_them(folder, tmp_path, monkeypatch):
    """Rules' mean etas differ from subset to subset; what stands beside a rule is one constant on all puzzles."""
    monkeypatch.setattr("looptaps.evaluation.reproduce.SUBSET", 12)
    text = (folder / "table-x.toml").read_text().replace('title = "Main"', 'title = "Main"\nsubsets = 2')
    (tmp_path / "table-x.toml").write_text(text)
    found = load_recipe("table-x", tmp_path)
    runs = run_cell(found, found.recipe.cell[0], Bench(recipes=tmp_path, out=tmp_path / "out", small=False,
                                                       overrides={"limit": 8}))
    eta = round(runs["taps-gd-trm"].mean_eta, 2)
    assert {name: len(run) for name, run in runs.items()} == {
        "standard": 16, "taps-gd-trm": 16, f"constant-eta-{eta}": 16}, "--limit holds for each subset"
    comparison, shown = compare_cells(runs, "")
    assert comparison.row("taps-gd-trm").constant == f"constant-eta-{eta}"
    assert set(shown) == set(runs)


def test_each_call_is_timed_against_its_own_unit_step(folder, tmp_path):
    """Runs of two calls in one table: the unit step is shown once, and no rule's clock is one of another call."""
    text = (folder / "table-x.toml").read_text()
    (tmp_path / "table-x.toml").write_text(text)
    outer = text.replace('name = "main"', 'name = "main"\nlabel = "outer"\nalso = ["table-x.main as inner"]').replace(
        "loops = 4", 'loops = 4\nsite = "outer"').replace('"standard" = {', '"inner-standard" = {').replace(
        '"taps-gd" = {', '"outer-taps-gd" = {')
    (tmp_path / "table-w.toml").write_text(outer)
    bench = Bench(recipes=tmp_path, out=tmp_path / "out", small=True)
    _, comparison, runs = run_recipe(load_recipe("table-w", tmp_path), bench)["main"]
    assert [row.name for row in comparison.rows if row.kind == "unit"] == ["inner-standard"]
    timing = {row.name: row.matched.timing for row in comparison.rows}
    assert timing["inner-taps-gd-trm"] == timing["outer-taps-gd-trm"] == "interleaved"
    assert "outer-standard" not in runs


def test_what_a_record_took_and_its_commit_are_those_of_the_runs(folder, tmp_path, monkeypatch):
    records = tmp_path / "records" / "small"
    call(folder, tmp_path, "--small", "--all", "--record", str(tmp_path / "records"))
    first = read_record(records / "table-x.json")
    monkeypatch.setattr("looptaps.evaluation.provenance.git_state", lambda: {"commit": "0" * 40, "dirty": True})
    call(folder, tmp_path, "--small", "--all", "--record", str(tmp_path / "records"))
    again = read_record(records / "table-x.json")
    assert again == first, "nothing was run, so nothing is new"
    runs = [json.loads(path.read_text()) for path in tmp_path.glob("small/table-x/*/*/run.json")]
    assert first.seconds == pytest.approx(sum(run["timing"]["seconds"] for run in runs), abs=0.06)
    assert first.commit == runs[0]["git"]["commit"]
    assert read_record(records / "figure-y.json").seconds == 0, "its runs are those of the table"


def test_a_figure_of_the_paper_comes_out_as_a_figure(folder, tmp_path):
    said = call(folder, tmp_path, "--small", "table-x", "figure-y")
    found = sorted(path.name for path in (tmp_path / "small" / "figure-y").iterdir())
    assert found == ["all-difficulty.pdf", "all-difficulty.svg", "all-eta.pdf", "all-eta.svg"]
    assert "Figure: " in said
    assert "all-eta.svg" in said


def test_every_command_of_a_table_that_is_not_run_here_is_listed(folder, tmp_path):
    tasks = "--include_path my-tasks --tasks taps_mmlu,taps_gsm8k_cot --output_path runs/big"
    lines = [
        "taps-eval tasks my-benchmark-files my-tasks",
        f"taps-eval run --model taps-ouro --model_args pretrained=a/b,controller=standard {tasks}/standard",
        f"taps-eval run --model taps-ouro --model_args pretrained=a/b,controller=taps-gd@blocks {tasks}/taps-gd-blocks",
        "taps-eval run --model taps-ouro --model_args pretrained=a/b,controller=constant:eta=$(jq .config.taps.eta_bar "
        f"runs/big/taps-gd-blocks/*/results_*.json) {tasks}/constant-at-taps-gd-blocks",
    ]
    assert load_recipe("table-z", folder).recipe.outside.commands() == lines
    assert "\n".join(lines) in page_text(folder, tmp_path)
    said = call(folder, tmp_path, "table-z")
    assert all(line in said for line in lines)
    assert "see the smaller model below" not in page_text(folder, tmp_path)


@pytest.mark.parametrize(("name", "models", "policies"), [("table-ouro-huginn", 2, 9), ("table-ouro-2b", 1, 9),
                                                          ("table-qwen-blocks", 3, 7)])
def test_language_model_recipes_hold_every_policy_of_the_paper_and_its_constant(name, models, policies):
    """Six rules, each with the constant at its mean eta, unit step and the paper's constants; Qwen also as it is."""
    from looptaps.integrations.lm_eval_tasks import TASKS

    outside = load_recipe(name, RECIPES).recipe.outside
    commands = [line for line in outside.commands() if line.startswith("taps-eval run")]
    base = 3 if name == "table-qwen-blocks" else 0
    assert len(commands) == models * (policies + 6) + base
    assert len({line.split("--output_path ")[1] for line in commands}) == len(commands)
    for text in ("taps_gpqa_main", "taps_mmlu_pro") if base else ("taps_mmlu", "taps_gsm8k_cot"):
        assert any(text in line for line in commands)
    tasks = {task for one in outside.evaluate for task in one.tasks}
    assert tasks <= {*TASKS, "taps_gpqa_main", "taps_mmlu_pro"}
    assert {row[0] for row in outside.rows if row[0].startswith("taps")} == {
        text.partition("@")[0] for one in outside.evaluate for text in one.controllers if text.startswith("taps")}


def test_a_record_that_nothing_makes_is_refused(folder, tmp_path):
    text = (folder / "table-x.toml").read_text()
    (tmp_path / "table-x.toml").write_text(text.replace('title = "Main"', 'title = "Main"\nrecorded = ["maze-trmm"]'))
    with pytest.raises(lt.errors.LooptapsError, match="Did you mean 'maze-trm'"):
        page_text(tmp_path, tmp_path)
    with pytest.raises(lt.errors.LooptapsError, match="Did you mean 'maze-trm'"):
        call(tmp_path, tmp_path, "table-x", "--small")


def test_the_timed_cells_have_the_unit_step_and_several_batches():
    """Decision 18: a median of one batch is none, and the unit step takes turns with the rules."""
    for name in recipe_names(RECIPES):
        for cell in load_recipe(name, RECIPES).recipe.cell:
            for small in (False, True):
                options = cell.options(small)
                if options is None:
                    continue
                if any("taps" in text for text in options.controller):
                    assert "standard" in options.controller, (name, cell.name)
                sizes = [options.limit, int(options.rows.split(":")[1]) if options.rows else None]
                generated = options.task.partition(":n=")[2].partition(":")[0]
                sizes += [int(generated)] if generated else []
                assert min([size for size in sizes if size] or [10_000]) >= 3 * options.batch_size, (name, cell.name)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('title = "A table"', 'titel = "A table"', "Field required|titel"),
        ('name = "main"', 'name = "main"\nlimt = 3', "cell.0.limt: Extra inputs"),
        ("loops = 4", "lops = 4", "run.lops|lops"),
        ("taps-gd@trm", "taps-dg@trm", "Did you mean 'taps-gd'"),
        ('says = "Rules are better."', 'says = "x"\nviews = ["difficulti"]', "Did you mean 'difficulty'"),
        ('title = "Main"', 'title = "Main"\nalso = ["table-x"]', "also of main must read"),
        ('title = "Main"', 'title = "Main"\nsubsets = 0', "subsets of main must be at least 1"),
        ("[[cell]]", '[outside]\nreason = "y"\n\n[[cell]]', "either cells to run or"),
        ("accuracy = 89.67", "acuracy = 89.67", "quantity of standard.*Did you mean 'accuracy'"),
        ('"taps-gd" = {', '"taps-dg" = {', "policy in the numbers of main.*Did you mean 'taps-gd'"),
        ("limit = 16", "skip = true\nlimmit = 16", "limmit"),
        ("limit = 16", "skip = false", "must replace fields of its run, or hold skip = true"),
        ('title = "Main"', 'title = "Main"\nclaim = "betterer"', "claim"),
        ('says = "Rules are better."', 'says = "x"\nfigures = ["etas"]', "Did you mean 'eta'"),
        ('title = "Main"', 'title = "Main"\nalso = ["table-y.main as in"]', "Unknown recipe"),
        ("title", "title = ", "is no recipe"),
    ],
)
def test_a_wrong_recipe_is_refused_with_the_place(folder, tmp_path, old, new, message):
    text = (folder / "table-x.toml").read_text()
    text = text.replace('claim = "better-than-unit"\n', "") if "claim" in new else text
    (tmp_path / "table-x.toml").write_text(text.replace(old, new, 1))
    with pytest.raises(lt.errors.LooptapsError, match=message):
        load_recipe("table-x", tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table-xx"], "Did you mean 'table-x'"),
        (["--page", "x.md"], "needs --record"),
        (["table-x", "--small", "--limit", "16", "--device", "cuda:9"], "unexpected|cannot be used here"),
    ],
)
def test_wrong_words_are_one_sentence(folder, tmp_path, words, message):
    with pytest.raises(lt.errors.LooptapsError, match=message):
        call(folder, tmp_path, *words)


def test_a_folder_without_recipes_is_named(tmp_path):
    with pytest.raises(lt.errors.InvalidFile, match="name their folder with --recipes"):
        call(tmp_path, tmp_path)


def test_training_recipes_are_no_tables():
    assert not [name for name in recipe_names(RECIPES) if name.startswith("train")]
    assert all(tomllib.loads((RECIPES / f"{name}.toml").read_text()) for name in recipe_names(RECIPES))
