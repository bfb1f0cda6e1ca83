"""The numbers on the README's first screen are those of the records in the package."""

from pathlib import Path

from looptaps.evaluation.shipped import shipped
from looptaps.report.words import crossing, points, share

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def starred(found, row, against):
    pair = found.pair(row.name, against)
    return "" if pair is None else points(pair) + "*" * (pair.verdict != "no difference")


def expected_lines():
    found = shipped("sudoku-extreme")
    for row in found.rows:
        if row.kind != "constant":
            cells = [row.name, share(row.accuracy), starred(found, row, "baseline"), starred(found, row, "constant"),
                     crossing(row.matched)]
            yield "| " + " | ".join(cells) + " |"


def test_the_first_table_is_the_packages_record():
    lines = README.splitlines()
    start = lines.index(next(line for line in lines if line.startswith("| standard |")))
    assert lines[start:start + 7] == list(expected_lines())


def test_the_sentence_on_minimal_puzzles_is_its_record():
    found = shipped("sudoku-trm")
    solved = {row.name: f"{100 * row.accuracy.value:.1f} %" for row in found.rows}
    better = [row.name for row in found.rows
              if row.kind == "rule" and found.pair(row.name, "baseline").verdict == "better"]
    assert better == ["taps-adam", "taps-rmsprop"]
    text = " ".join(README.split())
    assert f"from {solved['standard']} to {solved['taps-adam']}" in text
    assert {found.pair(row.name, "constant").verdict for row in found.rows if row.kind == "rule"} == {"no difference"}


def test_the_looped_transformers_sentence_is_its_record():
    found = shipped("sudoku-looped")
    verdicts = [found.pair(row.name, "baseline").verdict for row in found.rows if row.kind == "rule"]
    assert verdicts == ["worse"] * 6
    base = next(row for row in found.rows if row.name == "standard")
    worst = min((row for row in found.rows if row.kind == "rule"), key=lambda row: row.accuracy.value)
    assert f"{100 * base.accuracy.value:.1f} % to {100 * worst.accuracy.value:.1f} %" in " ".join(README.split())
