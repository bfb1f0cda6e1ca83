"""Chained assignments: a text task whose difficulty is how far back an answer reaches.

    b=3+4;k=b-9;d=k+5;?k8

Every statement names a new variable by a digit or by an earlier variable, plus or minus a digit, modulo 10. Asked for
a variable (`?k`), a model answers with one digit. The depth of a variable is the number of other statements that its
value goes through: 0 for `b`, 1 for `k`, 2 for `d`. Letters are drawn anew for every text, so nothing can be learned
by heart, and a fixed stack of layers reaches only so far.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from looptaps.errors import invalid

LETTERS = "abcdefghijklmnopqrstuvwxyz"
DIGITS = "0123456789"
VOCABULARY = ("<pad>", *LETTERS, *DIGITS, *"=+-;?")
TOKEN = {token: index for index, token in enumerate(VOCABULARY)}
PAD = TOKEN["<pad>"]
WIDTH = 6  # tokens of a statement
_LETTER, _DIGIT = TOKEN["a"], TOKEN["0"]


class Chains(NamedTuple):
    """Programs as tokens (B, 6 S), and for every statement its variable, its value as a token, and its depth (B, S)."""

    program: Tensor
    variable: Tensor
    answer: Tensor
    depth: Tensor


def sample_chains(count: int, statements: int, generator: torch.Generator, *, reach: int = 2,
                  restart: float = 0.1) -> Chains:
    """Random programs, on the generator's device.

    Args:
        count: how many.
        statements: S, the statements of each, at most 26.
        generator: where the randomness comes from.
        reach: a statement refers to one of the last `reach` ones.
        restart: the share of statements that begin a new chain with a digit.
    """
    if not 1 <= statements <= len(LETTERS):
        raise invalid("sample_chains", "statements", f"a whole number in 1..{len(LETTERS)}", statements,
                      "Every statement needs a letter of its own.")
    if reach < 1:
        raise invalid("sample_chains", "reach", "a whole number >= 1", reach, "1 refers to the last statement.")
    device = generator.device
    shape = (count, statements)

    def draw(high: int) -> Tensor:
        return torch.randint(high, shape, generator=generator, device=device)

    variable = torch.rand(count, len(LETTERS), generator=generator, device=device).argsort(1)[:, :statements]
    back, first, second, minus = 1 + draw(reach), draw(10), draw(10), draw(2)
    index = torch.arange(statements, device=device)
    fresh = (torch.rand(shape, generator=generator, device=device) < restart) | (index < back)
    parent = (index - back).clamp(min=0)
    step = torch.where(minus == 1, -second, second)
    value, depth = torch.empty_like(first), torch.zeros_like(first)
    for i in range(statements):
        before = parent[:, i:i + 1]
        base = torch.where(fresh[:, i], first[:, i], value.gather(1, before)[:, 0])
        value[:, i] = (base + step[:, i]) % 10
        depth[:, i] = torch.where(fresh[:, i], 0, depth.gather(1, before)[:, 0] + 1)
    operand = torch.where(fresh, _DIGIT + first, _LETTER + variable.gather(1, parent))
    sign = torch.where(minus == 1, TOKEN["-"], TOKEN["+"])
    equals, end = torch.full_like(sign, TOKEN["="]), torch.full_like(sign, TOKEN[";"])
    program = torch.stack([_LETTER + variable, equals, operand, sign, _DIGIT + second, end], 2)
    return Chains(program.flatten(1), _LETTER + variable, _DIGIT + value, depth)


class Asked(NamedTuple):
    """Texts (B, 8 S), the positions (2 S,) at which a value is asked for, and the answers (B, 2 S) belonging there."""

    text: Tensor
    position: Tensor
    answer: Tensor


def ask_all(chains: Chains, generator: torch.Generator) -> Asked:
    """Training texts: programs followed by a query for every variable in a random order, without answers in the text.

    A value is asked for behind every query, and at the end of every statement too.
    """
    statements = chains.depth.shape[1]
    order = torch.rand(chains.depth.shape, generator=generator, device=generator.device).argsort(1)
    asked = chains.variable.gather(1, order)
    queries = torch.stack([torch.full_like(asked, TOKEN["?"]), asked], 2).flatten(1)
    index = torch.arange(statements, device=generator.device)
    position = torch.cat([WIDTH * index + WIDTH - 1, WIDTH * statements + 2 * index + 1])
    return Asked(torch.cat([chains.program, queries], 1), position,
                 torch.cat([chains.answer, chains.answer.gather(1, order)], 1))


class Questions(NamedTuple):
    """Texts that end with one query (B, 6 S + 2), the answer that belongs behind it (B,), and its depth (B,)."""

    text: Tensor
    answer: Tensor
    depth: Tensor


def questions(count: int, statements: int, seed: int, *, reach: int = 2, restart: float = 0.1) -> Questions:
    """One question each, on the CPU and so the same on every machine; depths as even as the programs allow.

    A depth is drawn from 0..S-1, and the variable asked for is one whose depth is nearest to it.

    >>> asked = questions(3, 4, seed=0)
    >>> text_of(asked.text[0]), VOCABULARY[asked.answer[0]], int(asked.depth[0])  # doctest: +SKIP
    """
    generator = torch.Generator().manual_seed(seed)
    chains = sample_chains(count, statements, generator, reach=reach, restart=restart)
    wanted = torch.randint(statements, (count, 1), generator=generator)
    tie = torch.rand(chains.depth.shape, generator=generator) / 2
    chosen = ((chains.depth - wanted).abs() + tie).argmin(1, keepdim=True)
    query = torch.cat([torch.full_like(chosen, TOKEN["?"]), chains.variable.gather(1, chosen)], 1)
    return Questions(torch.cat([chains.program, query], 1), chains.answer.gather(1, chosen)[:, 0],
                     chains.depth.gather(1, chosen)[:, 0])


def text_of(tokens: Tensor) -> str:
    """Tokens as text, padding left out.

    >>> text_of(tokens_of("b=3+4;?b"))
    'b=3+4;?b'
    """
    return "".join(VOCABULARY[token] for token in tokens.tolist() if token != PAD)


def tokens_of(text: str) -> Tensor:
    """Text as tokens, one a character."""
    wrong = sorted(set(text) - TOKEN.keys())
    if wrong:
        raise invalid("tokens_of", "text", "lower-case letters, digits and = + - ; ?", "".join(wrong),
                      "For example b=3+4;?b")
    return torch.tensor([TOKEN[character] for character in text])
