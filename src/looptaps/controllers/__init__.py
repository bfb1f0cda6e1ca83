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
    check_hyperparameters,
    fresh_latent,
    fresh_scalars,
    resolve_gain,
    settle,
    widen,
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
    "check_hyperparameters",
    "fresh_latent",
    "fresh_scalars",
    "resolve_gain",
    "settle",
    "widen",
]
