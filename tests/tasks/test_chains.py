"""Chained assignments: every answer is what a plain interpreter of the text says, and nothing leaks it."""

import pytest
import torch

from looptaps.errors import InvalidValue
from looptaps.tasks.chains import VOCABULARY, WIDTH, ask_all, questions, sample_chains, text_of, tokens_of


def interpret(program):
    """Values and depths by variable, read from the text alone."""
    values, depths = {}, {}
    for statement in program.rstrip(";").split(";"):
        name, (first, sign, digit) = statement[0], statement[2:]
        assert statement[1] == "="
        base = int(first) if first.isdigit() else values[first]
        values[name] = (base + int(digit) * (1 if sign == "+" else -1)) % 10
        depths[name] = 0 if first.isdigit() else depths[first] + 1
    return values, depths


def test_answers_and_depths_are_those_of_the_text():
    asked = questions(200, 9, seed=3, reach=2, restart=0.1)
    texts = [text_of(row) for row in asked.text]
    for text, answer, depth in zip(texts, asked.answer, asked.depth):
        program, _, name = text.rpartition("?")
        values, depths = interpret(program)
        assert len(values) == 9
        assert VOCABULARY[answer] == str(values[name])
        assert int(depth) == depths[name]
    counts = torch.bincount(asked.depth, minlength=9)
    assert (counts[:6] >= 10).all()  # depths are spread, not all shallow
    assert len(set(texts)) == 200


def test_training_texts_ask_for_every_value_and_hold_no_answer():
    generator = torch.Generator().manual_seed(0)
    chains = sample_chains(50, 5, generator)
    asked = ask_all(chains, generator)
    assert asked.text.shape == (50, 5 * WIDTH + 2 * 5)
    for row, answers in zip(asked.text, asked.answer):
        program, *queries = text_of(row).split("?")
        values, _ = interpret(program)
        assert sorted(queries) == sorted(values)
        names = [program[WIDTH * n] for n in range(5)] + queries
        assert [VOCABULARY[token] for token in answers] == [str(values[name]) for name in names]
        ends = [text_of(row)[place] for place in asked.position]
        assert ends == [";"] * 5 + queries


def test_the_same_seed_gives_the_same_questions_and_another_seed_others():
    first, again, other = (questions(8, 6, seed=seed).text for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_text_and_tokens_round_trip():
    assert text_of(tokens_of("b=3+4;k=b-9;?k")) == "b=3+4;k=b-9;?k"
    with pytest.raises(InvalidValue, match="lower-case letters"):
        tokens_of("B=3")


@pytest.mark.parametrize(("statements", "reach"), [(0, 2), (27, 2), (4, 0)])
def test_impossible_programs_are_refused(statements, reach):
    with pytest.raises(InvalidValue, match="sample_chains"):
        sample_chains(2, statements, torch.Generator(), reach=reach)
