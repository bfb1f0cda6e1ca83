"""Train a small Ouro on chained assignments: every recurrent step is supervised, the number of steps is random.

    loss = mean_k CE_k + sum_k p_k sg(CE_k) - beta H(p),    k = 1..T,  T ~ U{least..most}

CE_k is the cross-entropy of the answers read after step k, p the exit distribution of the gate, sg a stopped gradient
(the gate learns when to leave, and does not push the model).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from looptaps.errors import InvalidUse, InvalidValue, invalid
from looptaps.tasks.chains import VOCABULARY, Asked, Questions, ask_all, questions, sample_chains
from looptaps.train import checkpointing as files
from looptaps.train.language_recipe import LanguageRecipe, OuroRecipe, language_recipe_from
from looptaps.train.optim import make_ema, make_optimizer, make_scheduler

_PATIENCE = 10  # so many steps in a row without a finite gradient end the run


def build_ouro(recipe: OuroRecipe, seed: int) -> Any:
    """A fresh `OuroForCausalLM` over the task's vocabulary, on the CPU."""
    from looptaps.hf.ouro import OuroConfig, OuroForCausalLM

    given = recipe.config
    if "vocab_size" in given:
        raise InvalidUse("The recipe's model.config.vocab_size follows from the task. Leave it out.")
    torch.manual_seed(seed)
    model: Any = OuroForCausalLM(OuroConfig(**{"tie_word_embeddings": False, **given, "vocab_size": len(VOCABULARY),
                                          "pad_token_id": 0, "bos_token_id": None, "eos_token_id": None}))
    with torch.no_grad():
        model.model.embed_tokens.weight.normal_(std=recipe.embedding_std)
        model.model.embed_tokens.weight[0] = 0
        for layer in model.model.layers:
            layer.input_layernorm_2.weight.fill_(recipe.residual)
            layer.post_attention_layernorm_2.weight.fill_(recipe.residual)
    return model


def answer_losses(model: Any, asked: Asked) -> tuple[Tensor, Tensor]:
    """Cross-entropy of every answer after every step (T, B, 2 S), and the gate's expected loss and entropy, (2,)."""
    from looptaps.hf.exits import exit_probabilities

    out = model.model(input_ids=asked.text, use_cache=False)
    states = [state[:, asked.position] for state in out.step_states]
    logits = model.lm_head(torch.stack(states)).float()
    targets = asked.answer.expand(len(states), *asked.answer.shape)
    losses = nn.functional.cross_entropy(logits.flatten(0, 2), targets.flatten(), reduction="none").view(targets.shape)
    pdf = exit_probabilities(model.model.early_exit_gate, [state.detach() for state in states])
    expected = (pdf * losses.detach().movedim(0, -1)).sum(-1).mean()
    entropy = -(pdf * pdf.clamp(min=1e-9).log()).sum(-1).mean()
    return losses, torch.stack([expected, entropy])


@torch.no_grad()
def exact_by_steps(model: Any, asked: Questions, steps: int, batch: int) -> Tensor:
    """Whether each question is answered right after each of so many steps, (count, steps), on the CPU."""
    was = model.config.total_ut_steps
    model.config.total_ut_steps = steps
    try:
        rows = []
        for begin in range(0, len(asked.text), batch):
            text = asked.text[begin:begin + batch].to(model.device)
            states = model.model(input_ids=text, use_cache=False).step_states
            guess = model.lm_head(torch.stack([state[:, -1] for state in states], 1)).argmax(-1).cpu()
            rows.append(guess == asked.answer[begin:begin + batch, None])
    finally:
        model.config.total_ut_steps = was
    return torch.cat(rows)


