"""Controllers as text round-trip, presets fill what a rule has, and unknown words are answered with the list."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import looptaps as lt
from looptaps.specs import CONTROLLERS, PRESETS

numbers = st.floats(1e-6, 1e6)


@given(gamma=numbers, rho=numbers, eta_min=st.floats(1e-3, 1), eta_max=st.floats(1, 1e3), warmup=st.integers(0, 50))
def test_specs_round_trip_for_any_fields(gamma, rho, eta_min, eta_max, warmup):
    fields = {"gamma": gamma, "rho": rho, "eta_min": eta_min, "eta_max": eta_max, "warmup": warmup}
    for cls in (lt.TapsGD, lt.TapsSign, lt.TapsMomentum, lt.TapsRMSProp, lt.TapsAdam, lt.TapsBB):
        rule = cls(**fields)
        assert lt.spec(lt.spec_text(rule)) == rule


@pytest.mark.parametrize("rule", [lt.Standard(), lt.Constant(0.87), lt.Schedule((1, 0.9)), lt.Schedule((0.9,)),
                                  lt.TapsBB(gain=1 / 3), lt.TapsBB(), lt.TapsAdam(beta=0)], ids=repr)
def test_specs_round_trip(rule):
    assert lt.spec(lt.spec_text(rule)) == rule
    assert hash(lt.spec(lt.spec_text(rule))) == hash(rule)


def test_a_spec_of_defaults_is_the_name():
    assert [lt.spec_text(lt.spec(name)) for name in CONTROLLERS if name.startswith("taps")] == [
        name for name in CONTROLLERS if name.startswith("taps")
    ]


@pytest.mark.parametrize("name", [name for name in CONTROLLERS if name.startswith("taps")])
@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_fills_the_fields_that_the_rule_has(name, preset):
    rule = lt.spec(f"{name}@{preset}")
    for field, value in PRESETS[preset].items():
        assert getattr(rule, field, value) == value
    assert lt.spec(f"{name}@{preset}:rho=0.1").rho == 0.1


def test_presets_are_the_papers():
    assert lt.spec("taps-adam@trm") == lt.TapsAdam(gamma=1.0, rho=0.2, beta=0.8, eta_min=0.8, eta_max=1.2, warmup=2)
    assert lt.spec("taps-adam@blocks") == lt.TapsAdam(
        gamma=1.5, rho=0.275, beta=0.8, eta_min=0.8, eta_max=1.2, warmup=1
    )
    assert lt.spec("taps-bb@blocks:gamma=1") == lt.TapsBB(gamma=1, warmup=1)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("taps-gdd", lt.errors.UnknownName, "Did you mean 'taps-gd'.*Known: constant, schedule"),
        ("taps-gd@trn", lt.errors.UnknownName, "Unknown preset 'trn'. Did you mean 'trm'"),
        ("taps-gd:rh=1", lt.errors.UnknownName, "Unknown field of taps-gd 'rh'. Did you mean 'rho'"),
        ("taps-gd:beta=0.5", lt.errors.UnknownName, "Unknown field of taps-gd 'beta'"),
        ("taps-gd:rho", lt.errors.InvalidValue, "must read field=value"),
        ("taps-gd:rho=1:rho=2", lt.errors.InvalidValue, "given twice"),
        ("taps-gd:rho=much", lt.errors.InvalidValue, "no finite number"),
        ("taps-gd:rho=nan", lt.errors.InvalidValue, "no finite number"),
        ("taps-gd:rho=none", lt.errors.InvalidValue, "rho must be a finite number > 0, but is None"),
        ("taps-gd:rho=" + "9" * 400, lt.errors.InvalidValue, "no finite number"),
        ("taps-gd:rho=" + "9" * 5000, lt.errors.InvalidValue, "no finite number"),
        ("taps-gd:warmup=" + "9" * 30, lt.errors.InvalidValue, r"warmup must be a whole number >= 0 and < 2\^63"),
        ("taps-gd:rho=true", lt.errors.InvalidValue, "but is True"),
        ("constant", lt.errors.InvalidValue, "constant needs eta"),
        ("schedule:etas=1", lt.errors.InvalidValue, "etas must be a non-empty sequence"),
        ("schedule:etas=none", lt.errors.InvalidValue, "etas must be a non-empty sequence"),
        ("", lt.errors.UnknownName, "Unknown controller ''"),
        (None, lt.errors.InvalidType, "A spec is text"),
    ],
)
def test_a_wrong_spec_is_one_sentence(text, error, message):
    with pytest.raises(error, match=message):
        lt.spec(text)


def test_specs_of_other_things_are_refused():
    with pytest.raises(lt.errors.InvalidType, match="needs a controller"):
        lt.spec_text(3)
    with pytest.raises(lt.errors.InvalidType, match="needs a controller"):
        lt.spec_text(lt.TapsGD)

    class NoDataclass:
        pass

    CONTROLLERS.add("no-dataclass", f"{__name__}:missing")
    try:
        CONTROLLERS._targets["no-dataclass"] = "collections:OrderedDict"
        with pytest.raises(lt.errors.InvalidType, match="no dataclass"):
            lt.spec("no-dataclass")
    finally:
        del CONTROLLERS._targets["no-dataclass"]


def test_a_controller_that_is_not_registered_has_no_spec():
    @dataclass(frozen=True)
    class Private:
        pass

    with pytest.raises(lt.errors.UnknownName, match="Private"):
        lt.spec_text(Private())


@dataclass(frozen=True)
class Worded:
    """A rule of somebody else with fields that are no numbers."""

    mode: str = "soft"
    kind: Literal["a-1", "b.2"] | None = None
    names: tuple[str, ...] = ()
    rho: float = 0.1
    extra: Any = None


@pytest.fixture
def worded():
    CONTROLLERS.add("worded", f"{__name__}:Worded")
    yield
    del CONTROLLERS._targets["worded"]


@pytest.mark.parametrize(
    "rule", [Worded(mode="hard"), Worded(kind="b.2"), Worded(names=("x", "y_2")), Worded(mode="h", rho=0.3)], ids=repr
)
def test_words_round_trip_in_fields_that_hold_words(worded, rule):
    assert lt.spec(lt.spec_text(rule)) == rule


def test_a_spec_with_a_word_reads_as_one_would_write_it(worded):
    assert lt.spec_text(Worded(mode="hard")) == "worded:mode=hard"
    with pytest.raises(lt.errors.InvalidValue, match="no finite number"):
        lt.spec("worded:rho=hard")


@pytest.mark.parametrize("fields", [
    {"mode": "a:b"}, {"mode": "a,b"}, {"mode": "a/b"}, {"mode": "two words"}, {"mode": ""}, {"mode": "0.5"},
    {"mode": "none"}, {"extra": "word"}, {"extra": [1, 2]}, {"extra": {"a": 1}}, {"extra": float("inf")},
    {"names": ("a", ("b",))},
], ids=repr)
def test_what_would_not_come_back_from_a_spec_is_refused(worded, fields):
    (field,) = fields
    with pytest.raises(lt.errors.InvalidValue, match=rf"Worded\.{field} must be .* to have a spec, but is "):
        lt.spec_text(Worded(**fields))
