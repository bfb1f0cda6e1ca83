"""Local, offline lm-eval tasks with the paper's protocol, for benchmark files that the user has.

| task | file(s) | shots | prompt | scoring |
|---|---|---|---|---|
| `taps_mmlu` | mmlu_validation.jsonl | 0 | standard | label log-likelihood (`acc`) |
| `taps_arc_challenge` | arc_challenge_validation.jsonl | 0 | standard | normalised (`acc_norm`) |
| `taps_hellaswag` | hellaswag_validation.jsonl | 0 | standard | normalised (`acc_norm`) |
| `taps_gsm8k_cot` | gsm8k_test.jsonl | 0, CoT | "Let's think step by step" | extracted match (`flexible-extract`) |
| `taps_commonsense_qa` | commonsense_qa_validation.jsonl, _train.jsonl | 7 | standard | label log-likelihood (`acc`) |
| `taps_gpqa_main` | gpqa_main.jsonl | 0 | standard | label log-likelihood (`acc`) |
| `taps_mmlu_pro` | mmlu_pro_test.jsonl, _validation.jsonl | 5, CoT | chat template | extracted (`custom-extract`) |

A file has one JSON object a line, with the fields of the official dataset. For GPQA these are `Question`,
`Correct Answer` and `Incorrect Answer 1` to `3`; for MMLU-Pro `question`, `options` (up to ten texts), `answer` (a
letter), `category`, and in the validation file `cot_content`.

Prompts are those of lm-eval's own tasks. The chat template is lm-eval's option `--apply_chat_template`. The paper
scores 1,000 questions of MMLU-Pro's shuffled test split and does not say which: the file holds those to be scored.
lm-eval resolves relative data paths against the working directory, so the configs are written out with absolute ones.
"""

from __future__ import annotations

import argparse
import json
from importlib.resources import files
from pathlib import Path

from looptaps.errors import InvalidFile, invalid

# Task -> the file it is scored on, and the one its examples come from.
TASKS = {
    "taps_arc_challenge": ("arc_challenge_validation.jsonl", None),
    "taps_commonsense_qa": ("commonsense_qa_validation.jsonl", "commonsense_qa_train.jsonl"),
    "taps_gpqa_main": ("gpqa_main.jsonl", None),
    "taps_gsm8k_cot": ("gsm8k_test.jsonl", None),
    "taps_hellaswag": ("hellaswag_validation.jsonl", None),
    "taps_mmlu": ("mmlu_validation.jsonl", None),
    "taps_mmlu_pro": ("mmlu_pro_test.jsonl", "mmlu_pro_validation.jsonl"),
}
SUBJECTS = ("biology", "business", "chemistry", "computer science", "economics", "engineering", "health", "history",
            "law", "math", "other", "philosophy", "physics", "psychology")


def write_tasks(data: str | Path, out: str | Path) -> dict[str, str]:
    """Write a config for every task whose data is in the folder `data`; returns task -> what it is scored on.

    Examples for CommonsenseQA come from its training split. Without that file they come from the scored file (never
    the question itself), which the task's metadata and the returned line say. Those for MMLU-Pro come from its
    validation split, which alone has worked answers.
    """
    data, out = Path(data).resolve(), Path(out)
    found = {task: names for task, names in TASKS.items() if (data / names[0]).is_file()}
    if not found:
        wanted = ", ".join(name for name, _ in TASKS.values())
        raise InvalidFile(f"{data} holds none of the benchmark files ({wanted}). Put at least one of "
                          "them there.")
    configs: dict[str, str] = {}
    lines = {}
    for task, (scored, shots) in found.items():
        lines[task] = str(data / scored)
        if task == "taps_mmlu_pro":
            made = _mmlu_pro(data / scored, data / str(shots))
            configs |= made
            lines[task] += f" ({len(made) - 1} subjects, 5 examples each from {shots})"
            continue
        text = _template(task).replace("{{DATA}}", str(data / scored))
        if shots is not None:
            there = (data / shots).is_file()
            source = shots if there else scored
            text = text.replace("{{SHOTS}}", str(data / source)).replace("{{SHOT_SPLIT}}", "shots" if there else "test")
            lines[task] += f" (7 examples from {source})"
        configs[task] = text
    out.mkdir(parents=True, exist_ok=True)
    for name, text in configs.items():
        (out / f"{name}.yaml").write_text(text)
    return lines


def _template(name: str) -> str:
    return (files(__package__) / f"{name}.yaml").read_text()


def _mmlu_pro(scored: Path, shots: Path) -> dict[str, str]:
    """The group and one task for each subject that has questions, since examples are of the question's subject."""
    if not shots.is_file():
        raise InvalidFile(f"{scored.name} needs {shots.name} beside it, from which the five worked examples of every "
                          f"subject come, but {scored.parent} has none. Put MMLU-Pro's validation split there.")
    with scored.open() as rows:
        try:
            subjects = sorted({json.loads(row)["category"] for row in rows if row.strip()})
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidFile(f"{scored}: a line is no JSON object with `category` ({type(error).__name__}). Correct "
                              "that line.") from error
    for subject in subjects:
        if subject not in SUBJECTS:
            raise invalid(scored.name, "category", f"one of {', '.join(SUBJECTS)}", subject, "These are MMLU-Pro's.")
    template = _template("taps_mmlu_pro_subject").replace("{{DATA}}", str(scored)).replace("{{SHOTS}}", str(shots))
    configs = {}
    for subject in subjects:
        field = subject.replace(" ", "_")
        name = f"taps_mmlu_pro_{field}"
        configs[name] = (template.replace("{{TASK}}", name).replace("{{FIELD}}", field)
                         .replace("{{SUBJECT}}", subject))
    configs["taps_mmlu_pro"] = _template("taps_mmlu_pro").replace("{{TASKS}}", json.dumps(list(configs)))
    return configs


def main(argv: list[str]) -> None:
    """`taps-eval tasks DATA OUT`."""
    parser = argparse.ArgumentParser("taps-eval tasks", description="Write lm-eval configs for local benchmark files.")
    parser.add_argument("data", help="folder with the .jsonl files")
    parser.add_argument("out", help="folder for the configs; pass it to lm-eval as --include_path")
    given = parser.parse_args(argv)
    for task, line in write_tasks(given.data, given.out).items():
        print(f"{task}: {line}")
