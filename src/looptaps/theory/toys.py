"""The paper's two toy models, with their propositions as functions that return the closed forms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from looptaps.controllers.base import number
from looptaps.errors import InvalidValue, invalid


@dataclass(frozen=True)
class Modes:
    """Error components e_i <- (1 - eta lambda_i) e_i, measured by Q(e) = sum_i q_i e_i^2 / 2.

    Proposition "no constant": with K >= r loops some schedule reaches Q = 0, while every constant one stays above a
    positive bound, because different components want different scales.

    >>> modes = Modes(lambdas=(0.8, 1.25), q=(1, 1), e0=(1, 1))
    >>> modes.error(modes.zeroing_schedule(4))
    0.0
    >>> min(modes.error([eta / 1000] * 4) for eta in range(800, 1251)) >= modes.constant_bound(4) > 0
    True
    """

    lambdas: tuple[float, ...]
    q: tuple[float, ...]
    e0: tuple[float, ...]

    def __post_init__(self) -> None:
        for field in ("lambdas", "q", "e0"):
            values = getattr(self, field)
            if isinstance(values, str) or not isinstance(values, Sequence):
                raise invalid("Modes", field, "a tuple of numbers", values, "Give one number per component.")
            object.__setattr__(self, field, tuple(
                number("Modes", f"{field}[{i}]", value, lambda v: True, "a finite number", "It is one component's.")
                for i, value in enumerate(values)
            ))
        if not len(self.lambdas) == len(self.q) == len(self.e0) >= 2:
            raise InvalidValue("Modes needs at least two components, and lambdas, q and e0 of one length, but they "
                               f"have {len(self.lambdas)}, {len(self.q)} and {len(self.e0)}. Give each all three.")
        if min(self.lambdas) <= 0 or min(self.q) <= 0 or any(e == 0 for e in self.e0):
            raise InvalidValue(f"Modes needs lambdas > 0, q > 0 and e0 different from 0, but this is {self}. Leave out "
                               "components that do not move or do not count.")
        if len(set(self.lambdas)) < len(self.lambdas):
            raise invalid("Modes", "lambdas", "pairwise distinct", self.lambdas, "Equal modes are one mode.")

    def error(self, etas: list[float]) -> float:
        """Q(e_K) = 1/2 sum_i q_i e_{i,0}^2 prod_k (1 - eta_k lambda_i)^2."""
        return 0.5 * sum(
            q * e**2 * math.prod((1 - eta * rate) ** 2 for eta in etas)
            for rate, q, e in zip(self.lambdas, self.q, self.e0, strict=True)
        )

    def zeroing_schedule(self, steps: int) -> list[float]:
        """eta_{i-1} = 1 / lambda_i, then the last one again: Q(e_K) = 0 up to rounding."""
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < len(self.lambdas):
            raise invalid("zeroing_schedule", "steps", f"a whole number >= {len(self.lambdas)}, one per mode", steps,
                          "Fewer loops cannot remove every mode.")
        etas = [1 / rate for rate in self.lambdas]
        return etas + [etas[-1]] * (steps - len(etas))

    def constant_bound(self, steps: int) -> float:
        """What every constant eta stays above: the proposition's bound, at its largest over the pairs i, j."""
        modes = list(zip(self.lambdas, self.q, self.e0, strict=True))
        return max(
            0.5 * min(q_i * e_i**2, q_j * e_j**2) * ((l_j - l_i) / (l_j + l_i)) ** (2 * steps)
            for l_i, q_i, e_i in modes
            for l_j, q_j, e_j in modes
            if l_i < l_j
        )


