"""Packed sequences through the Hugging Face library, as padding-free training calls it: right, and with the known trap.

Catches an auditor that trusts what a stack was told instead of what it does: position ids that restart say "packed",
and a 2-D mask of ones beside them switches the library's detection off without a word (transformers issue 46634).
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from octopus.verify.findings import Verdict
from octopus.verify.functional.audits import isolation_stages
from octopus.verify.functional.isolation import causality, segment_swap
from octopus.verify.functional.observe import kernel_subjects
from octopus.verify.functional.stack import Stack
from octopus.verify.functional.trial import Trial
from octopus.verify.selftest.models import VOCABULARY, tiny_llama
from octopus.verify.subject import Descent, Subject

LENGTHS = (5, 4, 7)
DTYPES = (torch.float64, torch.float32, torch.bfloat16)


def packed(dtype: torch.dtype, *, ones: bool) -> Trial:
    """Three documents in one row; `ones` gives a 2-D mask of ones with them."""
    model = tiny_llama(dtype)
    positions = torch.cat([torch.arange(length) for length in LENGTHS])[None]
    mask = torch.ones(1, sum(LENGTHS), dtype=torch.long) if ones else None

    def run(tokens_T):
        return model(
            input_ids=tokens_T[None], attention_mask=mask, position_ids=positions, use_cache=False
        ).logits[0]

    tokens_T = torch.from_numpy(np.random.default_rng(0).integers(0, VOCABULARY, sum(LENGTHS)))
    documents_T = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    subject = Subject(name="packed", length=sum(LENGTHS), descent=Descent(documents_T=documents_T))
    return Trial(stack=Stack(name="hf", model=model, run=run, tokens_T=tokens_T), subject=subject)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_packed_detection_is_clean(dtype: torch.dtype) -> None:
    for stage in isolation_stages(packed(dtype, ones=False)):
        report = stage.report()
        assert report.findings == (), stage.name
        assert report.verdict() is Verdict.PASS, (stage.name, report.checks)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_mask_of_ones_is_found_by_every_kind_of_audit(dtype: torch.dtype) -> None:
    trial = packed(dtype, ones=True)
    reports = {stage.name: stage.report() for stage in isolation_stages(trial)}
    mask = reports["kernel mask and heads"].findings
    assert {finding.code for finding in mask} == {"OCT101"}
    first = mask[0].witness
    assert first is not None and (first.query, first.key) == (LENGTHS[0], 0)
    assert {finding.code for finding in segment_swap(trial)} == {"OCT501"}
    assert {finding.code for finding in causality(trial)} == {"OCT505"}
    assert {finding.code for finding in reports["finite poison"].findings} == {"OCT502"}


def test_what_the_kernel_applies_is_the_full_causal_mask() -> None:
    (subject, probed), *_ = kernel_subjects(packed(torch.float32, ones=True))
    assert np.array_equal(probed.visible_NK, np.tri(subject.length, dtype=bool))
