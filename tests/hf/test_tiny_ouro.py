"""The bundled Ouro: more recurrent steps answer more, by weights that were trained for it."""

import hashlib

import pytest

import looptaps as lt
from looptaps.hf.bundled import load_tiny_ouro, tiny_ouro_folder
from looptaps.tasks.chains import questions
from looptaps.train.language import exact_by_steps


@pytest.fixture(scope="module")
def loaded():
    return load_tiny_ouro()


@pytest.fixture(scope="module")
def asked():
    return questions(96, 12, seed=77, reach=2, restart=0.05)


def test_the_card_is_of_these_weights():
    folder = tiny_ouro_folder()
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert f"sha256 {digest}" in (folder / "README.md").read_text()


def test_more_steps_answer_more_and_harder_questions(loaded, asked):
    right = exact_by_steps(loaded[0], asked, 6, 16).double()
    share = right.mean(0)
    assert share[0] < 0.35
    assert share[0] + 0.15 < share[1] < share[2] < 0.97
    assert share[3] > 0.97
    deep = right[asked.depth >= 6].mean(0)
    assert deep[1] < 0.3
    assert deep[3] > 0.95


def test_it_answers_in_words_cached_and_uncached(loaded):
    model, tokenizer = loaded
    texts = ["b=3+4;k=b-9;d=k+5;m=d+1;?d", "q=2+2;w=q+1;e=w-3;r=e+8;t=r+1;y=t-4;u=y+6;i=u+3;?i"]
    inputs = tokenizer(texts, return_tensors="pt", padding=True)
    for use_cache in (True, False):
        out = model.generate(**inputs, max_new_tokens=1, do_sample=False, use_cache=use_cache)
        assert tokenizer.batch_decode(out[:, -1:]) == ["3", "6"]


@pytest.mark.parametrize("rule", ["taps-gd", "taps-sign", "taps-momentum", "taps-rmsprop", "taps-adam", "taps-bb"])
@pytest.mark.parametrize("scope", ["sequence", "token"])
def test_a_rule_keeps_the_answers_of_a_settled_loop(loaded, asked, rule, scope):
    model = loaded[0]
    few = asked._replace(text=asked.text[:32], answer=asked.answer[:32])
    with lt.hf.attach(model, lt.spec(f"{rule}@blocks"), scope=scope) as handle:
        right = exact_by_steps(model, few, 8, 16)[:, -1]
        etas = handle.trace.stage_means
    assert right.double().mean() > 0.9
    assert etas[0] == 1.0
    assert (etas[1:] != 1.0).any()
