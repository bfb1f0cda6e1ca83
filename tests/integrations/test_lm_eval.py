"""`taps-eval`: lm-eval with our models, the same scores in every batch, eta-bar in the record."""

import json
import sys

import pytest

import looptaps as lt
from looptaps.integrations.lm_eval import TapsHFLM, main, parse_layers
from looptaps.integrations.lm_eval_tasks import write_tasks

LOOP = {"controller": "taps-adam@blocks", "layers": "1-2", "loops": 3}


def evaluate(model, tasks, names, **options):
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    return simple_evaluate(model=model, tasks=names, task_manager=manager, bootstrap_iters=0, **options)


def answers(results, name):
    """Per question: the log-likelihoods of its choices, or the generated text."""
    samples = sorted(results["samples"][name], key=lambda sample: sample["doc_id"])
    return [[float(score[0]) for score in sample["filtered_resps"]] for sample in samples]


def taps(saved, batch_size, **options):
    return TapsHFLM(pretrained=str(saved), device="cpu", dtype="float32", batch_size=batch_size, **options)


@pytest.fixture(scope="module")
def untouched(saved, tasks):
    from lm_eval.models.huggingface import HFLM

    lm = HFLM(pretrained=str(saved), device="cpu", dtype="float32", batch_size=4)
    return evaluate(lm, tasks, ["taps_arc_challenge"])


def test_an_untouched_model_scores_as_in_lm_evals_own_type(saved, tasks, untouched):
    own = evaluate(taps(saved, 4, controller="standard"), tasks, ["taps_arc_challenge"])
    assert own["results"] == untouched["results"]
    assert answers(own, "taps_arc_challenge") == answers(untouched, "taps_arc_challenge")
    assert own["config"]["taps"] is None


@pytest.mark.parametrize("scope", ["sequence", "token"])
def test_batch_size_changes_no_score(saved, tasks, untouched, scope):
    runs = [evaluate(taps(saved, size, scope=scope, **LOOP), tasks, ["taps_arc_challenge"]) for size in (1, 8)]
    one, eight = (answers(run, "taps_arc_challenge") for run in runs)
    worst = max(abs(a - b) for row, other in zip(one, eight) for a, b in zip(row, other))
    assert worst < 2e-4  # sums over some hundred tokens in another order; unmasked padding would give 1e-2
    assert runs[0]["results"] == runs[1]["results"]
    assert answers(runs[0], "taps_arc_challenge") != answers(untouched, "taps_arc_challenge")
    bars = [run["config"]["taps"]["eta_bar"] for run in runs]
    assert 1.0 < bars[0] < 1.1334
    assert bars[0] == pytest.approx(bars[1], abs=1e-6)


def test_generation_is_the_same_in_every_batch(saved, tasks):
    texts = []
    for size in (1, 3):
        run = evaluate(taps(saved, size, scope="token", **LOOP), tasks, ["taps_gsm8k_cot"],
                       gen_kwargs={"max_gen_toks": 8})
        texts.append([sample["resps"] for sample in sorted(run["samples"]["taps_gsm8k_cot"],
                                                           key=lambda sample: (sample["doc_id"], sample["filter"]))])
    assert texts[0] == texts[1]


def test_the_command_writes_eta_bar_into_results_json(saved, tasks, tmp_path, monkeypatch):
    arguments = f"pretrained={saved},controller=taps-bb@blocks:rho=0.2,layers=1-2,loops=3,scope=token,dtype=float32"
    monkeypatch.setattr(sys, "argv", [
        "taps-eval", "run", "--model", "taps-hf", "--model_args", arguments, "--tasks", "taps_mmlu", "--include_path",
        str(tasks), "--device", "cpu", "--batch_size", "4", "--limit", "2", "--output_path", str(tmp_path)])
    main()
    record = json.loads(next(tmp_path.rglob("results*.json")).read_text())["config"]["taps"]
    assert record["layers"] == [1, 2]
    assert record["control"]["controller"] == f"taps-bb:rho=0.2:warmup=1:gain={1 / 3!r}"
    assert record["eta_stages"][0] == 1.0
    assert record["eta_bar"] == pytest.approx(sum(record["eta_stages"]) / 3)


