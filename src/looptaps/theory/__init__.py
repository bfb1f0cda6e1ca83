"""The theory as running diagnostics: exact sensitivities, the progress-fluctuation identity, and the toy models."""

from looptaps.theory.decomposition import (
    Decomposition,
    Energies,
    decompose,
    ema_weights,
    observable_energies,
)
from looptaps.theory.sensitivity import Sensitivities, sensitivities
from looptaps.theory.toys import Modes, TwoModes

__all__ = [
    "Decomposition",
    "Energies",
    "Modes",
    "Sensitivities",
    "TwoModes",
    "decompose",
    "ema_weights",
    "observable_energies",
    "sensitivities",
]
