"""GPQA and MMLU-Pro from local files: lm-eval's own prompts and scoring, on rows made up here."""

import json
import random
from pathlib import Path

import pytest
from lm_eval.tasks._yaml_loader import load_yaml

import looptaps as lt
from looptaps.integrations.lm_eval_tasks import write_tasks

QUESTIONS = [{"Question": f"What is {n} + {n}?", "Correct Answer": f"{2 * n} ", "Incorrect Answer 1": f"{n}",
              "Incorrect Answer 2": f" {3 * n}  [title] or so", "Incorrect Answer 3": "none", "Subdomain": "Sums"}
             for n in range(2, 14)]


def pro(category, count, worked):
    """Rows of MMLU-Pro; the answer to number n is the letter at n."""
    rows = []
    for n in range(count):
        letter = "ABCDEFGHIJ"[n]
        why = f"A: Let's think step by step. It is number {n}. The answer is ({letter})."
        rows.append({"question_id": n, "question": f"Which of {category} is number {n}?", "answer": letter,
                     "answer_index": n, "options": [f" {category} {k}" for k in range(10)],
                     "cot_content": why if worked else "", "category": category, "src": "made up"})
    return rows


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def folder(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    write(data / "gpqa_main.jsonl", QUESTIONS)
    write(data / "mmlu_pro_test.jsonl", [*pro("law", 3, False), *pro("computer science", 1, False)])
    write(data / "mmlu_pro_validation.jsonl", [*pro("computer science", 5, True), *pro("law", 5, True)])
    return data


def load(folder, out, names):
    from lm_eval.tasks import TaskManager

    write_tasks(folder, out)
    return TaskManager(include_path=str(out), include_defaults=False).load(names)["tasks"]


def answering(reply):
    """A model for lm-eval: `reply` maps a request's arguments to its answer."""
    from lm_eval.api.model import LM

    class Reply(LM):
        def loglikelihood(self, requests):
            return [(reply(*request.args), False) for request in requests]

        def generate_until(self, requests):
            return [reply(*request.args) for request in requests]

        def loglikelihood_rolling(self, requests):
            raise NotImplementedError

    return Reply()


def scores(model, folder, out, name):
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    write_tasks(folder, out)
    manager = TaskManager(include_path=str(out), include_defaults=False)
    return simple_evaluate(model=model, tasks=[name], task_manager=manager, bootstrap_iters=0)


def test_gpqa_prompts_and_choices_are_lm_evals_own(folder, tmp_path):
    from lm_eval.tasks.gpqa.zeroshot import utils

    own = load_yaml(Path(utils.__file__).with_name("_gpqa_zeroshot_yaml"), resolve_func=False)
    task = load(folder, tmp_path / "tasks", ["taps_gpqa_main"])["taps_gpqa_main"]
    for field in ("doc_to_text", "doc_to_choice", "doc_to_target", "num_fewshot", "output_type"):
        assert getattr(task.config, field) == own[field]
    rows = list(task.test_docs())
    for row, given in zip(rows, QUESTIONS, strict=True):
        choices = [row[f"choice{n}"] for n in (1, 2, 3, 4)]
        assert sorted(choices) == sorted(utils.preprocess(given[name]) for name in given if "Answer" in name)
        assert choices["ABCD".index(row["answer"][1])] == given["Correct Answer"].strip()
    assert task.doc_to_text(rows[0]).startswith("What is the correct answer to this question:What is 2 + 2?\nChoices:")
    assert len({row["answer"] for row in rows}) > 2  # shuffled


def test_gpqas_order_of_choices_depends_on_the_question_alone(folder, tmp_path):
    first = {row["Question"]: row["answer"]
             for row in load(folder, tmp_path / "a", ["taps_gpqa_main"])["taps_gpqa_main"].test_docs()}
    random.seed(5)
    (tmp_path / "fewer").mkdir()
    write(tmp_path / "fewer" / "gpqa_main.jsonl", QUESTIONS[::-2])
    again = load(tmp_path / "fewer", tmp_path / "b", ["taps_gpqa_main"])["taps_gpqa_main"].test_docs()
    assert all(first[row["Question"]] == row["answer"] for row in again)


def test_gpqa_is_scored_by_the_likelihood_of_the_label(folder, tmp_path):
    def knows_small_sums(context, label):
        number = int(context.split("What is ")[2].split(" +")[0]) if "What is " in context else 0
        return 0.0 if number < 8 and f"{label.strip()} {2 * number}\n" in context else -1.0 - ord(label.strip()[1])

    run = scores(answering(knows_small_sums), folder, tmp_path / "tasks", "taps_gpqa_main")
    rows = load(folder, tmp_path / "tasks", ["taps_gpqa_main"])["taps_gpqa_main"].test_docs()
    right = sum(n < 6 or row["answer"] == "(A)" for n, row in enumerate(rows))  # (A) is what it says else
    assert run["results"]["taps_gpqa_main"]["acc,none"] == pytest.approx(right / len(QUESTIONS))


def test_mmlu_pro_prompts_are_lm_evals_own_with_examples_of_the_subject(folder, tmp_path):
    from lm_eval.tasks.mmlu_pro import utils

    own = load_yaml(Path(utils.__file__).with_name("_default_template_yaml"), resolve_func=False)
    for subject in ("law", "computer science"):
        name = f"taps_mmlu_pro_{subject.replace(' ', '_')}"
        task = load(folder, tmp_path / "tasks", [name])[name]
        for field in ("doc_to_target", "num_fewshot", "output_type", "generation_kwargs", "metric_list", "filter_list"):
            assert getattr(task.config, field) == own[field]
        rows = list(task.test_docs())
        assert {row["category"] for row in rows} == {subject}
        description = load_yaml(Path(utils.__file__).with_name(f"mmlu_pro_{subject.replace(' ', '_')}.yaml"),
                                resolve_func=False)["description"]
        shots = "".join(utils.format_cot_example(row) for row in pro(subject, 5, True))
        expected = description + shots + utils.doc_to_text(rows[0])
        assert task.fewshot_context(rows[0], 5) == expected
        turns = task.fewshot_context(rows[0], 5, apply_chat_template=True, fewshot_as_multiturn=True,
                                     chat_template=lambda turns, **_: turns)
        assert [turn["role"] for turn in turns] == ["system", *["user", "assistant"] * 5, "user"]


def test_mmlu_pro_is_scored_by_the_letter_and_weighted_by_questions(folder, tmp_path):
    def knows_law(context, options):
        question = context.rsplit("Which of ", 1)[1]
        number = int(question.split("number ")[1].split("?")[0])
        return f"Well, the answer is ({'ABCDEFGHIJ'[number]})." if question.startswith("law") and number else "B"

    run = scores(answering(knows_law), folder, tmp_path / "tasks", "taps_mmlu_pro")
    assert run["results"]["taps_mmlu_pro_law"]["exact_match,custom-extract"] == pytest.approx(2 / 3)
    assert run["results"]["taps_mmlu_pro_computer_science"]["exact_match,custom-extract"] == 0.0
    assert run["groups"]["taps_mmlu_pro"]["exact_match,custom-extract"] == pytest.approx(2 / 4)
    assert run["n-shot"]["taps_mmlu_pro_law"] == 5


def test_mmlu_pro_without_worked_examples_or_of_an_unknown_subject_is_refused(folder, tmp_path):
    assert "2 subjects, 5 examples each from mmlu_pro_val" in write_tasks(folder, tmp_path)["taps_mmlu_pro"]
    write(folder / "mmlu_pro_test.jsonl", pro("cookery", 1, False))
    with pytest.raises(lt.errors.InvalidValue, match="'cookery'"):
        write_tasks(folder, tmp_path / "a")
    (folder / "mmlu_pro_validation.jsonl").unlink()
    with pytest.raises(lt.errors.InvalidFile, match="validation split"):
        write_tasks(folder, tmp_path / "a")
    assert not (tmp_path / "a").exists()
