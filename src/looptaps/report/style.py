"""Colours and line styles: one palette for figures in papers, and for the page in light and in dark.

A figure is drawn in the light colours. On the page each of them becomes a CSS variable, so that the page's own scheme
decides; `css_variables` writes both schemes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from looptaps.report.policy import Policy


class Colour(NamedTuple):
    """A role's colour on white and on the dark page."""

    light: str
    dark: str


# Distinct light values: each is replaced by the variable of its role.
PALETTE = {
    "paper": Colour("#ffffff", "#14171b"),
    "ink": Colour("#1b1f24", "#e9ecef"),
    "muted": Colour("#565d66", "#aab2bb"),
    "grid": Colour("#d9dde2", "#3a4048"),
    "band": Colour("#e8ebef", "#2a2f36"),
    "series-0": Colour("#0069a8", "#5ab4ee"),
    "series-1": Colour("#b84700", "#ff9a57"),
    "series-2": Colour("#007456", "#3fcfa1"),
    "series-3": Colour("#a03a7e", "#e58bc4"),
    "series-4": Colour("#806000", "#e6c04a"),
    "series-5": Colour("#5b4fc7", "#a99ff5"),
}
SERIES = [name for name in PALETTE if name.startswith("series-")]
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)))


class Look(NamedTuple):
    """How one policy is drawn, wherever it is drawn."""

    role: str
    dash: object
    width: float

    @property
    def colour(self) -> str:
        """The role's colour on white."""
        return PALETTE[self.role].light


def looks(policies: list[Policy]) -> dict[str, Look]:
    """Rules get colours (and, after the sixth, dashes), the unit step is ink, constants are grey and dashed."""
    found: dict[str, Look] = {}
    rules = 0
    for policy in policies:
        if policy.kind == "unit":
            found[policy.label] = Look("ink", "-", 2.0)
        elif policy.kind == "constant":
            found[policy.label] = Look("muted", (0, (3, 2)), 1.1)
        else:
            dash = DASHES[rules // len(SERIES) % len(DASHES)]
            found[policy.label] = Look(SERIES[rules % len(SERIES)], dash, 1.5)
            rules += 1
    return found


def css_variables(dark: bool) -> str:
    """The palette as declarations for one scheme."""
    return " ".join(f"--{name}: {colour.dark if dark else colour.light};" for name, colour in PALETTE.items())


def follow_the_page(svg: str) -> str:
    """An SVG text with every colour of the palette replaced by its variable."""
    roles = {colour.light: name for name, colour in PALETTE.items()}
    return re.sub(r"#[0-9a-f]{6}\b", lambda m: f"var(--{roles[m[0]]})" if m[0] in roles else m[0], svg)
