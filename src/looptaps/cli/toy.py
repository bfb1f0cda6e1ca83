"""`looptaps toy`: every rule on a toy loop whose samples want different scales."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from torch import Tensor

    from looptaps.loop.iterate import Rollout
    from looptaps.testing import AffineCore

MODES, LOOPS = 16, 32
CONSTANTS = (0.8, 0.9, 1.1, 1.2)
GRID = tuple(i / 100 for i in range(70, 131))
RULES = ("taps-gd", "taps-sign", "taps-momentum", "taps-rmsprop", "taps-adam", "taps-bb")
COLUMNS = ("policy", "loss at the end", "loops to unit's", "eta by sample", "loss at mean eta")

app = typer.Typer(add_completion=False)


class Line(NamedTuple):
    """One policy: its terminal loss, the first loop at or below unit's terminal loss (None: never), the lowest and
    highest mean eta of a sample, and, for a rule, the loss of the constant at its overall mean eta."""

    policy: str
    loss: float
    loops: int | None
    low: float
    high: float
    matched: float | None


@app.command()
def toy_table() -> None:
    """Run unit step, constants and the six TAPS rules on a toy loop, and print what each reached."""
    console = Console(soft_wrap=True)
    console.print(
        f"x <- x + eta (f(x) - x), {LOOPS} loops. f contracts each of {MODES} modes by its own rate; sample b of "
        f"0..{MODES} has b modes\nthat overshoot (each step turns around) and {MODES} - b that creep (each step goes "
        "on in the same direction).\n"
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(COLUMNS[0], no_wrap=True)
    for column in COLUMNS[1:]:
        table.add_column(column, justify="right")
    for line in lines():
        table.add_row(*cells(line))
    console.print(table)
    console.print(
        "\nLoss at mean eta: what a constant at the rule's own mean eta reaches. The toy shows the mechanism and no "
        "more: it is\nbuilt so that no one eta suits every sample, and says nothing about gains on a trained model."
    )


def cells(line: Line) -> tuple[str, ...]:
    """A line as the table shows it."""
    low, high = f"{line.low:.2f}", f"{line.high:.2f}"
    return (
        line.policy,
        f"{line.loss:.3g}",
        "never" if line.loops is None else str(line.loops),
        low if low == high else f"{low} to {high}",
        "" if line.matched is None else f"{line.matched:.3g}",
    )


def lines() -> list[Line]:
    """The whole table; the toy has no randomness, so neither has this."""
    import looptaps as lt

    core, x = toy()
    target = losses(core, x, lt.Standard())[-1]
    best = min(GRID, key=lambda eta: losses(core, x, lt.Constant(eta))[-1])
    fixed = {"unit step": lt.Standard(), **{f"constant {eta:g}": lt.Constant(eta) for eta in CONSTANTS}}
    fixed[f"best constant: {best:g}"] = lt.Constant(best)
    return [
        *(_line(policy, core, x, controller, target) for policy, controller in fixed.items()),
        *(_line(name, core, x, lt.spec(name), target, adaptive=True) for name in RULES),
    ]


def toy() -> tuple[AffineCore, Tensor]:
    """Rates from 0.90 to 0.97 in size, negative for b of sample b's modes; every mode starts at 1."""
    import torch

    from looptaps.testing import AffineCore

    size = torch.linspace(0.90, 0.97, MODES, dtype=torch.float64)
    place = 7 * torch.arange(MODES) % MODES  # so that those that overshoot are spread over all sizes
    overshoots = place < torch.arange(MODES + 1)[:, None]
    rates = torch.where(overshoots, -size, size)[:, None]
    return AffineCore(rates), torch.ones_like(rates)


def losses(core: AffineCore, x: Tensor, controller: Any) -> list[float]:
    """The mean of |x|^2 / 2 after every loop."""
    import looptaps as lt

    found, memory = [], None
    for _ in range(LOOPS):
        x, memory, _ = lt.iterate(core, x, controller, 1, memory=memory)
        found.append(float(x.square().sum((1, 2)).mean() / 2))
    return found


def _line(
    policy: str, core: AffineCore, x: Tensor, controller: Any, target: float, *, adaptive: bool = False
) -> Line:
    import looptaps as lt

    path = losses(core, x, controller)
    run: Rollout = lt.iterate(core, x, controller, LOOPS, trace=True)
    assert run.trace is not None
    mean = run.trace.eta.mean(0)
    return Line(
        policy,
        path[-1],
        next((k + 1 for k, loss in enumerate(path) if loss <= target), None),
        float(mean.min()),
        float(mean.max()),
        losses(core, x, lt.Constant(float(mean.mean())))[-1] if adaptive else None,
    )
