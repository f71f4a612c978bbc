"""One optimiser step of a 4B model on one episode of 143,360 tokens: packed, beside the ways that others train it.

    python benchmarks/train_step.py --json benchmarks/results/train_step.jsonl

The model has the shape of Qwen3.5-4B and random weights in bfloat16. Variants of `paper-143k`:

- `packed`: one row, mounts where they lie; forward, loss, backward and update by `octopus.train`.
- `tree-text`: the same code on a tree with mounts re-read as text, 217,088 tokens.
- `rows`: branch by branch, 610,304 tokens: the Hugging Face model, SDPA by cuDNN, flash-linear-attention; forward and
  backward without an update. One row of each of its two lengths is measured, and the shorter counted 12 times.

Each is run once unmeasured. Gates come first, on `paper-143k/64` and four layers: gradients beside those in float32.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import qwen_4b
import torch
from figures import Figures, command_line
from gradient_errors import worst
from hf_rows import rows_seconds
from shapes import paper_143k, ragged_143k, tree_text_143k

from octopus.models.backbone import Backbone
from octopus.models.recomputing import recompute_layers
from octopus.train.config import LossConfig, OptimizerConfig, StepConfig
from octopus.train.optimizer import new_optimizer
from octopus.train.packing import Pack
from octopus.train.passes import run_pass
from octopus.train.step import StepResult, train_step

LOSS = LossConfig()
OPTIMIZER = OptimizerConfig(learning_rate=1e-6, moments="8bit")


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--scale", type=int, default=1, help="what every length is divided by")
    parser.add_argument("--backend", default="triton", help="of attention")
    parser.add_argument("--logit-rows", type=int, default=2048)
    parser.add_argument("--variants", nargs="+", default=["rows", "packed", "ragged", "tree-text"])
    parser.add_argument("--profile", action="store_true", help="print where the time of a packed step goes")
    parser.add_argument("--json", help="file that the result lines are appended to")
    options = parser.parse_args()
    figures = Figures("train-step", "cuda", command_line(), options.json)
    step = StepConfig(backend=options.backend, logit_rows=options.logit_rows, recompute=True)
    gate(figures, step)
    if figures.red:
        sys.exit("\n".join(figures.red))
    seconds = {}
    if "rows" in options.variants:
        seconds["rows"] = rows_seconds(figures, qwen_4b.config(options.layers), scale=options.scale)
    seconds |= packed_seconds(figures, step, options)
    compare(figures, seconds)
    if figures.red:
        sys.exit("\n".join(figures.red))


def gate(figures: Figures, step: StepConfig) -> None:
    """Gradients of a small step, and whether they are the same again, beside float32 and plain layers."""
    pack = qwen_4b.pack_of(paper_143k(64))
    model = qwen_4b.new_model(qwen_4b.config(4), dtype=torch.bfloat16, device="cuda")
    exact = qwen_4b.new_model(qwen_4b.config(4), dtype=torch.bfloat16, device="cuda").float()
    wanted = gradients(Backbone(exact, layers="plain"), pack, StepConfig(backend="sliced"))
    plain = gradients(Backbone(model, layers="plain"), pack, StepConfig(backend="sliced-cudnn"))
    backbone = Backbone(model, layers="fla")
    straight = gradients(backbone, pack, step)
    recompute_layers(model)
    again = [gradients(backbone, pack, step) for _ in range(2)]
    case = "paper-143k/64, 4 layers"
    same = all(torch.equal(first[name], straight[name]) for first in again for name in straight)
    figures.gate(case, "recomputed gradients are the same, and again", same)
    ours, theirs = (worst(found, wanted) for found in (straight, plain))
    figures.say(case, "gradient_error", round(theirs[1], 5), "relative norm", variant="plain", note=theirs[0])
    figures.say(case, "gradient_error", round(ours[1], 5), "relative norm", note=ours[0])
    figures.gate(case, "error at most 1.5 times that of plain layers", ours[1] <= 1.5 * theirs[1], ours)


def gradients(backbone: Backbone, pack: Pack, step: StepConfig) -> dict[str, torch.Tensor]:
    """Of every weight."""
    backbone.model.zero_grad(set_to_none=True)
    run_pass(backbone, pack, loss=LOSS, step=step, counts=pack.counts)
    return {
        name: weight.grad.clone() for name, weight in backbone.model.named_parameters() if weight.grad is not None
    }


def packed_seconds(figures: Figures, step: StepConfig, options: argparse.Namespace) -> dict[str, float]:
    """Seconds of a step of each packed variant, and for `ragged` those a visible pair beside `packed`'s."""
    packs: dict[str, Callable[[], Pack]] = {
        "packed": lambda: qwen_4b.pack_of(paper_143k(options.scale)),
        "ragged": lambda: qwen_4b.pack_of(ragged_143k(options.scale)),
        "tree-text": lambda: tree_text(options.scale),
    }
    model = qwen_4b.new_model(qwen_4b.config(options.layers), dtype=torch.bfloat16, device="cuda")
    recompute_layers(model)
    backbone, optimizer = Backbone(model), new_optimizer(model, OPTIMIZER)
    seconds: dict[str, float] = {}
    for name in (name for name in packs if name in options.variants):
        pack = packs[name]()
        case = "ragged-143k" if name == "ragged" else "paper-143k"

        def run(pack: Pack = pack) -> StepResult:
            optimizer.zero_grad(set_to_none=True)
            return train_step(backbone, [pack], optimizer, loss=LOSS, step=step)

        with measured(figures, case, name) as clock:
            result = clock(run)
        figures.gate(case, f"{name}: finite, with gradient", result.updated and result.grad_norm > 0, result.grad_norm)
        figures.say(case, "tokens", pack.plan.length, "tokens", variant=name)
        figures.say(case, "visible_pairs", pack.plan.pairs, "pairs", variant=name)
        seconds[name] = result.step_seconds
        if name == "packed" and options.profile:
            show_profile(run)
        if name == "ragged" and "packed" in seconds:
            base = qwen_4b.pack_of(paper_143k(options.scale)).plan
            ratio = (seconds[name] / pack.plan.pairs) / (seconds["packed"] / base.pairs)
            figures.bound(case, "seconds a visible pair beside paper-143k", ratio, "ratio", at_most=1.2)
    return seconds


