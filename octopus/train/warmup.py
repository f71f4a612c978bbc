"""The warm-up: a small hybrid learns from scripted episodes, through the packed path, to search, copy and answer.

Letters: N loss terms.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

from octopus.models.backbone import Backbone
from octopus.rollout.codec import Codec, Control
from octopus.train import saves
from octopus.train.config import LossConfig, OptimizerConfig, StepConfig, digest_of
from octopus.train.journal import Journal
from octopus.train.optimizer import set_learning_rate
from octopus.train.packing import Pack
from octopus.train.step import StepResult, train_step
from octopus.train.warmup_config import ScheduleConfig, ShapeConfig, WarmupConfig
from octopus.train.warmup_data import held_out_pack, packs_ahead

Report = Callable[[str], None]
LIKELIHOOD = LossConfig(name="likelihood")
HELD_OUT = 200
TAUGHT = (Control.FORK, Control.SEARCH, Control.COMMIT, Control.ANSWER)


def new_model(shape: ShapeConfig, vocabulary: int) -> Qwen3_5ForCausalLM:
    """A model of that shape with random weights, in float32."""
    kinds = ["linear_attention"] * (shape.attention_every - 1) + ["full_attention"]
    rotary = int(shape.head_dim * shape.rotary_share)
    sections = [rotary // 2 - 2 * (rotary // 6), rotary // 6, rotary // 6]
    return Qwen3_5ForCausalLM(
        Qwen3_5TextConfig(
            vocab_size=vocabulary,
            hidden_size=shape.hidden,
            intermediate_size=shape.mlp,
            num_hidden_layers=shape.layers,
            layer_types=(kinds * shape.layers)[: shape.layers],
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            linear_num_key_heads=shape.recurrent_key_heads,
            linear_num_value_heads=shape.recurrent_value_heads,
            linear_key_head_dim=shape.recurrent_key_dim,
            linear_value_head_dim=shape.recurrent_value_dim,
            tie_word_embeddings=True,
            max_position_embeddings=8_192,
            eos_token_id=int(Control.END),
            bos_token_id=None,
            pad_token_id=None,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": shape.rope_theta,
                "partial_rotary_factor": shape.rotary_share,
                "mrope_section": sections,
            },
        )
    )


class Warmup:
    """One warm-up in a folder. A run that was stopped goes on from its newest save with the same bits."""

    def __init__(
        self, config: WarmupConfig, *, folder: Path, codec_path: Path, device: str, report: Report = print
    ) -> None:
        torch.manual_seed(config.seed)
        self.config = config
        self.folder = folder
        self.report = report
        self.codec_path = codec_path
        self.codec = Codec.load(codec_path)
        self.model = new_model(config.shape, self.codec.vocabulary)
        self.model.to(device)  # type: ignore[arg-type]  # the library wraps `to` without its signature
        self.backbone = Backbone(self.model)
        schedule = config.schedule
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=0.0, betas=(0.9, schedule.beta2), weight_decay=schedule.weight_decay
        )
        self._run = digest_of(config)
        newest = saves.newest(folder, report=report)
        self.step = 0
        if newest is not None:
            self.step = saves.load(newest, model=self.model, optimizer=self.optimizer, run=self._run)
        saves.tidy(folder)
        self._held_out = held_out_pack(self.codec, count=HELD_OUT, seed=config.seed)
        self._step_config = StepConfig(logit_rows=1 << 20, max_grad_norm=schedule.max_grad_norm)

    def run(self, *, workers: int, seconds: float = math.inf) -> bool:
        """Trains until the recipe's rule says stop, or until `seconds` have passed; returns whether it is finished."""
        started, tokens = time.perf_counter(), 0
        schedule = self.config.schedule
        journal = Journal(self.folder / "metrics.jsonl", step=self.step)
        size = sum(parameter.numel() for parameter in self.model.parameters())
        self.report(f"{size:,} parameters; from step {self.step} of {schedule.steps}")
        if self.step and self._good_enough(turn_accuracy(self.backbone, self._held_out)):
            return True  # It had stopped by the rule before.
        steps = range(self.step, schedule.steps)
        with packs_ahead(
            self.config.data, self.codec_path, seed=self.config.seed, steps=steps, workers=workers
        ) as packs:
            for pack in packs:
                result = self._train(pack)
                self.step += 1
                tokens += pack.plan.length
                late = time.perf_counter() - started > seconds
                if self.step % schedule.check_every_steps == 0 or self.step == schedule.steps or late:
                    rate = tokens / (time.perf_counter() - started)
                    figures = self._check(result.loss, rate)
                    journal.write(self.step, figures)
                    if self._good_enough(figures):
                        return True
                if late:
                    return False
        return True

    def _good_enough(self, figures: dict[str, float]) -> bool:
        """The recipe's rule: every kind of held-out turn is wholly right often enough."""
        return min(figures[control.name.lower()] for control in TAUGHT) > self.config.schedule.stop_share

    def _train(self, pack: Pack) -> StepResult:
        schedule = self.config.schedule
        set_learning_rate(self.optimizer, rates(schedule), step=self.step + 1, steps=schedule.steps)
        return train_step(self.backbone, [pack], self.optimizer, loss=LIKELIHOOD, step=self._step_config)

    def _check(self, loss: float, tokens_per_s: float) -> dict[str, float]:
        """Saves, and scores whole turns on held-out documents: those of which every token would be the greedy one."""
        figures = {"loss": loss, "tokens_per_s": tokens_per_s, **turn_accuracy(self.backbone, self._held_out)}
        saves.save(self.folder, step=self.step, model=self.model, optimizer=self.optimizer, run=self._run)
        shown = "  ".join(f"{name} {value:.3f}" for name, value in figures.items() if name != "tokens_per_s")
        self.report(f"step {self.step}/{self.config.schedule.steps}  {shown}  {tokens_per_s:,.0f} tokens/s")
        return figures


def rates(schedule: ScheduleConfig) -> OptimizerConfig:
    """Linear rise, then a cosine from the highest learning rate to a hundredth of it."""
    return OptimizerConfig(
        learning_rate=schedule.learning_rate, schedule="cosine", warmup_steps=schedule.rise_steps, final_share=0.01
    )


@torch.no_grad()
def turn_accuracy(backbone: Backbone, pack: Pack) -> dict[str, float]:
    """For each kind of action the share of its turns that greedy decoding would get wholly right, given the script."""
    targets = pack.targets
    hidden_TC = backbone.packed(pack.plan)
    rows_N = torch.from_numpy(targets.predictor_rows_N).to(hidden_TC.device)
    best_N = backbone.logits(hidden_TC[rows_N]).argmax(dim=-1).cpu().numpy()
    right_N = best_N == targets.labels_N
    starts = np.flatnonzero(np.isin(targets.labels_N, TAUGHT))
    stops = np.append(starts[1:], len(right_N))
    turns: dict[str, list[bool]] = {control.name.lower(): [] for control in TAUGHT}
    for start, stop in zip(starts, stops, strict=True):
        turns[Control(int(targets.labels_N[start])).name.lower()].append(bool(right_N[start:stop].all()))
    return {name: float(np.mean(outcomes)) if outcomes else math.nan for name, outcomes in turns.items()}
