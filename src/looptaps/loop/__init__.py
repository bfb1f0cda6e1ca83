"""The controlled loop: one step, any plain core, and what a model offers to be driven."""

from looptaps.loop.control import Control, as_control
from looptaps.loop.iterate import Rollout, iterate
from looptaps.loop.model import LoopModel, Readout, StepStats
from looptaps.loop.step import Memory, Step, Stepper, begin_memory, controlled_step, scaled_step
from looptaps.loop.trace import Trace, stack_trace

__all__ = [
    "Control",
    "LoopModel",
    "Memory",
    "Readout",
    "Rollout",
    "Step",
    "StepStats",
    "Stepper",
    "Trace",
    "as_control",
    "begin_memory",
    "controlled_step",
    "iterate",
    "scaled_step",
    "stack_trace",
]