def tree_text(scale: int) -> Pack:
    """The pack of `tree-text`."""
    segments, given = tree_text_143k(scale)
    return qwen_4b.pack_of(segments, given=given)


@contextmanager
def measured(figures: Figures, case: str, variant: str) -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """Runs twice, says seconds and peak memory of the second time."""

    def clock(run: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        run()
        torch.cuda.synchronize()
        figures.say(case, "first_s", round(time.perf_counter() - started, 3), "s", variant=variant)
        torch.cuda.reset_peak_memory_stats()
        started = time.perf_counter()
        result = run()
        torch.cuda.synchronize()
        figures.say(case, "step_s", round(time.perf_counter() - started, 3), "s", variant=variant)
        peak = torch.cuda.max_memory_allocated() / 2**30
        figures.say(case, "peak_gib", round(peak, 1), "GiB", variant=variant)
        return result

    yield clock
    gc.collect()
    torch.cuda.empty_cache()


def compare(figures: Figures, seconds: dict[str, float]) -> None:
    """The bounds that the packed step must keep."""
    if "packed" not in seconds:
        return
    case, own = "paper-143k", seconds["packed"]
    figures.bound(case, "step_s", own, "s", at_most=18, variant="packed")
    for other, least in (("rows", 3.7), ("tree-text", 1.4)):
        if other in seconds:
            figures.bound(case, f"{other} to packed", seconds[other] / own, "ratio", at_least=least)


def show_profile(run: Callable[[], Any]) -> None:
    """Prints the kernels of one step by their time."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    print(profile.key_averages().table(sort_by="cuda_time_total", row_limit=45, max_name_column_width=70))


if __name__ == "__main__":
    main()