class LanguageTrainer:
    """A run in a folder: `last.pt` (everything), `curve.jsonl` (accuracy), `log.jsonl`, and at the end `model/`.

    Args:
        recipe: what to train.
        folder: where the run lives.
        device: where to train; None takes a GPU if there is one.
        resume: go on from the folder's `last.pt`; without it the folder must not hold a run yet, and lines of one that
            ended before its first checkpoint are dropped.
    """

    def __init__(self, recipe: LanguageRecipe, folder: str | Path, *, device: str | None = None,
                 resume: bool = False) -> None:
        self.recipe, self.folder = recipe, Path(folder)
        self.last = self.folder / "last.pt"
        if self.last.exists() and not resume:
            raise InvalidUse(f"{self.folder} already holds a run. Pass --resume to go on with it, or another folder.")
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.model = build_ouro(recipe.model, recipe.seed).to(self.device)
        self.step, self.bad, self.wall_before = 0, 0, 0.0
        self.total, self.count = torch.zeros((), device=self.device), 0  # losses since the last line of the log
        self._clock = time.monotonic()
        self.ema = make_ema(self.model, recipe.optimizer.ema)
        self.optimizer = make_optimizer(recipe.optimizer, self.model)
        self.scheduler = make_scheduler(recipe.schedule, self.optimizer, self.progress)
        if recipe.model.compile:
            for layer in self.model.model.layers:
                layer.compile(dynamic=False)
        self.generator = torch.Generator(self.device).manual_seed(recipe.seed + 1)
        self.choices = torch.Generator().manual_seed(recipe.seed + 2)
        self.curve, self.log = files.Lines(self.folder / "curve.jsonl"), files.Lines(self.folder / "log.jsonl")
        if resume:
            self._restore()
        held_out = recipe.validation
        self.held_out = questions(held_out.questions, max(recipe.data.statements), held_out.seed,
                                  reach=recipe.data.reach, restart=recipe.data.restart)
        if not resume:
            self.curve.clear()
            self.log.clear()

    @property
    def wall(self) -> float:
        """Seconds of training so far, resumed runs included."""
        return self.wall_before + time.monotonic() - self._clock

    def progress(self, step: int) -> float:
        """The share of the schedule that is done, 1 at its end."""
        schedule = self.recipe.schedule
        done = step / schedule.steps
        if schedule.minutes is not None:
            done = max(done, self.wall / (60 * schedule.minutes))
        return min(done, 1.0)

    def run(self) -> Path:
        """Train to the end of the schedule and export; returns the folder of the exported model."""
        from looptaps.train.language_export import export_language

        recipe = self.recipe
        self._clock = saved = time.monotonic()
        while self.progress(self.step) < 1:
            self.total, self.count = self.total + self.train_step(), self.count + 1
            if self.step % recipe.log_every == 0:
                line = {"step": self.step, "loss": float(self.total) / self.count, "seconds": self.wall,
                        "lr": self.scheduler.get_last_lr()[0]}
                self.log.append(line)
                print(f"{100 * self.progress(self.step):5.1f} %  step {self.step}  loss {line['loss']:.4f}  "
                      f"{self.wall:.0f} s", flush=True)
                self.total, self.count = torch.zeros((), device=self.device), 0
            if self.step % recipe.validation.every == 0:
                self.validate()
            if time.monotonic() - saved > 60 * recipe.checkpoint_minutes:
                self.save()
                saved = time.monotonic()
        if not any(line["step"] == self.step for line in self.curve.read()):
            self.validate()
        self.save()
        return export_language(self.folder)

    def train_step(self) -> Tensor:
        """One optimizer step; returns the mean loss of the answers, still on the device."""
        recipe = self.recipe
        statements = recipe.data.statements[int(torch.randint(len(recipe.data.statements), (), generator=self.choices))]
        steps = recipe.steps.least + int(torch.randint(recipe.steps.most - recipe.steps.least + 1, (),
                                                       generator=self.choices))
        chains = sample_chains(recipe.batch_size, statements, self.generator, reach=recipe.data.reach,
                               restart=recipe.data.restart)
        asked = ask_all(chains, self.generator)
        self.model.train()
        self.model.config.total_ut_steps = steps
        with torch.autocast(self.device.type, torch.bfloat16, enabled=recipe.precision == "bf16"):
            losses, gate = answer_losses(self.model, asked)
        loss = losses.mean()
        torch.autograd.backward(loss + gate[0] - recipe.steps.entropy * gate[1])
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), recipe.optimizer.clip)
        if bool(torch.isfinite(norm)):
            self.optimizer.step()
            self.ema.update_parameters(self.model)
            self.bad = 0
        else:
            self.bad += 1
            if self.bad >= _PATIENCE:
                raise InvalidValue(f"Training diverged: {_PATIENCE} steps in a row had no finite gradient (up to step "
                                   f"{self.step}). Lower optimizer.lr, and begin anew.")
        self.optimizer.zero_grad()
        self.step += 1
        self.scheduler.step()
        return loss.detach()

    def validate(self) -> None:
        """Accuracy by steps and by depth of the averaged weights, into the curve."""
        options = self.recipe.validation
        model = self.averaged()
        right = exact_by_steps(model, self.held_out, max(options.steps), options.batch).double()
        exact = {str(k): float(right[:, k - 1].mean()) for k in options.steps}
        by_depth = {str(d): float(right[self.held_out.depth == d, -1].mean())
                    for d in sorted(set(self.held_out.depth.tolist()))}
        self.curve.append({"step": self.step, "seconds": self.wall, "exact": exact, "by_depth": by_depth})
        print(f"         right % by steps at step {self.step}: "
              + "  ".join(f"{k}: {100 * share:.1f}" for k, share in exact.items())
              + "   by depth: " + " ".join(f"{100 * share:.0f}" for share in by_depth.values()), flush=True)

    def averaged(self) -> Any:
        """A plain model with the averaged weights."""
        model = build_ouro(self.recipe.model, self.recipe.seed)
        model.load_state_dict({key.removeprefix("module."): value for key, value in self.ema.state_dict().items()
                               if key.startswith("module.")})
        return model.to(self.device).eval()

    def save(self) -> None:
        """Write the checkpoint; a kill at any moment leaves the old one or the new one."""
        self.curve.sync()
        self.log.sync()
        files.save(self.last, {
            "step": self.step, "model": self.model.state_dict(), "ema": self.ema.state_dict(),
            "optimizer": self.optimizer.state_dict(), "scheduler": self.scheduler.state_dict(),
            "recipe": self.recipe.model_dump(mode="json"), "wall": self.wall, "device": self.device.type,
            "generator": self.generator.get_state(), "choices": self.choices.get_state(),
            "total": self.total, "count": self.count,
        })

    def _restore(self) -> None:
        state = files.load(self.last)
        before = language_recipe_from(state["recipe"], str(self.last))
        for section in ("batch_size", "seed", "data", "steps"):
            if getattr(before, section) != getattr(self.recipe, section):
                raise InvalidUse(f"The recipe's {section} is {getattr(self.recipe, section)!r}, but the run began with "
                                 f"{getattr(before, section)!r}. Keep it; schedule and logging may change.")
        if before.model.config != self.recipe.model.config:
            raise InvalidUse("The recipe's model.config differs from the run's. Keep it.")
        if state["device"] != self.device.type:
            raise invalid("looptaps lm train", "--device", f"{state['device']!r}, where the run began",
                          self.device.type, "Random numbers differ between kinds of device.")
        self.model.load_state_dict(state["model"])
        self.ema.load_state_dict(state["ema"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.step, self.wall_before = state["step"], state["wall"]
        self.generator.set_state(state["generator"])
        self.choices.set_state(state["choices"])
        self.total, self.count = state["total"].to(self.device), state["count"]
        self.curve.cut(self.step)
        self.log.cut(self.step)
