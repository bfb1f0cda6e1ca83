"""The training run: steps, logs, validation, checkpoints."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from accelerate.utils import broadcast  # type: ignore[import-untyped]

from looptaps.errors import InvalidUse, InvalidValue, MissingExtra
from looptaps.loop import Control
from looptaps.tasks.prefetch import Prefetched
from looptaps.train import checkpointing as files
from looptaps.train import snapshot
from looptaps.train.carry import SupervisedStep, empty_slots, refill, settle
from looptaps.train.data import make_data
from looptaps.train.exporting import device_name, export
from looptaps.train.meter import Meter
from looptaps.train.models import build_model
from looptaps.train.optim import make_ema, make_optimizer, make_scheduler
from looptaps.train.progress import Display
from looptaps.train.recipe import Recipe
from looptaps.train.validation import averaged_weights, exact_by_loop

# So many steps in a row without a finite gradient end the run.
_PATIENCE = 10


class Trainer:
    """A run in a folder: `last.pt` (everything), `curve.jsonl` (validation), `log.jsonl` (training), `run.json`.

    Where the learning rate is constant at first, `before-decay.pt` is kept as well: from there a longer run can go on
    without the decay in between.

    Args:
        recipe: what to train.
        folder: where the run lives.
        data: files of rows to mix in.
        resume: go on from the folder's `last.pt`; without it the folder must not hold a run yet, and lines of one that
            ended before its first checkpoint are dropped.
        start: go on, in this new folder, from the checkpoint of another run.
    """

    def __init__(
        self,
        recipe: Recipe,
        folder: str | Path,
        *,
        data: Sequence[str | Path] = (),
        resume: bool = False,
        start: str | Path | None = None,
    ) -> None:
        self.recipe, self.folder = recipe, Path(folder)
        self.last = self.folder / "last.pt"
        if self.last.exists() and not resume:
            raise InvalidUse(f"{self.folder} already holds a run. Pass --resume to go on with it, or another folder.")
        source = self.last if resume else Path(start) if start is not None else None
        if source is not None:
            files.load(source)  # before anything is built: a damaged file is the first thing to know
        self.accelerator = Accelerator(log_with=_tracker(recipe), project_dir=str(self.folder))
        self.device, self.world = self.accelerator.device, self.accelerator.num_processes
        self.rank, self.is_main = self.accelerator.process_index, self.accelerator.is_main_process
        self.data = make_data(recipe, [Path(path) for path in data], rank=self.rank, world_size=self.world)
        if self.device.type != "cpu":  # the same samples, made while the device computes
            self.data = self.data._replace(stream=Prefetched(self.data.stream))
        generator = torch.Generator().manual_seed(recipe.seed)
        self.model: Any = build_model(recipe, self.data.stream.seq_len, self.data.stream.vocab_size, generator)
        self.model.to(self.device)
        if recipe.model.compile:
            self.model.compile_core(dynamic=False)
        self.control = _control(recipe)
        if callable(getattr(self.model, "check_control", None)):
            self.model.check_control(self.control)
        self.ema = make_ema(self.model, recipe.optimizer.ema)
        optimizer = make_optimizer(recipe.optimizer, self.model)
        step_module = SupervisedStep(self.model, recipe.loss, self.control)
        self.module, self.optimizer = self.accelerator.prepare(step_module, optimizer)
        self.explorer = torch.Generator().manual_seed(recipe.seed * 1_000_003 + self.rank + 1)
        self.slots = [empty_slots(self.data.stream, recipe.batch_size, self.device) for _ in range(recipe.accumulate)]
        self.step, self.skipped, self.bad_in_a_row = 0, 0, 0
        self.wall_before, self.cpu_before = 0.0, 0.0
        self._clocks = time.monotonic(), time.process_time()
        self.stages: list[dict[str, Any]] = []
        self.meter = Meter()
        self.curve, self.log = files.Lines(self.folder / "curve.jsonl"), files.Lines(self.folder / "log.jsonl")
        self.scheduler = make_scheduler(recipe.schedule, optimizer, self.progress)
        if source is not None:
            snapshot.restore(self, source)
            if self.is_main:
                self.curve.cut(self.step, source.with_name("curve.jsonl"))
                self.log.cut(self.step, source.with_name("log.jsonl"))
        elif self.is_main:
            self.curve.clear()
            self.log.clear()
        values = recipe.model_dump(mode="json")
        if not self.stages or self.stages[-1]["recipe"] != values:
            self.stages.append({"from_step": self.step, "recipe": values, "data": self.data.files,
                                "device": device_name(self.device, self.world)})

    @property
    def wall(self) -> float:
        """Seconds of training so far, resumed runs included."""
        return self.wall_before + time.monotonic() - self._clocks[0]

    @property
    def cpu(self) -> float:
        """CPU seconds of this process so far, resumed runs included."""
        return self.cpu_before + time.process_time() - self._clocks[1]

    def progress(self, step: int) -> float:
        """The share of the schedule that is done, 1 at its end."""
        schedule = self.recipe.schedule
        done = step / schedule.steps
        if schedule.minutes is not None:
            done = max(done, self._agreed(self.wall) / (60 * schedule.minutes))
        return min(done, 1.0)

    def _agreed(self, value: float) -> float:
        # Every process must take the same decision from the clock: the first one's.
        if self.world == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64, device=self.device)
        return float(broadcast(shared)[0])

    def run(self, on_step: Callable[[int, float], None] | None = None) -> Path:
        """Train to the end of the schedule and export; returns the folder of the exported model.

        `on_step(step, loss)` is called after every step.
        """
        recipe = self.recipe
        self._clocks = time.monotonic(), time.process_time()
        if recipe.tracker != "none":
            self.accelerator.init_trackers(recipe.name)
        if self.is_main:
            self._describe()
        saved = time.monotonic()
        with Display(recipe.name, quiet=not self.is_main) as display:
            done = self.progress(self.step)
            while done < 1:
                loss = self.train_step()
                if on_step is not None:
                    on_step(self.step, loss)
                was, done = done, self.progress(self.step)
                display.advance(done)
                if self.step % recipe.log_every == 0:
                    self._report(display, done)
                if self.step % recipe.validation.every == 0 and done < 1:
                    self._validate(display)
                if recipe.schedule.kind == "constant" and was < recipe.schedule.decay_from <= done:
                    snapshot.save(self, self.folder / "before-decay.pt")
                if self._agreed(float(time.monotonic() - saved > 60 * recipe.checkpoint_minutes)):
                    self.save()
                    saved = time.monotonic()
            # The first process writes the curve: another might find the line or not, and wait for one barrier less.
            if self._agreed(float(all(line["step"] != self.step for line in self.curve.read()))):
                self._validate(display)
            self.save()
        if recipe.tracker != "none":
            self.accelerator.end_training()
        return export(self.folder) if self.is_main else self.folder / "model"

    def save(self) -> None:
        """Write the checkpoint now."""
        snapshot.save(self, self.last)

    def train_step(self) -> float:
        """One outer loop of every slot and one optimizer step; returns the loss."""
        recipe, total = self.recipe, 0.0
        self.module.train()
        for i, waiting in enumerate(self.slots):
            slots = refill(waiting, self.data.stream, recipe.halting, self.explorer)
            last = i == len(self.slots) - 1
            with nullcontext() if last else self.accelerator.no_sync(self.module):
                output = self.module(slots)
                self.accelerator.backward(output.loss / len(self.slots))
            total += float(output.loss.detach()) / len(self.slots)
            self.slots[i] = settle(slots, output, recipe.halting)
            self.meter.add(output, self.slots[i])
        norm = self.accelerator.clip_grad_norm_(self.model.parameters(), recipe.optimizer.clip)
        if norm is not None and bool(torch.isfinite(norm)):
            self.optimizer.step()
            self.ema.update_parameters(self.model)
            self.bad_in_a_row = 0
        else:
            # One bad sample must not reach the weights: this step is left out, and settle() has the sample replaced.
            self.skipped += 1
            self.bad_in_a_row += 1
            if self.bad_in_a_row >= _PATIENCE:
                raise InvalidValue(f"Training diverged: {_PATIENCE} steps in a row had no finite gradient (up to step "
                                   f"{self.step}). Lower optimizer.lr, and resume from {self.last}.")
        self.optimizer.zero_grad()
        self.step += 1
        if self.skipped < self.step:  # torch's schedules begin with the optimizer's first step
            self.scheduler.step()
        return total

    def _report(self, display: Display, done: float) -> None:
        wall = self.wall
        line = self.meter.line(self.world)
        line.update(step=self.step, lr=self.scheduler.get_last_lr()[0], seconds=wall, cpu_seconds=self.cpu,
                    samples=self.data.stream.position, skipped=self.skipped)
        self.meter = Meter()
        if self.is_main:
            self.log.append(line)
            display.interval(line, done, wall * (1 - done) / done if done > 0 else float("inf"))
        if self.recipe.tracker != "none":
            self.accelerator.log({f"train/{key}": value for key, value in line.items() if key != "step"},
                                 step=self.step)

    def _validate(self, display: Display) -> None:
        if self.is_main:
            options = self.recipe.validation
            self.model.eval()
            with averaged_weights(self.model, self.ema):
                exact = {
                    name: exact_by_loop(self.model, task, self.control, options.loops, options.batch, self.device)
                    for name, task in self.data.validation.items()
                }
            line = {"step": self.step, "cpu_seconds": self.cpu, "seconds": self.wall,
                    "samples": self.data.stream.position, "exact": exact}
            self.curve.append(line)
            display.validated(line)
            if self.recipe.tracker != "none":
                flat = {f"exact/{name}/loop{loop}": share for name, by in exact.items() for loop, share in by.items()}
                self.accelerator.log(flat, step=self.step)
        self.accelerator.wait_for_everyone()

    def _describe(self) -> None:
        count = sum(p.numel() for p in self.model.parameters())
        files.write_json(self.folder / "run.json", {
            "stages": self.stages,
            "parameters": count,
            "config": self.model.config.to_dict(),
            "recipe_sha256": self.recipe.digest,
            "torch": torch.__version__,
        })


def _tracker(recipe: Recipe) -> str | None:
    if recipe.tracker == "none":
        return None
    module = {"wandb": "wandb", "tensorboard": "tensorboard"}[recipe.tracker]
    if importlib.util.find_spec(module) is None:
        raise MissingExtra(f"The recipe's tracker {recipe.tracker!r} is not installed. Run: pip install {module}, or "
                           "set tracker = \"none\".")
    return recipe.tracker


def _control(recipe: Recipe) -> Control:
    from looptaps.controllers import Standard
    from looptaps.specs import spec

    section = recipe.control
    if section is None:
        return Control(Standard())
    return Control(spec(section.controller), site=section.site, every=section.every, memory=section.memory,
                   grad_through_eta=section.grad_through_eta)
