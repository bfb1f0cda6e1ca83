"""How long and how many: stopping rules, one driver for all of them, and parallel rollouts. Names load on first use.

>>> list(STRATEGIES)[:3]
['adaptive-exit', 'anderson', 'fixed-depth']
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from looptaps.registry import Registry

STRATEGIES = Registry(
    "strategies",
    {
        "fixed-depth": "looptaps.strategies.exits:FixedDepth",
        "adaptive-exit": "looptaps.strategies.exits:AdaptiveExit",
        "q-exit": "looptaps.strategies.exits:QExit",
        "fixed-point": "looptaps.strategies.fixed_point:FixedPoint",
        "fprm": "looptaps.strategies.fixed_point:FPRMRule",
        "anderson": "looptaps.strategies.anderson:Anderson",
        "rollouts": "looptaps.strategies.rollouts:Rollouts",
    },
)

_NAMES = {
    **dict.fromkeys(("Result", "RolloutTable", "Status", "Verdict", "View"), "base"),
    **dict.fromkeys(("AdaptiveExit", "FixedDepth", "QExit"), "exits"),
    **dict.fromkeys(("FPRMRule", "FixedPoint"), "fixed_point"),
    **dict.fromkeys(("StoppingRule",), "rule"),
    **dict.fromkeys(("Served", "serve_loop"), "serve"),
    **dict.fromkeys(("RunTrace",), "trace"),
    **dict.fromkeys(("Anderson",), "anderson"),
    **dict.fromkeys(("Rollouts", "any_right", "prefix"), "rollouts"),
    **dict.fromkeys(("strategy_spec", "strategy_text"), "text"),
}

if TYPE_CHECKING:
    from looptaps.strategies.anderson import Anderson
    from looptaps.strategies.base import Result, RolloutTable, Status, Verdict, View
    from looptaps.strategies.exits import AdaptiveExit, FixedDepth, QExit
    from looptaps.strategies.fixed_point import FixedPoint, FPRMRule
    from looptaps.strategies.rollouts import Rollouts, any_right, prefix
    from looptaps.strategies.rule import StoppingRule
    from looptaps.strategies.serve import Served, serve_loop
    from looptaps.strategies.text import strategy_spec, strategy_text
    from looptaps.strategies.trace import RunTrace

__all__ = [
    "STRATEGIES",
    "AdaptiveExit",
    "Anderson",
    "FPRMRule",
    "FixedDepth",
    "FixedPoint",
    "QExit",
    "Result",
    "RolloutTable",
    "Rollouts",
    "RunTrace",
    "Served",
    "Status",
    "StoppingRule",
    "Verdict",
    "View",
    "any_right",
    "prefix",
    "serve_loop",
    "strategy_spec",
    "strategy_text",
]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'looptaps.strategies' has no attribute {name!r}")
    value = getattr(import_module(f"looptaps.strategies.{_NAMES[name]}"), name)
    globals()[name] = value
    return value