def test_our_models_with_their_own_loop_are_scored(tasks, tokenizer, tmp_path):
    model = lt.hf.OuroForCausalLM(lt.hf.OuroConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=1024, pad_token_id=0, bos_token_id=None, eos_token_id=1))
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    from lm_eval.api.registry import get_model

    from looptaps.integrations.lm_eval import register

    register()
    register()
    for name in ("taps-hf", "taps-ouro", "taps-huginn"):
        assert get_model(name) is TapsHFLM
    run = evaluate(taps(tmp_path, 4, controller="taps-adam"), tasks, ["taps_mmlu"], limit=2)
    assert len(run["config"]["taps"]["eta_stages"]) == 4


def test_a_new_way_of_padding_is_an_error_not_a_wrong_score(saved, tasks, monkeypatch):
    lm = taps(saved, 4, **LOOP)
    monkeypatch.setattr(lm, "_noting_lengths", __import__("contextlib").nullcontext)
    with pytest.raises(lt.errors.InvalidUse, match="padding was not masked"):
        evaluate(lm, tasks, ["taps_mmlu"], limit=2)


@pytest.mark.parametrize(("options", "message"), [
    ({"controller": "taps-adan"}, "taps-adam"),
    ({"controller": "taps-adam"}, "two whole numbers"),
    ({"controller": "taps-adam", "layers": "a-b", "loops": 2}, "FIRST-LAST"),
    ({"controller": "taps-adam", "layers": "2-7", "loops": 2}, "4 layers"),
])
def test_bad_arguments_are_refused(saved, options, message):
    with pytest.raises(lt.errors.LooptapsError, match=message):
        taps(saved, 1, **options)


def test_layers_read_as_written():
    assert parse_layers("15-18") == (15, 18)
    assert parse_layers(7) == (7, 7)


def test_local_prompts_are_lm_evals_own(tasks):
    from lm_eval.tasks import TaskManager
    from lm_eval.tasks.hellaswag.utils import process_docs

    names = ["taps_hellaswag", "taps_mmlu", "taps_commonsense_qa"]
    loaded = TaskManager(include_path=str(tasks), include_defaults=False).load(names)["tasks"]
    task = loaded["taps_hellaswag"]
    rows = task.dataset["test"].add_item({**task.dataset["test"][0], "ctx_a": "A man. [header] Cut", "ctx_b": "he SITS",
                                          "endings": [" runs [title] Wait.  Then", "a", "b", "it's \"c\""]})
    for raw, processed in zip(rows, process_docs(rows)):
        assert task.doc_to_text(raw) == processed["query"]
        assert task.doc_to_choice(raw) == processed["choices"]
    mmlu = loaded["taps_mmlu"]
    prompt = mmlu.fewshot_context(mmlu.dataset["test"][0], 0)
    assert prompt.startswith("The following are multiple choice questions (with answers) about abstract algebra.\n\n")
    csqa = loaded["taps_commonsense_qa"]
    assert csqa.config.num_fewshot == 7


def test_task_writing_says_where_examples_come_from(tmp_path):
    (tmp_path / "commonsense_qa_validation.jsonl").write_text("{}\n")
    assert "from commonsense_qa_validation" in write_tasks(tmp_path, tmp_path / "a")["taps_commonsense_qa"]
    (tmp_path / "commonsense_qa_train.jsonl").write_text("{}\n")
    assert "from commonsense_qa_train" in write_tasks(tmp_path, tmp_path / "b")["taps_commonsense_qa"]
    with pytest.raises(lt.errors.InvalidFile, match="none of the benchmark files"):
        write_tasks(tmp_path / "a", tmp_path / "c")
