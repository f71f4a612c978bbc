"""The packed forward: a chain equals the library's own model, a tree equals its branches, and planted faults show."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from exact_library import ExactLibrary
from hand_made import TREE, Branch, chain_of, path_of, plan_of
from tiny_models import (
    EVERY_FAMILY,
    HYBRIDS,
    VOCABULARY,
    checkpointed,
    tiny_gemma3,
    tiny_llama,
    tiny_qwen3,
    tiny_qwen3_next,
    tiny_qwen35,
)

from octopus.attention import dense, plan
from octopus.attention.runs import Runs, scan_runs
from octopus.models import context, recurrent, short_conv
from octopus.models.backbone import Backbone

# One level of runs around the chunk size, all from one state.
RAGGED = (Branch(length=3), *(Branch(length=n, parent=0, fork=3) for n in (130, 65, 64, 63, 2, 1)))
FAMILIES = pytest.mark.parametrize("build", EVERY_FAMILY)
# Those that `exactness/test_hybrids.py` compares with the library too take their time here.
COSTLY = pytest.mark.parametrize(
    "build", [pytest.param(build, marks=pytest.mark.slow if build in HYBRIDS else ()) for build in EVERY_FAMILY]
)


def tokens_of_length(length: int) -> np.ndarray:
    return np.random.default_rng(7).integers(0, VOCABULARY, length)


@pytest.mark.parametrize(
    "build",
    [
        tiny_llama,
        tiny_qwen3,
        tiny_qwen35,
        tiny_gemma3,
        lambda **settings: tiny_llama(attention_bias=True, mlp_bias=True, hidden_act="gelu", **settings),
        lambda **settings: tiny_qwen35(heads=7, kv_heads=1, head_dim=16, attention_bias=True, **settings),
        lambda **settings: tiny_qwen3(
            use_sliding_window=True, sliding_window=7, layers=3, max_window_layers=1, **settings
        ),
        lambda **settings: tiny_gemma3(kv_heads=1, window=130, hidden_activation="silu", **settings),
    ],
    ids=["llama", "qwen3", "qwen35", "gemma3", "llama-biases", "qwen35-grouped", "qwen3-windows", "gemma3-wide"],
)
def test_chain_equals_the_unmodified_library_model(build: Callable) -> None:
    model = build(dtype=torch.float32)
    unmodified = copy.deepcopy(model)
    backbone = Backbone(model)
    tokens = tokens_of_length(130)
    with torch.no_grad():
        ours = backbone.logits(backbone.packed(chain_of(tokens)))
        theirs = unmodified(torch.from_numpy(tokens)[None], use_cache=False).logits[0]
    assert 1 < theirs.std() < 3
    # Relative to the largest logit: the library itself is 1e-5 away from a float64 run here.
    assert (ours - theirs).abs().max() < 1e-5 * theirs.abs().max()


@pytest.mark.parametrize("window", [1, 2, 59, 60, 61])
@torch.no_grad()
def test_a_window_is_the_librarys(window: int) -> None:
    """Catches: a window that is off by one at either end. The row has 60 tokens."""
    model, tokens = tiny_gemma3(window=window), tokens_of_length(60)
    with ExactLibrary():
        theirs = copy.deepcopy(model)(torch.from_numpy(tokens)[None], use_cache=False).logits[0]
    backbone = Backbone(model)
    assert (backbone.logits(backbone.packed(chain_of(tokens))) - theirs).abs().max() < 1e-10


@COSTLY
@torch.no_grad()
def test_rows_of_a_batch_equal_the_library_in_float64(build: Callable) -> None:
    """Catches: anything beyond rounding, alone and among rows of one pack that must not see each other.

    Three rows without a common token are three roots of one pack. Their positions start anew, which isolation by a mask
    alone would not do, and which must not be taken for packed sequences by the library's own detection.
    """
    model = build()
    rows = [tokens_of_length(length) for length in (1, 17, 40)]
    with ExactLibrary():
        theirs = [model(torch.from_numpy(row)[None], use_cache=False).logits[0] for row in rows]
    backbone, pack = Backbone(model), plan_of(tuple(Branch(length=len(row)) for row in rows))
    pack.tokens_T[:] = np.concatenate(rows)
    assert pack.positions_T.tolist() == [0, *range(17), *range(40)]
    batch = backbone.logits(backbone.packed(pack))
    assert (batch - torch.cat(theirs)).abs().max() < 1e-10
    for row, expected in zip(rows, theirs, strict=True):
        alone = backbone.logits(backbone.packed(chain_of(row)))
        assert (alone - expected).abs().max() < 1e-10


@pytest.mark.parametrize("length", [0, 1, 2, 3])
@FAMILIES
def test_shortest_packs(build: Callable, length: int) -> None:
    backbone = Backbone(build(dtype=torch.float32))
    assert backbone.packed(chain_of(tokens_of_length(length))).shape == (length, 64)


def tree_and_branches(build: Callable, branches: tuple[Branch, ...] = TREE) -> tuple[float, float]:
    """The largest difference between a tree in one pack and each branch alone: logits, and relative gradients."""
    backbone, tree = Backbone(build()), plan_of(branches)
    parameters = list(backbone.model.parameters())
    weights_TV = torch.randn(
        tree.length, VOCABULARY, dtype=torch.float64, generator=torch.Generator().manual_seed(3)
    )
    logits_TV = backbone.logits(backbone.packed(tree))
    packed = torch.autograd.grad((weights_TV * logits_TV).sum(), parameters)

    alone = [torch.zeros_like(weight) for weight in parameters]
    logit_error = 0.0
    first = 0
    for branch in branches:
        path = path_of(tree, first + branch.length - 1)
        own = slice(len(path) - branch.length, len(path))
        branch_logits = backbone.logits(backbone.packed(chain_of(tree.tokens_T[path])))[own]
        rows = slice(first, first + branch.length)
        logit_error = max(logit_error, (branch_logits - logits_TV[rows]).abs().max().item())
        gradients = torch.autograd.grad((weights_TV[rows] * branch_logits).sum(), parameters)
        alone = [a + b for a, b in zip(alone, gradients, strict=True)]
        first += branch.length
    errors = [float((a - b).abs().max() / a.abs().max()) for a, b in zip(alone, packed, strict=True)]
    return logit_error, max(errors)


@pytest.mark.parametrize("branches", [TREE, RAGGED], ids=["tree", "ragged"])
@COSTLY
def test_tree_equals_each_branch_alone(build: Callable, branches: tuple[Branch, ...]) -> None:
    logit_error, gradient_error = tree_and_branches(build, branches)
    assert logit_error < 1e-10
    assert gradient_error < 1e-10


def tiled(x: torch.Tensor, heads: int) -> torch.Tensor:
    """Key heads handed out in turn instead of in groups."""
    return x.repeat(1, heads // x.shape[1], 1)


def from_the_run_before(predecessors_T: np.ndarray) -> Runs:
    """Runs that continue each other in row order, whoever their parents are."""
    runs = [replace(run, parent=i - 1, level=i) for i, run in enumerate(scan_runs(predecessors_T).runs)]
    return Runs(runs=tuple(runs), levels=tuple((i,) for i in range(len(runs))))


@pytest.mark.parametrize(
    ("module", "name", "fault", "seen_in_logits"),
    [
        (short_conv, "gather_columns", lambda columns, index: columns.roll(1, 0), True),
        (plan, "scan_runs", from_the_run_before, True),
        (recurrent, "hand_over", torch.zeros_like, True),
        (recurrent, "hand_over", torch.Tensor.detach, False),
    ],
    ids=["columns of the row", "state of the row", "no state", "state detached"],
)
def test_planted_faults_show(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, fault: Callable, seen_in_logits: bool
) -> None:
    monkeypatch.setattr(module, name, fault)
    logit_error, gradient_error = tree_and_branches(tiny_qwen35)
    assert (logit_error > 1e-3) == seen_in_logits
    assert gradient_error > 1e-3


@pytest.mark.parametrize(
    ("module", "name", "fault"),
    [
        (context, "repeat_key_heads", tiled),
        (
            dense,
            "group_heads",
            lambda x, kv_heads: x.unflatten(0, (-1, kv_heads)).transpose(0, 1).flatten(1, 2),
        ),
    ],
)
def test_wrong_head_grouping_shows(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, fault: Callable
) -> None:
    backbone, chain = Backbone(tiny_qwen35(dtype=torch.float32)), chain_of(tokens_of_length(20))
    with torch.no_grad():
        right = backbone.packed(chain)
        monkeypatch.setattr(module, name, fault)
        assert (backbone.packed(chain) - right).abs().max() > 1e-2


@FAMILIES
def test_activation_checkpointing_changes_nothing(build: Callable) -> None:
    gradients = []
    for model in (build(), checkpointed(build())):
        backbone = Backbone(model)
        backbone.packed(plan_of(TREE)).square().sum().backward()
        # A head that is no embedding takes no part.
        gradients.append([weight.grad for weight in model.model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@FAMILIES
def test_bfloat16_stays_close(build: Callable) -> None:
    """Rounding may choose another expert, which is far from it; so a family of close choices takes all of them here."""
    every_expert = {"num_experts_per_tok": 4} if build is tiny_qwen3_next else {}
    exact, rounded = (Backbone(build(dtype=dtype, **every_expert)) for dtype in (torch.float32, torch.bfloat16))
    with torch.no_grad():
        a, b = (backbone.packed(plan_of(TREE)) for backbone in (exact, rounded))
    assert b.dtype == torch.bfloat16
    assert (a - b).abs().mean() < 0.1
