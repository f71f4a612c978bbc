"""Dump helpers stand alone, are short, and what they write is audited: the right stack clean, the wrong one found."""

import ast
import copy
import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny_models import tiny_llama
from torch.nn.attention.flex_attention import create_block_mask

from octopus.verify import dumps
from octopus.verify.audits import STATIC, run
from octopus.verify.dumps import flex_attention, huggingface, megatron, trl, verl
from octopus.verify.inputs import Hints
from octopus.verify.readers import read
from octopus.verify.subject import CAUSAL, Ranges

HELPERS = sorted(path for path in Path(dumps.__file__).parent.glob("*.py") if path.name != "__init__.py")
NONE = Hints()


def codes(*paths: Path) -> set[str]:
    return {finding.code for finding in run(STATIC, read([str(path) for path in paths], hints=NONE)).findings}


def test_helpers_can_be_pasted() -> None:
    """Catches a helper that outgrew 30 lines or needs Octopus."""
    assert [path.stem for path in HELPERS] == ["flex_attention", "huggingface", "megatron", "trl", "verl"]
    for path in HELPERS:
        assert path.read_text().count("\n") <= 30
        modules = [node.module for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        assert not any(module and module.startswith("octopus") for module in modules)


def test_trl_padding_free(tmp_path: Path) -> None:
    """Catches labels that train the first token of a document."""
    batch = {
        "input_ids": torch.tensor([[5, 6, 7, 8, 9]]),
        "position_ids": torch.tensor([[0, 1, 2, 0, 1]]),
        "labels": torch.tensor([[-100, 6, 7, -100, 9]]),
    }
    trl.dump(batch, str(tmp_path / "a.npz"))
    assert codes(tmp_path / "a.npz") == set()
    batch["labels"][0, 3] = 8
    trl.dump(batch, str(tmp_path / "a.npz"))
    assert codes(tmp_path / "a.npz") == {"OCT404"}


def tree_row() -> dict[str, torch.Tensor]:
    """Two rollouts that share two tokens, as TRL 1.16 packs them: segments [0, 2), [2, 4), [4, 7)."""
    return {
        "input_ids": torch.tensor([1, 2, 3, 4, 3, 5, 6]),
        "position_ids": torch.tensor([0, 1, 2, 3, 2, 3, 4]),
        "tree_kv_index": torch.tensor([0, 1, 0, 1, 2, 3, 0, 1, 4, 5, 6]),
        "tree_cu_seqlens_q": torch.tensor([0, 2, 4, 7]),
        "tree_cu_seqlens_k": torch.tensor([0, 2, 6, 11]),
    }


def test_trl_tree_rows(tmp_path: Path) -> None:
    """Catches a gathered key of a sibling, and depths that are row numbers."""
    trl.dump(tree_row(), str(tmp_path / "a.npz"))
    assert codes(tmp_path / "a.npz") == set()
    wrong = tree_row()
    wrong["tree_kv_index"][7] = 3
    trl.dump(wrong, str(tmp_path / "a.npz"))
    assert {"OCT101", "OCT102"} <= codes(tmp_path / "a.npz")


def test_gathered_keys_are_the_pairs_that_the_kernel_computes(tmp_path: Path) -> None:
    """Catches an off-by-one in the bottom-right triangle, for any order of gathered keys."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        queries = np.array([0, *np.cumsum(rng.integers(1, 4, 3))])
        length, index, keys = int(queries[-1]), [], [0]
        wanted = np.zeros((length, length), dtype=bool)
        for q0, q1 in pairwise(queries):
            others = rng.permutation(np.setdiff1d(np.arange(length), np.arange(q0, q1)))[: rng.integers(0, 4)]
            gathered = [*np.sort(others), *range(q0, q1)]
            for q in range(q0, q1):
                wanted[q, gathered[: len(gathered) - (q1 - 1 - q)]] = True
            index += gathered
            keys.append(len(index))
        np.savez(tmp_path / "a.npz", tree_kv_index=index, tree_cu_seqlens_q=queries, tree_cu_seqlens_k=keys)
        (subject,) = read([str(tmp_path / "a.npz")], hints=NONE)
        assert isinstance(subject.mask, Ranges)
        got = np.zeros((length, length), dtype=int)
        for q0, q1, k0, k1, kind in subject.mask.slices_S5.tolist():
            for q in range(q0, q1):
                got[q, k0 : k1 - (q1 - 1 - q if kind == CAUSAL else 0)] += 1
        np.testing.assert_array_equal(got, wanted)


def test_verl_batches(tmp_path: Path) -> None:
    """Catches positions that are padded on the other side, and log-probabilities of another backend."""
    batch = {
        "input_ids": torch.tensor([[0, 0, 5, 6, 7, 8]]),
        "attention_mask": torch.tensor([[0, 0, 1, 1, 1, 1]]),
        "position_ids": torch.tensor([[0, 0, 0, 1, 2, 3]]),
        "response_mask": torch.tensor([[1, 1]]),
        "old_log_probs": torch.tensor([[-1.0, -2.0]]),
        "rollout_log_probs": torch.tensor([[-1.0, -2.0]]),
    }
    verl.dump(SimpleNamespace(batch=batch), str(tmp_path / "a.npz"))
    assert codes(tmp_path / "a.npz") == set()
    wrong = {**batch, "position_ids": batch["position_ids"] + torch.tensor([0, 0, 1, 1, 2, 2])}
    verl.dump(wrong, str(tmp_path / "a.npz"))
    assert "OCT202" in codes(tmp_path / "a.npz")
    verl.dump({**batch, "old_log_probs": batch["old_log_probs"] + 0.5}, str(tmp_path / "a.npz"))
    assert codes(tmp_path / "a.npz") == {"OCT408"}


def documents_mod(batch, head, q, k):
    return (q >= k) & (q // 5 == k // 5)


def causal_mod(batch, head, q, k):
    return q >= k


@pytest.mark.parametrize(("mod", "found"), [(documents_mod, set()), (causal_mod, {"OCT101"})])
def test_flex_attention_block_masks(tmp_path: Path, mod, found: set[str]) -> None:
    """Catches a mask function that forgets the documents, and a table of which nothing is read."""
    block_mask = create_block_mask(mod, None, None, 16, 16, device="cpu", BLOCK_SIZE=4)
    flex_attention.dump(block_mask, str(tmp_path / "a.npz"), document_ids=np.arange(16) // 5)
    assert codes(tmp_path / "a.npz") == found
    broken = copy.copy(block_mask)
    broken.kv_num_blocks = torch.zeros_like(block_mask.kv_num_blocks)
    flex_attention.dump(broken, str(tmp_path / "a.npz"), document_ids=np.arange(16) // 5)
    assert "OCT107" in codes(tmp_path / "a.npz")


def test_megatron_packed_parameters(tmp_path: Path) -> None:
    """Catches rolled labels that cross a boundary, and padding between sequences taken for tokens."""
    packed = SimpleNamespace(cu_seqlens_q=torch.tensor([0, 3, 5]), cu_seqlens_kv=torch.tensor([0, 3, 5]))
    positions = torch.tensor([[0, 1, 2, 0, 1]])
    labels = torch.tensor([[1, 2, -100, 4, -100]])
    megatron.dump(packed, str(tmp_path / "a.npz"), positions, labels)
    assert codes(tmp_path / "a.npz") == set()
    labels[0, 2] = 3
    megatron.dump(packed, str(tmp_path / "a.npz"), positions, labels)
    assert codes(tmp_path / "a.npz") == {"OCT404"}
    packed.cu_seqlens_q_padded = packed.cu_seqlens_kv_padded = torch.tensor([0, 4, 8])
    megatron.dump(packed, str(tmp_path / "a.npz"), torch.tensor([[0, 1, 2, 9, 0, 1, 9, 9]]))
    (subject,) = read([str(tmp_path / "a.npz")], hints=NONE)
    assert subject.padding_T is not None
    assert np.flatnonzero(subject.padding_T).tolist() == [3, 6, 7]
    assert codes(tmp_path / "a.npz") == set()


@pytest.mark.parametrize(("mask", "found"), [(None, set()), (torch.ones(1, 5, dtype=torch.int64), {"OCT101"})])
def test_huggingface_packed_sequences(tmp_path: Path, mask, found: set[str]) -> None:
    """Catches the mask of ones that switches packed detection off (transformers #46634)."""
    model = tiny_llama()
    inputs = {"input_ids": torch.arange(5)[None], "position_ids": torch.tensor([[0, 1, 2, 0, 1]])}
    huggingface.dump(model, str(tmp_path / "a"), **inputs, attention_mask=mask, use_cache=False)
    assert codes(tmp_path / "a.npz", tmp_path / "a.json") - {"OCT301"} == found
    assert json.loads((tmp_path / "a.json").read_text())["num_attention_heads"] == model.config.num_attention_heads
