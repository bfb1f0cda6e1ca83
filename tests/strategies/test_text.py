"""Strategies as text, and what `looptaps ls strategies` reads."""

import pytest

import looptaps as lt
from looptaps.cli.ls import describe
from looptaps.errors import InvalidType, InvalidValue, UnknownName
from looptaps.strategies import STRATEGIES, FPRMRule, strategy_spec, strategy_text

ALL = [
    lt.FixedDepth(16),
    lt.AdaptiveExit(max_loops=32),
    lt.AdaptiveExit(max_loops=32, k_min=2, patience=3, tau=0.05),
    lt.QExit(max_loops=16, threshold=-1.5),
    lt.FixedPoint(),
    lt.FixedPoint(eps=1e-5, norm="max", max_updates=1000),
    FPRMRule(),
    FPRMRule(batch_max=True, max_loops=20_000),
    lt.Anderson(max_loops=32, m=3, beta=0.5, lam=1e-6, eps=0.1),
    lt.Rollouts(lt.AdaptiveExit(max_loops=32, tau=0.1), n=25, sigma=0.6, where="z_H", select="mode"),
]


@pytest.mark.parametrize("strategy", ALL, ids=strategy_text)
def test_texts_round_trip(strategy):
    assert strategy_spec(strategy_text(strategy)) == strategy
    assert hash(strategy) == hash(strategy_spec(strategy_text(strategy)))


def test_all_names_are_there_and_described():
    assert set(STRATEGIES) >= {"fixed-depth", "adaptive-exit", "q-exit", "fixed-point", "fprm", "anderson", "rollouts"}
    for name in STRATEGIES:
        assert callable(STRATEGIES[name].run)
        assert describe(STRATEGIES.target(name)).line.endswith((".", ":"))


@pytest.mark.parametrize(("text", "error", "match"), [
    ("fixed-dept:loops=3", UnknownName, "Did you mean 'fixed-depth'"),
    ("fixed-depth:loop=3", UnknownName, "Did you mean 'loops'"),
    ("fixed-depth", InvalidValue, "lacks loops: write for instance fixed-depth:loops=16"),
    ("fixed-depth:loops", InvalidValue, "must read field=value"),
    ("fixed-depth:loops=3:loops=4", InvalidValue, "given twice"),
    ("fixed-depth:loops=0", InvalidValue, r"FixedDepth\.loops"),
    ("fixed-depth:loops=many", InvalidValue, r"FixedDepth\.loops"),
    ("adaptive-exit:max_loops=3", InvalidValue, "k_min = 4"),
    ("fixed-depth:loops=3:inner=fixed-depth:loops=3", UnknownName, "inner"),
    ("rollouts:n=3", InvalidValue, "inner=fixed-depth:loops=16"),
    ("rollouts:n=3:inner=rollouts:n=2:inner=fixed-depth:loops=1", InvalidType, "stopping rule"),
])
def test_bad_texts(text, error, match):
    with pytest.raises(error, match=match):
        strategy_spec(text)


def test_only_strategies_have_a_text():
    with pytest.raises(InvalidType, match="dataclass"):
        strategy_text("fixed-depth")
    with pytest.raises(UnknownName, match="Unknown strategy"):
        strategy_text(lt.TapsGD())
