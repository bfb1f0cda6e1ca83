"""Everything a run needs to go on exactly where it was, and how it is put back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from looptaps.errors import InvalidUse
from looptaps.loop import begin_memory
from looptaps.train import checkpointing as files
from looptaps.train.carry import Slots
from looptaps.train.meter import Meter
from looptaps.train.recipe import Recipe, recipe_from

if TYPE_CHECKING:
    from looptaps.train.trainer import Trainer


def save(trainer: Trainer, path: Path) -> None:
    """Write the checkpoint; a kill at any moment leaves the old one or the new one, never a part.

    The first process writes last, and what the others wrote for the old checkpoint goes only after that.
    """
    if trainer.rank:
        files.save(_of_rank(path, trainer.rank, trainer.step), _own(trainer))
    trainer.accelerator.wait_for_everyone()
    if trainer.is_main:
        trainer.curve.sync()
        trainer.log.sync()
        files.save(path, {
            **_own(trainer),
            "world_size": trainer.world,
            "model": trainer.model.state_dict(),
            "ema": trainer.ema.state_dict(),
            "optimizer": trainer.optimizer.state_dict(),
            "scheduler": trainer.scheduler.state_dict(),
            "recipe": trainer.recipe.model_dump(mode="json"),
            "stages": trainer.stages,
            "skipped": trainer.skipped,
            "bad_in_a_row": trainer.bad_in_a_row,
            "wall": trainer.wall,
            "cpu": trainer.cpu,
            "meter": trainer.meter.sums,
        })
    trainer.accelerator.wait_for_everyone()
    if trainer.rank:
        keep = _of_rank(path, trainer.rank, trainer.step)
        for old in path.parent.glob(f"{path.stem}.rank{trainer.rank}-*.pt"):
            if old != keep:
                old.unlink()


def restore(trainer: Trainer, path: Path) -> None:
    """Put a checkpoint back into a trainer with the same recipe (its schedule may differ)."""
    state = files.load(path)
    before = recipe_from(state["recipe"], str(path))
    _check_same(before, trainer.recipe)
    if state["world_size"] != trainer.world:
        raise InvalidUse(f"{path} was written by {state['world_size']} processes, but there are {trainer.world}. "
                         "Launch as many.")
    own = files.load(_of_rank(path, trainer.rank, state["step"])) if trainer.rank else state
    trainer.data.stream.load_state_dict(own["stream"])
    trainer.model.load_state_dict(state["model"])
    trainer.ema.load_state_dict(state["ema"])
    trainer.optimizer.load_state_dict(state["optimizer"])
    trainer.scheduler.load_state_dict(state["scheduler"])
    if before.optimizer.lr != trainer.recipe.optimizer.lr:
        trainer.scheduler.base_lrs = [trainer.recipe.optimizer.lr] * len(trainer.scheduler.base_lrs)
    trainer.step = state["step"]
    trainer.explorer.set_state(own["explorer"])
    torch.set_rng_state(own["torch_rng"])
    trainer.slots = [_slots(trainer, values) for values in own["slots"]]
    trainer.stages = state["stages"]
    trainer.skipped, trainer.bad_in_a_row = state["skipped"], state["bad_in_a_row"]
    trainer.wall_before, trainer.cpu_before = state["wall"], state["cpu"]
    trainer.meter = Meter(state["meter"])


def _of_rank(path: Path, rank: int, step: int) -> Path:
    return path.with_name(f"{path.stem}.rank{rank}-{step}.pt")


def _own(trainer: Trainer) -> dict[str, Any]:
    """What each process has for itself."""
    slots = [
        {"batch": s.batch, "carry": files.plain(s.carry), "memory": files.plain(s.memory), "loops": s.loops,
         "least": s.least, "halted": s.halted}
        for s in trainer.slots
    ]
    return {"step": trainer.step, "slots": slots, "stream": trainer.data.stream.state_dict(),
            "explorer": trainer.explorer.get_state(), "torch_rng": torch.get_rng_state()}


def _slots(trainer: Trainer, values: dict[str, Any]) -> Slots:
    device = trainer.device
    batch = {key: tokens.to(device) for key, tokens in values["batch"].items()}
    slots = Slots(batch, None, None, *(values[key].to(device) for key in ("loops", "least", "halted")))
    if values["carry"] is None:
        return slots
    with torch.no_grad():
        fresh = trainer.model.begin(batch)
    memory = None
    if values["memory"] is not None:
        template = begin_memory(trainer.control.rule(), fresh.z_L, trainer.control.scope_over())
        memory = files.rebuilt(template, values["memory"])
    return slots._replace(carry=files.rebuilt(fresh, values["carry"]), memory=memory)


def _check_same(before: Recipe, now: Recipe) -> None:
    """A resumed run may change how long and how fast it goes and what it shows; what it trains must stay."""
    for section in ("model", "batch_size", "accumulate", "seed", "data", "control"):
        old, new = getattr(before, section), getattr(now, section)
        if section == "model":  # compiling changes no weights
            old, new = (model.model_copy(update={"compile": False}) for model in (old, new))
        if old != new:
            raise InvalidUse(f"The recipe's {section} is {new!r}, but the run began with {old!r}. Keep it; "
                             "schedule, optimizer.lr, loss, halting and logging may change.")
    for field in ("kind", "betas", "weight_decay"):
        old, new = getattr(before.optimizer, field), getattr(now.optimizer, field)
        if old != new:
            raise InvalidUse(f"The recipe's optimizer.{field} is {new!r}, but the run began with {old!r}. Keep it; "
                             "optimizer.lr may change.")
