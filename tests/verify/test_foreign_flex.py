"""FlexAttention: block masks of packed documents and of a shared prefix, right and wrong, as tables and as applied.

Catches an auditor that believes the element mask and never looks at the blocks that a kernel really visits, or the
other way round.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, create_mask, flex_attention

from octopus.verify.audits import STATIC, run
from octopus.verify.facets import BlockTable
from octopus.verify.findings import Verdict
from octopus.verify.probe import Shape, probe
from octopus.verify.subject import DenseMask, Descent, Subject

BLOCK = 16
DOCUMENTS_T = np.repeat([0, 1, 2], [20, 32, 12])
PREFIX, BRANCHES, BRANCH_LENGTH = 24, 2, 20
DTYPES = (torch.float64, torch.float32, torch.bfloat16)


def document_mask(b, h, q, k):
    documents = torch.from_numpy(DOCUMENTS_T)
    return (documents[q] == documents[k]) & (q >= k)


def branch_of(row):
    return torch.clamp((row - PREFIX) // BRANCH_LENGTH, min=-1)


def prefix_mask(b, h, q, k):
    return (q >= k) & ((k < PREFIX) | (branch_of(q) == branch_of(k)))


def prefix_parents() -> np.ndarray:
    parents_T = np.arange(-1, PREFIX + BRANCHES * BRANCH_LENGTH - 1)
    parents_T[[PREFIX + branch * BRANCH_LENGTH for branch in range(BRANCHES)]] = PREFIX - 1
    return parents_T


CASES = {
    "documents": (document_mask, Descent(documents_T=DOCUMENTS_T)),
    "shared prefix": (prefix_mask, Descent(parents_T=prefix_parents())),
}
LENGTH = len(DOCUMENTS_T)


def block_mask(mask_mod) -> BlockMask:
    return create_block_mask(mask_mod, None, None, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=BLOCK)


def subject_of(name: str, mask_mod, blocks: BlockMask) -> Subject:
    """The element mask and the block table, with the descent of the case."""
    seen_QK = create_mask(mask_mod, None, None, LENGTH, LENGTH, device="cpu")[0, 0].numpy()
    arrays = {
        field: getattr(blocks, name)[0, 0].numpy()
        for field, name in (
            ("partial_count_R", "kv_num_blocks"),
            ("partial_RC", "kv_indices"),
            ("full_count_R", "full_kv_num_blocks"),
            ("full_RC", "full_kv_indices"),
        )
    }
    return Subject(
        name=name,
        length=LENGTH,
        mask=DenseMask(seen_HQK=seen_QK[None], convention="mask_mod"),
        blocks=BlockTable(block_q=BLOCK, block_k=BLOCK, **arrays),
        descent=CASES[name][1],
    )


def codes(subject: Subject) -> set[str]:
    return {finding.code for finding in run(STATIC, [subject]).findings}


@pytest.mark.parametrize("name", CASES)
def test_the_right_mask_is_clean(name: str) -> None:
    mask_mod = CASES[name][0]
    report = run(STATIC, [subject_of(name, mask_mod, block_mask(mask_mod))])
    assert report.findings == ()
    assert report.verdict() is Verdict.PASS


def test_plain_causality_over_documents_and_branches_is_found() -> None:
    def causal(b, h, q, k):
        return q >= k

    for name in CASES:
        assert codes(subject_of(name, causal, block_mask(causal))) == {"OCT101"}


def test_a_branch_that_forgets_the_prefix_is_found() -> None:
    def forgetful(b, h, q, k):
        return prefix_mask(b, h, q, k) & ~((q >= PREFIX) & (k < 2))

    assert codes(subject_of("shared prefix", forgetful, block_mask(forgetful))) == {"OCT102"}


@pytest.mark.parametrize("name", CASES)
def test_a_block_called_full_that_is_not_is_found(name: str) -> None:
    subject = subject_of(name, CASES[name][0], block_mask(CASES[name][0]))
    table = subject.blocks
    row = int(np.argmax(table.partial_count_R > 0))
    full_RC, count_R = table.full_RC.copy(), table.full_count_R.copy()
    full_RC[row, count_R[row]] = table.partial_RC[row, table.partial_count_R[row] - 1]
    count_R[row] += 1
    partial_R = table.partial_count_R.copy()
    partial_R[row] -= 1
    wrong = replace(table, full_RC=full_RC, full_count_R=count_R, partial_count_R=partial_R)
    assert "OCT107" in codes(replace(subject, blocks=wrong))


@pytest.mark.parametrize("name", CASES)
def test_a_block_that_is_never_visited_is_found(name: str) -> None:
    subject = subject_of(name, CASES[name][0], block_mask(CASES[name][0]))
    count_R = subject.blocks.partial_count_R.copy()
    count_R[-1] -= 1
    assert "OCT107" in codes(replace(subject, blocks=replace(subject.blocks, partial_count_R=count_R)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_what_flex_attention_applies_is_probed(name: str, dtype: torch.dtype) -> None:
    """Its eager form: which blocks a compiled kernel visits is told by the table alone."""
    shape = Shape(heads=4, kv_heads=2, queries=LENGTH, keys=LENGTH, head_dim=16, dtype=dtype)

    def attention(blocks, q_HND, k_GKD, v_GKD):
        return flex_attention(q_HND[None], k_GKD[None], v_GKD[None], block_mask=blocks, enable_gqa=True)[0]

    probed = probe(partial(attention, block_mask(CASES[name][0])), shape)
    right = subject_of(name, CASES[name][0], block_mask(CASES[name][0]))
    mask = DenseMask(seen_HQK=probed.seen_HNK, convention="probed")
    assert codes(replace(right, mask=mask, blocks=None)) == set()
    assert probed.kv_head_H.tolist() == [0, 0, 1, 1]

    wrong = probe(partial(attention, block_mask(lambda b, h, q, k: q >= k)), shape)
    mask = DenseMask(seen_HQK=wrong.seen_HNK, convention="probed")
    assert codes(replace(right, mask=mask, blocks=None)) == {"OCT101"}
