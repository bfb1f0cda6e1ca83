"""Models that we drive: TRM, HRM, FPRM and a plain looped transformer."""

from __future__ import annotations

from looptaps.models.levels import Carry, Heads, TwoLevelModel
from looptaps.models.trm import TRM, TRMConfig

__all__ = ["TRM", "Carry", "Heads", "TRMConfig", "TwoLevelModel"]
