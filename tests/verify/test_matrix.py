"""The audit matrix of our own stack: every backend, every model family, every functional audit, no finding.

Whoever adds a backend or a family adds it here. Catches a backend or family that nobody audits, and a false alarm.
"""

from __future__ import annotations

import pytest
import torch

from octopus.attention import backends
from octopus.models.families import FAMILIES
from octopus.verify.selftest.bench import Bench
from octopus.verify.selftest.cell import clean_reports
from octopus.verify.selftest.fault import GEMMA3, GRANITE, LLAMA, NEMOTRON, QWEN, QWEN3, QWEN3_NEXT

BACKENDS = ("reference", "sliced")
# Their gate is in benchmarks/attention.py. A library's kernel multiplies what it hides by 0, so a NaN in a slot that
# some row sees may reach others in its tile; finite poison may not, and is tried there.
ON_GPU = ("triton", "cudnn", "sliced-cudnn", "sliced-fa2", "sliced-fa4")
BENCHES = {
    "Llama": LLAMA, "Qwen3": QWEN3, "Qwen3.5": QWEN, "Gemma-3": GEMMA3, "Qwen3-Next": QWEN3_NEXT, "Granite 4": GRANITE,
    "Nemotron-H": NEMOTRON,
}  # fmt: skip
WITHOUT_POSITIONS = ("Granite 4", "Nemotron-H")
"""Nothing of theirs is rotated, so there is no rotation to audit."""
DTYPES = (torch.float64, torch.float32, torch.bfloat16)


def test_every_backend_and_family_is_audited() -> None:
    assert sorted((*BACKENDS, *ON_GPU)) == sorted(backends._BACKENDS)
    assert sorted(BENCHES) == sorted(family.name for family in FAMILIES)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", BENCHES)
def test_our_stack_is_clean(family: str, backend: str, dtype: torch.dtype) -> None:
    bench, stages = Bench(name=BENCHES[family], backend=backend), []
    for stage, report in clean_reports(bench, dtype):
        stages.append(stage)
        assert report.findings == (), stage
        assert not [check for check in report.checks if check.outcome.value == "inconclusive"], stage
        assert [check for check in report.checks if check.outcome.value == "clean"], stage
    assert len(stages) == 12 - (family in WITHOUT_POSITIONS)
