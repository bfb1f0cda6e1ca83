"""Controllers as text: `name[@preset][:field=value]*`, and back.

>>> from looptaps.specs import spec, spec_text
>>> spec("taps-gd:rho=0.3")
TapsGD(gamma=1.5, rho=0.3, eta_min=0.8, eta_max=1.2, warmup=2, eps=1e-12)
>>> spec_text(spec("taps-bb@blocks:gamma=1"))
'taps-bb:gamma=1.0:warmup=1'
>>> spec("schedule:etas=1/0.9/0.8")
Schedule(etas=(1.0, 0.9, 0.8))

Fields are separated by `:` and the parts of a tuple by `/`, so a spec survives inside comma-separated arguments.
A field annotated `str` or `Literal` takes a word.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterable
from typing import Any

from looptaps.errors import InvalidType, InvalidValue, invalid, unknown
from looptaps.registry import Registry

CONTROLLERS = Registry(
    "controllers",
    {
        "standard": "looptaps.controllers.fixed:Standard",
        "constant": "looptaps.controllers.fixed:Constant",
        "schedule": "looptaps.controllers.fixed:Schedule",
        "taps-gd": "looptaps.controllers.adjacent:TapsGD",
        "taps-sign": "looptaps.controllers.adjacent:TapsSign",
        "taps-momentum": "looptaps.controllers.adjacent:TapsMomentum",
        "taps-rmsprop": "looptaps.controllers.adjacent:TapsRMSProp",
        "taps-adam": "looptaps.controllers.moments:TapsAdam",
        "taps-bb": "looptaps.controllers.curvature:TapsBB",
    },
)

# The paper's two settings: TRM co-design (table "training recipe") and looped blocks ("scheduler configuration").
PRESETS: dict[str, dict[str, Any]] = {
    "trm": {"gamma": 1.0, "rho": 0.2, "beta": 0.8, "eta_min": 0.8, "eta_max": 1.2, "warmup": 2},
    "blocks": {"gamma": 1.5, "rho": 0.275, "beta": 0.8, "eta_min": 0.8, "eta_max": 1.2, "warmup": 1},
}


def spec(text: str) -> Any:
    """The controller that a spec describes. Preset fields that the rule lacks are dropped."""
    if not isinstance(text, str):
        raise InvalidType(f"A spec is text such as 'taps-gd:rho=0.3', but this is {type(text).__name__}.")
    head, *assignments = text.strip().split(":")
    name, at, preset = head.partition("@")
    cls = CONTROLLERS[name]
    if not dataclasses.is_dataclass(cls) or not isinstance(cls, type):
        raise InvalidType(f"Controller {name!r} is no dataclass, so a spec cannot set its fields. "
                          "Make it a frozen dataclass of hyper-parameters.")
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    values: dict[str, Any] = {}
    if at:
        if preset not in PRESETS:
            raise unknown("preset", preset, PRESETS)
        values = {key: value for key, value in PRESETS[preset].items() if key in fields}
    given: set[str] = set()
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise InvalidValue(f"In the spec {text!r}, {assignment!r} must read field=value.")
        if key not in fields:
            raise unknown(f"field of {name}", key, fields)
        if key in given:
            raise InvalidValue(f"In the spec {text!r}, the field {key!r} is given twice. Keep one.")
        given.add(key)
        values[key] = _value(value, text, _holds_words(fields[key]))
    lacking = [f.name for f in dataclasses.fields(cls)
               if f.init and f.name not in values and f.default is f.default_factory is dataclasses.MISSING]
    if lacking:
        raise InvalidValue(f"The spec {text!r} lacks a field: {name} needs {', '.join(lacking)}.")
    return cls(**values)


def spec_text(controller: Any) -> str:
    """The spec of a controller: its registered name and every field that differs from the default."""
    if not dataclasses.is_dataclass(controller) or isinstance(controller, type):
        raise InvalidType(f"spec_text needs a controller that is a dataclass, not {type(controller).__name__}.")
    parts = [CONTROLLERS.name_of(type(controller))]
    for field in dataclasses.fields(controller):
        value = getattr(controller, field.name)
        if field.init and value != field.default:
            parts.append(f"{field.name}={_written(type(controller).__name__, field, value)}")
    return ":".join(parts)


def _holds_words(field: dataclasses.Field[Any]) -> bool:
    # The annotation may be a type or its text.
    return any(word in str(field.type) for word in ("str", "Literal"))


def _written(owner: str, field: dataclasses.Field[Any], value: Any) -> str:
    """The text of a value, if `spec` would read the same value back."""
    text = _text(value)
    try:
        back = _value(text, text, _holds_words(field)) if ":" not in text else None
    except InvalidValue:
        back = None
    if back != value or type(back) is not type(value):
        raise invalid(owner, field.name, "a finite number, None, True, False, a tuple of these, or in a field "
                      "annotated str or Literal a word of letters, digits, '.', '-' and '_', to have a spec", value,
                      "Hold such a value, and make the other from it in the rule.")
    return text


def _value(text: str, whole: str, words: bool = False) -> Any:
    if "/" in text:
        return tuple(_value(part, whole, words) for part in text.split("/") if part)
    constants: dict[str, Any] = {"none": None, "true": True, "false": False}
    if text.lower() in constants:
        return constants[text.lower()]
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if -sys.float_info.max <= number <= sys.float_info.max:
            return number
    if words and re.fullmatch(r"[A-Za-z_][\w.-]*", text):
        return text
    raise InvalidValue(f"In the spec {whole!r}, {text!r} is no finite number, none, true or false "
                       "(several numbers are joined by '/').")


def _text(value: Any) -> str:
    if isinstance(value, Iterable) and not isinstance(value, str):
        return "/".join(_text(part) for part in value) + "/"
    if isinstance(value, str):
        return value
    return str(value).lower() if value is None or isinstance(value, bool) else repr(value)
