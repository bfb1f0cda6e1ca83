"""Control: validated on construction, equal after JSON, and what it hands to the loop."""

import json

import pytest
import torch

import looptaps as lt
from looptaps.controllers.base import Sample, Token
from looptaps.loop import as_control


@pytest.mark.parametrize("control", [
    lt.Control(lt.TapsGD()),
    lt.Control(lt.TapsBB(gain=0.5), site="outer", outer_at="loop", every=3, scope="token", memory="cycle",
               grad_through_eta=True),
    lt.Control(lt.Schedule((1, 0.9)), scope="sequence", memory="loop"),
], ids=repr)
def test_json_round_trip_is_equality(control):
    assert lt.Control.from_dict(json.loads(json.dumps(control.to_dict()))) == control
    assert hash(control) == hash(lt.Control.from_dict(control.to_dict()))


def test_a_bare_controller_will_do_where_a_control_is_expected():
    assert as_control(lt.TapsGD()) == lt.Control(lt.TapsGD())
    control = lt.Control(lt.TapsGD(), every=2)
    assert as_control(control) is control


def test_scopes_by_name():
    mask = torch.ones(2, 3, dtype=torch.bool)
    assert lt.Control(lt.TapsGD()).scope_over(mask) == Sample(mask)
    assert lt.Control(lt.TapsGD(), scope="sequence").scope_over() == Sample(None)
    assert lt.Control(lt.TapsGD(), scope="token").scope_over(mask) == Token()


def test_the_open_gain_is_filled_by_the_owner_and_stretched_by_the_interval():
    assert lt.Control(lt.TapsBB()).resolved().controller == lt.TapsBB(gain=1.0)
    assert lt.Control(lt.TapsBB()).resolved(1 / 3).controller == lt.TapsBB(gain=1 / 3)
    assert lt.Control(lt.TapsBB(gain=0.5)).resolved(1 / 3).controller == lt.TapsBB(gain=0.5)
    assert lt.Control(lt.TapsBB(), every=4).rule() == lt.TapsBB(gain=4.0)
    assert lt.Control(lt.TapsBB(), every=2).resolved(0.5).rule() == lt.TapsBB(gain=1.0)
    assert lt.Control(lt.TapsGD(), every=4).rule() == lt.TapsGD()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"every": 0}, r"Control\.every must be a whole number >= 1, but is 0"),
        ({"every": 1.5}, r"Control\.every"),
        ({"every": True}, r"Control\.every"),
        ({"site": "middle"}, r"Control\.site must be one of inner, outer, but is 'middle'"),
        ({"outer_at": "step"}, r"Control\.outer_at must be one of cycle, loop"),
        ({"scope": "batch"}, r"Control\.scope must be one of sample, sequence, token"),
        ({"memory": "forever"}, r"Control\.memory must be one of rollout, loop, cycle"),
        ({"grad_through_eta": 1}, r"Control\.grad_through_eta must be True or False"),
    ],
)
def test_a_wrong_field_is_one_sentence(fields, message):
    with pytest.raises(lt.errors.InvalidValue, match=message):
        lt.Control(lt.TapsGD(), **fields)


def test_what_is_no_controller_is_refused():
    for wrong in (lt.TapsGD, "taps-gd", 1.0, None):
        with pytest.raises(lt.errors.InvalidType, match=r"lt\.spec"):
            lt.Control(wrong)
    with pytest.raises(lt.errors.UnknownName, match="field of Control 'sites'"):
        lt.Control.from_dict({"controller": "taps-gd", "sites": "inner"})
    with pytest.raises(lt.errors.InvalidType, match="as a spec"):
        lt.Control.from_dict({"every": 1})
    for wrong in ([1], "taps-gd", None):
        with pytest.raises(lt.errors.InvalidType, match="from_dict needs a dict"):
            lt.Control.from_dict(wrong)
