"""The training run: steps, logs, validation, checkpoints, and exact resume."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from looptaps.errors import InvalidFile, InvalidUse, InvalidValue
from looptaps.loop import Control, begin_memory
from looptaps.specs import spec
from looptaps.train import checkpointing as files
from looptaps.train.carry import Slots, SupervisedStep, empty_slots, refill, settle
from looptaps.train.data import make_data
from looptaps.train.models import build_model
from looptaps.train.optim import make_ema, make_optimizer, make_scheduler
from looptaps.train.progress import Display
from looptaps.train.recipe import Recipe, recipe_from
from looptaps.train.validation import averaged_weights, exact_by_loop

# So many steps in a row without a finite gradient end the run.
_PATIENCE = 10


class Trainer:
    """A run in a folder: `last.pt` (everything), `curve.jsonl` (validation), `log.jsonl` (training), `run.json`.

    Args:
        recipe: what to train.
        folder: where the run lives.
        data: files of rows to mix in.
        resume: go on from the folder's `last.pt`; without it the folder must not hold a run yet.

    >>> from looptaps.train import Trainer, load_recipe  # doctest: +SKIP
    >>> Trainer(load_recipe("recipes/train_sudoku.toml"), "runs/sudoku").run()  # doctest: +SKIP
    """

    def __init__(
        self, recipe: Recipe, folder: str | Path, *, data: Sequence[str | Path] = (), resume: bool = False
    ) -> None:
        self.recipe, self.folder = recipe, Path(folder)
        self.last = self.folder / "last.pt"
        if self.last.exists() and not resume:
            raise InvalidUse(f"{self.folder} already holds a run. Pass --resume to go on with it, or another folder.")
        state = files.load(self.last) if resume else None
        tracker = None if recipe.tracker == "none" else recipe.tracker
        self.accelerator = Accelerator(log_with=tracker, project_dir=str(self.folder))
        self.device, self.world = self.accelerator.device, self.accelerator.num_processes
        self.rank, self.is_main = self.accelerator.process_index, self.accelerator.is_main_process
        self.data = make_data(recipe, [Path(path) for path in data], rank=self.rank, world_size=self.world)
        generator = torch.Generator().manual_seed(recipe.seed)
        self.model: Any = build_model(recipe, self.data.stream.seq_len, self.data.stream.vocab_size, generator)
        self.model.to(self.device)
        if recipe.model.compile:
            self.model.compile_core(dynamic=False)
        self.control = _control(recipe)
        step_module = SupervisedStep(self.model, recipe.loss, self.control)
        self.ema = make_ema(self.model, recipe.optimizer.ema)
        optimizer = make_optimizer(recipe.optimizer, self.model)
        self.module, self.optimizer = self.accelerator.prepare(step_module, optimizer)
        self.explorer = torch.Generator().manual_seed(recipe.seed * 1_000_003 + self.rank + 1)
        self.slots = [empty_slots(self.data.stream, recipe.batch_size, self.device)
                      for _ in range(recipe.accumulate)]
        self.step, self.skipped, self.bad_in_a_row = 0, 0, 0
        self.wall_before, self.cpu_before = 0.0, 0.0
        self.stages: list[dict[str, Any]] = []
        self.meter = _Meter()
        self.curve, self.log = files.Lines(self.folder / "curve.jsonl"), files.Lines(self.folder / "log.jsonl")
        self._clock = self._cpu_clock = 0.0
        self._start_clocks()
        self.scheduler = make_scheduler(recipe.schedule, optimizer, self._progress_at)
        if state is not None:
            self._restore(state)
        if not self.stages or self.stages[-1]["recipe"] != recipe.model_dump(mode="json"):
            self.stages.append({"from_step": self.step, "recipe": recipe.model_dump(mode="json"),
                                "data": self.data.files})

    # -- time ---------------------------------------------------------------------------------------------------

    def _start_clocks(self) -> None:
        self._clock, self._cpu_clock = time.monotonic(), time.process_time()

    @property
    def wall(self) -> float:
        """Seconds of training so far, resumed runs included."""
        return self.wall_before + time.monotonic() - self._clock

    @property
    def cpu(self) -> float:
        """CPU seconds of the first process so far."""
        return self.cpu_before + time.process_time() - self._cpu_clock

    def _progress_at(self, step: int) -> float:
        schedule = self.recipe.schedule
        by_steps = step / schedule.steps
        if schedule.minutes is None:
            return by_steps
        return max(by_steps, self._agreed(self.wall) / (60 * schedule.minutes))

    def _agreed(self, value: float) -> float:
        # Every process must take the same decision from the clock.
        if self.world == 1:
            return value
        from accelerate.utils import broadcast

        shared = torch.tensor([value], dtype=torch.float64, device=self.device)
        return float(broadcast(shared)[0])

    # -- the run ------------------------------------------------------------------------------------------------

    def run(self, on_step: Callable[[int, float], None] | None = None) -> Path:
        """Train to the end of the schedule and export; returns the folder of the exported model."""
        recipe = self.recipe
        self._start_clocks()
        if recipe.tracker != "none":
            self.accelerator.init_trackers(recipe.name)
        if self.is_main:
            self._describe()
        saved = time.monotonic()
        with Display(recipe.name, quiet=not self.is_main) as display:
            done = self._progress_at(self.step)
            while done < 1:
                loss = self._one_step()
                if on_step is not None:
                    on_step(self.step, loss)
                done = self._progress_at(self.step)
                display.advance(done)
                if self.step % recipe.log_every == 0:
                    self._report(display, done)
                if self.step % recipe.validation.every == 0 and done < 1:
                    self._validate(display)
                due = time.monotonic() - saved > 60 * recipe.checkpoint_minutes
                if self._agreed(float(due)):
                    self.save()
                    saved = time.monotonic()
            if not any(line["step"] == self.step for line in self.curve.read()):
                self._validate(display)
            self.save()
        if recipe.tracker != "none":
            self.accelerator.end_training()
        from looptaps.train.export import export

        return export(self.folder) if self.is_main else self.folder / "model"

    def _one_step(self) -> float:
        recipe, total = self.recipe, 0.0
        self.module.train()
        for i, slots in enumerate(self.slots):
            slots = refill(slots, self.data.stream, recipe.halting, self.explorer)
            last = i == len(self.slots) - 1
            with _sync(self.accelerator, self.module, last):
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
            # One bad sample must not reach the weights: this step is left out, and settle() replaced the sample.
            self.skipped += 1
            self.bad_in_a_row += 1
            if self.bad_in_a_row >= _PATIENCE:
                raise InvalidValue(f"Training diverged: {_PATIENCE} steps in a row had no finite gradient (step "
                                   f"{self.step}). Lower optimizer.lr, and resume from {self.last}.")
        self.optimizer.zero_grad()
        self.step += 1
        self.scheduler.step()
        return total

    def _report(self, display: Display, done: float) -> None:
        wall = self.wall
        line = self.meter.line(self.world)
        line.update(step=self.step, lr=self.scheduler.get_last_lr()[0], seconds=wall, cpu_seconds=self.cpu,
                    samples=self.data.stream.position, skipped=self.skipped,
                    left=wall * (1 - done) / done if done > 0 else float("inf"))
        self.meter = _Meter()
        if self.is_main:
            self.log.append(line)
            display.interval(line, done)
        if self.recipe.tracker != "none":
            self.accelerator.log({f"train/{k}": v for k, v in line.items() if k != "step"}, step=self.step)

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
        files.write_json(self.folder / "run.json", {"stages": self.stages, "parameters": count,
                                                    "config": self.model.config.to_dict(),
                                                    "recipe_sha256": self.recipe.digest, "torch": torch.__version__})

    # -- checkpoints --------------------------------------------------------------------------------------------

    def _own(self) -> dict[str, Any]:
        """What each process has for itself."""
        slots = [{"batch": s.batch, "carry": files.plain(s.carry), "memory": files.plain(s.memory),
                  "loops": s.loops_B, "least": s.least_B, "halted": s.halted_B} for s in self.slots]
        return {"step": self.step, "slots": slots, "stream": self.data.stream.state_dict(),
                "explorer": self.explorer.get_state(), "torch_rng": torch.get_rng_state()}

    def save(self, path: Path | None = None) -> None:
        """Write the checkpoint; a kill at any moment leaves the old one or the new one, never a part."""
        path = path or self.last
        if self.rank:
            files.save(path.with_name(f"{path.stem}.rank{self.rank}-{self.step}.pt"), self._own())
        self.accelerator.wait_for_everyone()
        if self.is_main:
            files.save(path, {
                **self._own(),
                "world_size": self.world,
                "model": self.model.state_dict(),
                "ema": self.ema.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(),
                "recipe": self.recipe.model_dump(mode="json"),
                "stages": self.stages,
                "skipped": self.skipped,
                "bad_in_a_row": self.bad_in_a_row,
                "wall": self.wall,
                "cpu": self.cpu,
                "meter": self.meter.sums,
            })
        self.accelerator.wait_for_everyone()
        if self.rank:
            for old in path.parent.glob(f"{path.stem}.rank{self.rank}-*.pt"):
                if not old.stem.endswith(f"-{self.step}"):
                    old.unlink()

    def _restore(self, state: dict[str, Any]) -> None:
        before = recipe_from(state["recipe"], str(self.last))
        _check_same(before, self.recipe)
        if state["world_size"] != self.world:
            raise InvalidUse(f"{self.last} was written by {state['world_size']} processes, but there are {self.world}. "
                             "Launch as many.")
        self.model.load_state_dict(state["model"])
        self.ema.load_state_dict(state["ema"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        own = state
        if self.rank:
            own = files.load(self.last.with_name(f"last.rank{self.rank}-{state['step']}.pt"))
        self.step = state["step"]
        self.data.stream.load_state_dict(own["stream"])
        self.explorer.set_state(own["explorer"])
        torch.set_rng_state(own["torch_rng"])
        if len(own["slots"]) != len(self.slots) or own["slots"][0]["halted"].shape != self.slots[0].halted_B.shape:
            raise InvalidFile(f"{self.last} has another batch_size or accumulate. Resume with those it began with.")
        self.slots = [self._slots(values) for values in own["slots"]]
        self.stages = state["stages"]
        self.skipped, self.bad_in_a_row = state["skipped"], state["bad_in_a_row"]
        self.wall_before, self.cpu_before = state["wall"], state["cpu"]
        self.meter = _Meter(state["meter"])
        if self.is_main:
            self.curve.cut(self.step)
            self.log.cut(self.step)

    def _slots(self, values: dict[str, Any]) -> Slots:
        batch = {key: tokens.to(self.device) for key, tokens in values["batch"].items()}
        slots = Slots(batch, None, None, *(values[key].to(self.device) for key in ("loops", "least", "halted")))
        if values["carry"] is None:
            return slots
        with torch.no_grad():
            fresh = self.model.begin(batch)
        carry = files.rebuilt(fresh, values["carry"])
        memory = None
        if values["memory"] is not None:
            template = begin_memory(self.control.rule(), fresh.z_L, self.control.scope_over())
            memory = files.rebuilt(template, values["memory"])
        return slots._replace(carry=carry, memory=memory)


class _Meter:
    """Means since the last log line. Sums over samples, so that a resumed run reports the same."""

    def __init__(self, sums: dict[str, float] | None = None) -> None:
        self.sums = dict(sums or {})
        self.since = time.monotonic()

    def add(self, output: Any, slots: Slots) -> None:
        size = output.exact_B.shape[0]
        halted = slots.halted_B
        for key, value in (
            ("steps", 1), ("samples", size), ("loss", float(output.loss.detach()) * size),
            ("answer", float(torch.where(output.finite_B, output.answer_B, 0).sum())),
            ("halted", int(halted.sum())), ("exact", int((output.exact_B & halted).sum())),
            ("loops", int(slots.loops_B[halted].sum())), ("penalty", float(output.penalty) * size),
            ("bad", int((~output.finite_B).sum())),
        ):
            self.sums[key] = self.sums.get(key, 0) + value
        if output.q_halt_B is not None:
            agrees = ((output.q_halt_B >= 0) == output.exact_B) & halted
            self.sums["q_right"] = self.sums.get("q_right", 0) + int(agrees.sum())

    def line(self, world: int) -> dict[str, Any]:
        """Of the first process: losses per sample-step; exact, loops and q_accuracy over samples that halted."""
        sums, halted = self.sums, max(self.sums["halted"], 1)
        seconds = max(time.monotonic() - self.since, 1e-9)
        return {
            "loss": sums["loss"] / sums["samples"], "answer_loss": sums["answer"] / sums["samples"],
            "penalty": sums["penalty"] / sums["samples"], "exact": sums["exact"] / halted,
            "loops": sums["loops"] / halted, "q_accuracy": sums.get("q_right", 0) / halted, "bad": sums["bad"],
            "per_second": world * sums["samples"] / seconds,
        }


def _sync(accelerator: Accelerator, module: Any, last: bool) -> Any:
    from contextlib import nullcontext

    return nullcontext() if last else accelerator.no_sync(module)


def _control(recipe: Recipe) -> Control:
    from looptaps.controllers import Standard

    section = recipe.control
    if section is None:
        return Control(Standard())
    return Control(spec(section.controller), site=section.site, every=section.every, memory=section.memory,
                   grad_through_eta=section.grad_through_eta)


def _check_same(before: Recipe, now: Recipe) -> None:
    """A resumed run may change how long and how fast it goes; what it trains must stay."""
    for section in ("model", "batch_size", "accumulate", "seed", "data", "control"):
        old, new = getattr(before, section), getattr(now, section)
        if section == "model":  # compiling changes no weights
            old, new = (m.model_copy(update={"compile": False}) for m in (old, new))
        if old != new:
            raise InvalidUse(f"The recipe's {section} differs from the run's: {new!r} instead of {old!r}. Resume with "
                             "the same; schedule, optimizer.lr, loss and logging may change.")
