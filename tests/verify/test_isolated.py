"""`assert_isolated` finds a row that moves and must not, and never passes where nothing was shown."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from octopus.verify.isolated import influence_of
from octopus.verify.pytest_plugin import assert_isolated

TREE = [-1, 0, 1, 1, 3]
"""A root of two rows; row 2 and the rows 3, 4 are its children."""
VISIBLE = np.array([[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 0, 1, 0], [1, 1, 0, 1, 1]], dtype=bool)


def two_layers(mask: np.ndarray, dtype: torch.dtype = torch.float32):
    """A function of token ids: two layers of attention under a mask; returns both."""
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(32, 8, generator=generator).to(dtype)
    weights = (torch.randn(2, 8, 8, generator=generator) / 8).to(dtype)
    seen = torch.from_numpy(mask)

    def run(ids: Tensor) -> list[Tensor]:
        x, layers = table[ids] if not ids.is_floating_point() else ids, []
        for weight in weights:
            scores = (x @ weight @ x.mT).masked_fill(~seen, -torch.inf)
            x = x + scores.softmax(-1) @ x
            layers.append(x)
        return layers

    return run


IDS = torch.arange(5)[None] + 3


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_right_mask_passes_in_every_dtype(dtype: torch.dtype) -> None:
    """Catches a tolerance that is too small for clean runs: there is none."""
    for graph in (TREE, np.array(TREE), torch.tensor(TREE), {"parents": TREE}, VISIBLE):
        assert_isolated(two_layers(VISIBLE, dtype), IDS, graph)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("q", "k"), [(2, 3), (3, 2), (0, 4), (4, 2)])
def test_one_leaked_pair_is_found_and_named(dtype: torch.dtype, q: int, k: int) -> None:
    """Catches a comparison with a tolerance, and rows that are not looked at."""
    leaky = VISIBLE.copy()
    leaky[q, k] = True
    with pytest.raises(AssertionError, match=rf"OCT505 row {q} .*, layer 0 moves when row {k} "):
        assert_isolated(two_layers(leaky, dtype), IDS, TREE)


def test_influence_over_two_layers_is_no_leak() -> None:
    """Catches comparing with the mask itself: row 4 mounts row 2 only and is moved by all that row 2 saw."""
    mask = np.eye(5, dtype=bool)
    mask[2, 0] = mask[4, 2] = True
    assert_isolated(two_layers(mask), IDS, mask)
    assert influence_of(mask, 5).may_TT[4].tolist() == [True, False, True, False, True]


def test_embeddings_and_mappings_are_batches_too() -> None:
    """Catches a batch that is changed in place."""
    embeddings = torch.randn(1, 5, 8, generator=torch.Generator().manual_seed(1))
    kept = embeddings.clone()
    assert_isolated(two_layers(VISIBLE), embeddings, TREE)
    assert torch.equal(embeddings, kept)
    run = two_layers(VISIBLE)
    assert_isolated(lambda batch: run(batch["input_ids"]), {"input_ids": IDS, "other": None}, TREE)
    with pytest.raises(AssertionError, match="OCT505"):
        assert_isolated(two_layers(np.tri(5, dtype=bool)), embeddings, TREE)


def test_documents_by_cumulative_lengths() -> None:
    """Catches a graph form that is taken for another."""
    blocks = np.kron(np.eye(2), np.ones((3, 3))).astype(bool)[:5, :5] & np.tri(5, dtype=bool)
    for graph in ({"cu_seqlens": [0, 3, 5]}, {"document_ids": [7, 7, 7, 8, 8]}):
        assert_isolated(two_layers(blocks), IDS, graph)
        with pytest.raises(AssertionError, match="OCT505"):
            assert_isolated(two_layers(np.tri(5, dtype=bool)), IDS, graph)


def test_nothing_shown_is_no_pass() -> None:
    """Catches a vacuous pass: a function that looks at nothing, or at itself alone."""
    with pytest.raises(AssertionError, match="OCT506"):
        assert_isolated(lambda ids: torch.zeros(5, 3), IDS, TREE)
    with pytest.raises(AssertionError, match="OCT506"):
        assert_isolated(two_layers(np.eye(5, dtype=bool)), IDS, TREE)


def test_a_function_that_is_not_deterministic_cannot_be_judged() -> None:
    """Catches noise reported as a leak."""
    with pytest.raises(AssertionError, match="OCT509"):
        assert_isolated(lambda ids: torch.rand(5, 3), IDS, TREE)


def test_a_graph_that_does_not_fit_is_refused() -> None:
    """Catches a check against the graph of another batch."""
    for graph in ([-1, 0], [-1, 0, 1, 2, 9], np.ones((4, 4), dtype=bool)):
        with pytest.raises(ValueError, match="does not describe a batch of 5 rows"):
            assert_isolated(two_layers(VISIBLE), IDS, graph)
    with pytest.raises(ValueError, match="a batch of shape"):
        assert_isolated(two_layers(VISIBLE), torch.zeros(3, 5, dtype=torch.int64), TREE)


def test_the_fixture_works_in_a_strangers_test_file(tmp_path: Path) -> None:
    """Catches a plugin that cannot be loaded, and a fixture that does nothing."""
    test = """
import numpy as np

def test_right(assert_isolated):
    assert_isolated(np.cumsum, np.arange(1, 4), [-1, 0, 1])

def test_wrong(assert_isolated):
    assert_isolated(np.cumsum, np.arange(1, 4), [-1, 0, 0])
"""
    (tmp_path / "test_theirs.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "octopus.verify.pytest_plugin", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "OCT505 row 2" in done.stdout


def test_loading_the_plugin_is_light() -> None:
    """Catches torch or numpy in every test run of everybody who has the package installed."""
    code = "import sys, octopus.verify.pytest_plugin; print({'torch', 'numpy', 'networkx'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() == "set()"
