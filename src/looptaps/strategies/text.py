"""Strategies as text: `name[:field=value]*`, and back.

>>> from looptaps.strategies import strategy_spec, strategy_text
>>> strategy_spec("adaptive-exit:max_loops=32:tau=0.1")
AdaptiveExit(max_loops=32, k_min=4, patience=2, tau=0.1)
>>> strategy_spec("rollouts:n=25:sigma=0.6:inner=fixed-depth:loops=16")
Rollouts(inner=FixedDepth(loops=16), n=25, sigma=0.6, where='z_L', select='best-q', max_rows=4096)
>>> strategy_text(strategy_spec("rollouts:n=25:sigma=0.6:inner=fixed-depth:loops=16"))
'rollouts:n=25:sigma=0.6:inner=fixed-depth:loops=16'

`inner=` comes last: everything behind it is the inner strategy's own text.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from looptaps.errors import InvalidType, InvalidValue, unknown
from looptaps.strategies import STRATEGIES


def strategy_spec(text: str) -> Any:
    """The strategy that a text describes."""
    own, nested, inner = text.strip().partition(":inner=")
    name, *assignments = own.split(":")
    cls = STRATEGIES[name]
    if not dataclasses.is_dataclass(cls) or not isinstance(cls, type):
        raise InvalidType(f"Strategy {name!r} is no dataclass, so a text cannot set its fields. "
                          "Make it a frozen dataclass.")
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    values: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise InvalidValue(f"In the strategy {text!r}, {assignment!r} must read field=value.")
        if key not in fields:
            raise unknown(f"field of {name}", key, fields)
        if key in values:
            raise InvalidValue(f"In the strategy {text!r}, the field {key!r} is given twice. Keep one.")
        values[key] = _value(value)
    if nested:
        if "inner" not in fields:
            raise unknown(f"field of {name}", "inner", fields)
        values["inner"] = strategy_spec(inner)
    lacking = [key for key, field in fields.items() if key not in values
               and field.default is field.default_factory is dataclasses.MISSING]
    if lacking:
        raise InvalidValue(f"The strategy {text!r} lacks {', '.join(lacking)}: write for instance "
                           f"{name}:{':'.join(_EXAMPLES.get(key, f'{key}=1') for key in lacking)}.")
    return cls(**values)


def strategy_text(strategy: Any) -> str:
    """The text of a strategy: its registered name and every field that differs from the default."""
    if not dataclasses.is_dataclass(strategy) or isinstance(strategy, type):
        raise InvalidType(f"strategy_text needs a strategy that is a dataclass, not {type(strategy).__name__}.")
    parts, inner = [STRATEGIES.name_of(type(strategy))], ""
    for field in dataclasses.fields(strategy):
        value = getattr(strategy, field.name)
        if field.name == "inner":
            inner = f":inner={strategy_text(value)}"
        elif field.init and value != field.default:
            parts.append(f"{field.name}={_text(value)}")
    return ":".join(parts) + inner


_EXAMPLES = {"loops": "loops=16", "max_loops": "max_loops=32", "n": "n=25", "inner": "inner=fixed-depth:loops=16"}


def _value(text: str) -> Any:
    """A number, true, false or none; anything else stays text, which the strategy then judges."""
    constants: dict[str, Any] = {"none": None, "true": True, "false": False}
    if text.lower() in constants:
        return constants[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else repr(value)
