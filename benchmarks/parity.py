"""Gradients of a packed step of the 4B shape in float32, beside the same episode trained without packing.

    PYTHONPATH=.:tests python benchmarks/parity.py --device cuda --json benchmarks/results/parity.jsonl

- `rows`: `paper-143k/64` without mounts, where every path is an ordinary row: the unmodified Hugging Face model, one
  row a path, every loss term once. With mounts a row of text is another computation as soon as two layers attend.
- `executed`: `paper-143k/1024` with its mounts, token by token in the order of time with autograd kept. It keeps a
  state for every token and layer, so more than 8 layers do not fit.

Both run in float64, so that the figure is the packed step's own error: the relative norm of the difference, of the
weight where it is largest. It must be at most 1e-4. Beside it stands the error of the rows in float32. Run it without
flash-linear-attention on the path: the library would take its kernels, which round to TF32.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import qwen_4b
import torch
from exact_library import ExactLibrary
from figures import Figures, command_line
from gradient_errors import worst
from shapes import BRANCHES, branching, paper_143k
from torch import Tensor

from octopus.attention.plan import Plan
from octopus.core.segment import Segment
from octopus.models.backbone import Backbone
from octopus.train.config import StepConfig
from octopus.train.packing import Pack
from octopus.train.passes import pack_log_probabilities
from octopus.verify.executor import execute
from octopus.verify.oracle import Oracle, OracleThread, OracleToken

EXECUTED_LAYERS = 8


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--width", type=int, default=2_560)
    parser.add_argument("--vocabulary", type=int, default=qwen_4b.VOCABULARY)
    parser.add_argument("--scales", type=int, nargs=2, default=(64, 1024), help="of `rows` and of `executed`")
    parser.add_argument("--json", help="file that the result lines are appended to")
    options = parser.parse_args()
    figures = Figures("parity", options.device, command_line(), options.json)
    for variant, scale in zip(("rows", "executed"), options.scales, strict=True):
        layers = options.layers if variant == "rows" else min(options.layers, EXECUTED_LAYERS)
        settings = qwen_4b.config(layers, width=options.width, vocabulary=options.vocabulary)
        compare(figures, qwen_4b.new_model(settings, dtype=torch.float32, device=options.device), variant, scale)
    if figures.red:
        sys.exit("\n".join(figures.red))


def compare(figures: Figures, model: Any, variant: str, scale: int) -> None:
    """Says how far a packed step is from the other way, and how far that way is in float32."""
    segments = without_mounts(scale) if variant == "rows" else paper_143k(scale)
    pack = qwen_4b.pack_of(segments, vocabulary=model.config.vocab_size)
    run = rows_gradients if variant == "rows" else partial(executed_gradients, segments=segments, scale=scale)
    single = {name: gradient.cpu() for name, gradient in run(model, pack).items()}
    packed = packed_gradients(Backbone(copy.deepcopy(model)), pack)
    with ExactLibrary():
        wanted = run(model.double(), pack)
    case = f"paper-143k/{scale}, {model.config.num_hidden_layers} layers"
    for kind, found in ((f"{variant} in float32", single), (f"packed to {variant}", packed)):
        name, error = worst(found, wanted)
        figures.say(case, "gradient_error", float(f"{error:.3g}"), "relative norm", variant=kind, note=name)
    figures.gate(case, "at most 1e-4 in each of the weights", error <= 1e-4, f"{len(wanted)} tensors")


def without_mounts(scale: int) -> list[Segment]:
    """The tree of `paper-143k`: root, twelve branches, and the join beside them."""
    half = 4_096 // scale
    return branching(
        32_768 // scale, [2 * half] * BRANCHES, [half] * BRANCHES, [0] * BRANCHES, 12_288 // scale, 2_048 // scale
    )


def packed_gradients(backbone: Backbone, pack: Pack) -> dict[str, Tensor]:
    """Of the sum of log-probabilities of all loss terms."""
    backbone.model.zero_grad(set_to_none=True)
    pack_log_probabilities(backbone, pack, step=StepConfig(backend="sliced")).sum().backward()
    return gradients(backbone.model)


def rows_gradients(model: Any, pack: Pack) -> dict[str, Tensor]:
    """The same, path by path; a term that several paths share counts in the first of them."""
    model.zero_grad(set_to_none=True)
    left = set(range(pack.loss_terms))
    for path_T in paths(pack.plan):
        place = {row: place for place, row in enumerate(path_T)}
        terms = [term for term in sorted(left) if pack.targets.token_rows_N[term] in place]
        left -= set(terms)
        if not terms:
            continue
        ids = torch.from_numpy(pack.plan.tokens_T[path_T]).to(model.device)
        logits_TV = model(input_ids=ids[None], use_cache=False).logits[0]
        predictors = [place[pack.targets.predictor_rows_N[term]] for term in terms]
        summed(logits_TV[predictors], pack.targets.labels_N[terms]).backward()
    return gradients(model)


def paths(plan: Plan) -> list[list[int]]:
    """The rows from the root to each leaf."""
    found = []
    for leaf in sorted(set(range(plan.length)) - set(plan.predecessors_T.tolist())):
        path = [leaf]
        while (before := int(plan.predecessors_T[path[-1]])) >= 0:
            path.append(before)
        found.append(path[::-1])
    return found


def executed_gradients(model: Any, pack: Pack, *, segments: Sequence[Segment], scale: int) -> dict[str, Tensor]:
    """The same, token by token, each over what the oracle says that it sees."""
    model.zero_grad(set_to_none=True)
    # Both play the same script, so that a segment's tokens follow each other in both, in the order of segments.
    starts = [(pack.plan.starts[segment], len(segment.tokens)) for segment in segments if segment.tokens]
    order_T = np.concatenate([np.arange(row, row + count) for row, count in starts])
    place_T = np.argsort(order_T)
    tokens = played(pack.plan.tokens_T[order_T].tolist(), scale)
    _, logits_TV = execute(model, tokens)
    summed(logits_TV[place_T[pack.targets.predictor_rows_N]], pack.targets.labels_N).backward()
    return gradients(model)


def played(values: Sequence[int], scale: int) -> Sequence[OracleToken]:
    """`paper-143k` as the oracle plays it."""
    root_tokens, half, join, read = (n // scale for n in (32_768, 4_096, 12_288, 2_048))
    oracle, left = Oracle(), list(values)

    def write(thread: OracleThread, count: int) -> None:
        oracle.append(thread, [left.pop(0) for _ in range(count)])

    root = oracle.thread()
    write(root, root_tokens)
    branches = oracle.fork(root, BRANCHES)
    for branch in branches:
        write(branch, half)
    snapshots = [oracle.fork(branch)[0] for branch in branches]
    for index, branch in enumerate(branches):
        for step in (1, 2):
            oracle.read(branch, snapshots[(index + step) % BRANCHES], last=read)
        write(branch, half)
    for branch in branches:
        oracle.read(root, branch, last=read)
    write(root, join)
    return oracle.tokens


def summed(logits_NV: Tensor, labels_N: np.ndarray) -> Tensor:
    """The sum of the labels' log-probabilities."""
    labels = torch.from_numpy(labels_N).to(logits_NV.device)
    return logits_NV.log_softmax(dim=1).gather(1, labels[:, None]).sum()


def gradients(model: Any) -> dict[str, Tensor]:
    """Of every weight that has one."""
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


if __name__ == "__main__":
    main()