@dataclass(frozen=True)
class TwoModes:
    """One mode that contracts steadily (by r) beside one that alternates (by -r), at the unit step.

    L(x, z) = ((1 - r) x^2 + (1 + r) z^2) / 2 and Delta = (-(1 - r) x, -(1 + r) z). With beta = r, one warmup step
    and horizon K >= 2, the observable energies at the first controlled step are exactly proportional to the oracle's
    (proposition "exact proxy-oracle proportionality"): P = a P-hat, S = b S-hat, A_1 = A-bar.
    """

    r: float
    x0: float
    z0: float
    horizon: int

    def __post_init__(self) -> None:
        number("TwoModes", "r", self.r, lambda v: 0 < v < 1, "a number in (0, 1)",
               "It is both modes' rate of contraction.")
        for field in ("x0", "z0"):
            number("TwoModes", field, getattr(self, field), lambda v: True, "a finite number",
                   "It is where that mode starts.")
        if isinstance(self.horizon, bool) or not isinstance(self.horizon, int) or self.horizon < 2:
            raise invalid("TwoModes", "horizon", "a whole number >= 2", self.horizon, "The controlled step is k = 1.")

    @property
    def steady_square(self) -> float:
        """U_0^2 = ((1 - r) x_0)^2, the squared first update of the steady mode."""
        return ((1 - self.r) * self.x0) ** 2

    @property
    def alternating_square(self) -> float:
        """V_0^2 = ((1 + r) z_0)^2, the squared first update of the alternating mode."""
        return ((1 + self.r) * self.z0) ** 2

    @property
    def progress_hat(self) -> float:
        """P-hat_1 = 2 r^2 U_0^2 / (1 + r)^2: the alternating mode cancels."""
        return 2 * self.r**2 * self.steady_square / (1 + self.r) ** 2

    @property
    def fluctuation_hat(self) -> float:
        """S-hat_1 = r (1 - r)^2 U_0^2 / (2 (1 + r)^2) + r V_0^2 / 2."""
        r = self.r
        return r * (1 - r) ** 2 * self.steady_square / (2 * (1 + r) ** 2) + r * self.alternating_square / 2

    @property
    def a(self) -> float:
        """P_1 = a P-hat_1 with a = r^(2K - 3) (1 + r^2)."""
        return self.r ** (2 * self.horizon - 3) * (1 + self.r**2)

    @property
    def b(self) -> float:
        """S_1 = b S-hat_1 with b = 2 r^(2K - 2)."""
        return 2 * self.r ** (2 * self.horizon - 2)

    @property
    def gamma(self) -> float:
        """b / a = 2 r / (1 + r^2): the weight at which sign(B-hat) is sign(A)."""
        return 2 * self.r / (1 + self.r**2)

    @property
    def rho_limit(self) -> float:
        """Below 2 r / (1 + r), the controlled step lowers the terminal loss unless A_1 = 0."""
        return 2 * self.r / (1 + self.r)

    @property
    def progress(self) -> float:
        """P_1 = 2 r^(2K-1) (1 + r^2) U_0^2 / (1 + r)^2."""
        r = self.r
        return 2 * r ** (2 * self.horizon - 1) * (1 + r**2) * self.steady_square / (1 + r) ** 2

    @property
    def fluctuation(self) -> float:
        """S_1 = r^(2K-1) ((1 - r)^2 U_0^2 / (1 + r)^2 + V_0^2)."""
        r = self.r
        steady = (1 - r) ** 2 * self.steady_square / (1 + r) ** 2
        return r ** (2 * self.horizon - 1) * (steady + self.alternating_square)

    @property
    def advantage(self) -> float:
        """A_j = r^(2K-1) (U_0^2 - V_0^2), the same at every step of the unit reference."""
        return self.r ** (2 * self.horizon - 1) * (self.steady_square - self.alternating_square)

    @property
    def curvature(self) -> float:
        """H_1 = phi_1'' = r^(2K-2) ((1 - r) U_0^2 + (1 + r) V_0^2)."""
        r = self.r
        return r ** (2 * self.horizon - 2) * ((1 - r) * self.steady_square + (1 + r) * self.alternating_square)

    def terminal_loss(self, eta: float) -> float:
        """phi_1(eta): the loss after `horizon` steps with scale eta at k = 1 and 1 elsewhere."""
        r = self.r
        steady = (1 - r) * self.x0**2 * (1 - (1 - r) * eta) ** 2
        alternating = (1 + r) * self.z0**2 * (1 - (1 + r) * eta) ** 2
        return r ** (2 * self.horizon - 2) / 2 * (steady + alternating)

    def gain(self, eta: float) -> float:
        """phi_1(1) - phi_1(eta) = (eta - 1) A_1 - H_1 (eta - 1)^2 / 2: the gain bound, here with equality."""
        return (eta - 1) * self.advantage - self.curvature * (eta - 1) ** 2 / 2
