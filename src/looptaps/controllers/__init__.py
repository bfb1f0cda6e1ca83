"""How far: fixed schedules and the six TAPS rules."""

from looptaps.controllers.adjacent import TapsGD, TapsMomentum, TapsRMSProp, TapsSign
from looptaps.controllers.base import (
    SAMPLE,
    Controller,
    Decision,
    Sample,
    Scope,
    Segments,
    Token,
    resolve_gain,
)
from looptaps.controllers.curvature import TapsBB
from looptaps.controllers.fixed import Constant, Schedule, Standard
from looptaps.controllers.moments import TapsAdam

__all__ = [
    "SAMPLE",
    "Constant",
    "Controller",
    "Decision",
    "Sample",
    "Schedule",
    "Scope",
    "Segments",
    "Standard",
    "TapsAdam",
    "TapsBB",
    "TapsGD",
    "TapsMomentum",
    "TapsRMSProp",
    "TapsSign",
    "Token",
    "resolve_gain",
]
