"""Local, offline lm-eval tasks with the paper's protocol, for benchmark files that the user has.

| task | file(s) | shots | prompt | scoring |
|---|---|---|---|---|
| `taps_mmlu` | mmlu_validation.jsonl | 0 | standard | label log-likelihood (`acc`) |
| `taps_arc_challenge` | arc_challenge_validation.jsonl | 0 | standard | normalised (`acc_norm`) |
| `taps_hellaswag` | hellaswag_validation.jsonl | 0 | standard | normalised (`acc_norm`) |
| `taps_gsm8k_cot` | gsm8k_test.jsonl | 0, CoT | "Let's think step by step" | extracted match (`flexible-extract`) |
| `taps_commonsense_qa` | commonsense_qa_validation.jsonl, _train.jsonl | 7 | standard | label log-likelihood (`acc`) |

Prompts are those of lm-eval's own tasks. GPQA-Main (0 shots) and MMLU-Pro (5, CoT, chat template) are lm-eval's
`gpqa_main_zeroshot` and `mmlu_pro`, whose data must be fetched. lm-eval resolves relative data paths against the
working directory, so the configs are written out with absolute ones.
"""

from __future__ import annotations

import argparse
from importlib.resources import files
from pathlib import Path

from looptaps.errors import InvalidFile

# Task -> the file it is scored on, and the one its examples come from.
TASKS = {
    "taps_arc_challenge": ("arc_challenge_validation.jsonl", None),
    "taps_commonsense_qa": ("commonsense_qa_validation.jsonl", "commonsense_qa_train.jsonl"),
    "taps_gsm8k_cot": ("gsm8k_test.jsonl", None),
    "taps_hellaswag": ("hellaswag_validation.jsonl", None),
    "taps_mmlu": ("mmlu_validation.jsonl", None),
}


def write_tasks(data: str | Path, out: str | Path) -> dict[str, str]:
    """Write a config for every task whose data is in the folder `data`; returns task -> what it is scored on.

    Examples for CommonsenseQA come from its training split. Without that file they come from the scored file (never
    the question itself), which the task's metadata and the returned line say.
    """
    data, out = Path(data).resolve(), Path(out)
    found = {task: names for task, names in TASKS.items() if (data / names[0]).is_file()}
    if not found:
        wanted = ", ".join(name for name, _ in TASKS.values())
        raise InvalidFile(f"{data} holds none of the benchmark files ({wanted}).")
    out.mkdir(parents=True, exist_ok=True)
    lines = {}
    for task, (scored, shots) in found.items():
        text = (files(__package__) / f"{task}.yaml").read_text().replace("{{DATA}}", str(data / scored))
        lines[task] = str(data / scored)
        if shots is not None:
            there = (data / shots).is_file()
            source = shots if there else scored
            text = text.replace("{{SHOTS}}", str(data / source)).replace("{{SHOT_SPLIT}}", "shots" if there else "test")
            lines[task] += f" (7 examples from {source})"
        (out / f"{task}.yaml").write_text(text)
    return lines


def main(argv: list[str]) -> None:
    """`taps-eval tasks DATA OUT`."""
    parser = argparse.ArgumentParser("taps-eval tasks", description="Write lm-eval configs for local benchmark files.")
    parser.add_argument("data", help="folder with the .jsonl files")
    parser.add_argument("out", help="folder for the configs; pass it to lm-eval as --include_path")
    given = parser.parse_args(argv)
    for task, line in write_tasks(given.data, given.out).items():
        print(f"{task}: {line}")
