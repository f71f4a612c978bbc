"""The registry of backends."""

from __future__ import annotations

import pytest
import torch
from numeric import causal_plan, make_rope, random_inputs

from octopus.attention import backends
from octopus.attention.backends import attend, available_backends, default_backend
from octopus.core.errors import BackendUnavailable


@pytest.mark.parametrize("backend", available_backends())
def test_every_backend_computes_attention(backend: str) -> None:
    """Catches: a name that is listed and does not run, or runs something else."""
    q_HTD, k_GTD, v_GTD, _ = random_inputs(5, kv_heads=2, group=2, head_dim=8)
    out_HTD, lse_HT = attend(q_HTD, k_GTD, v_GTD, plan=causal_plan(5), rope=None, scale=0.4, backend=backend)
    scores_HTT = q_HTD @ k_GTD.repeat_interleave(2, 0).mT * 0.4
    scores_HTT = scores_HTT.masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
    torch.testing.assert_close(
        out_HTD, scores_HTT.softmax(-1) @ v_GTD.repeat_interleave(2, 0), rtol=0, atol=1e-13
    )
    torch.testing.assert_close(lse_HT, scores_HTT.logsumexp(-1), rtol=0, atol=1e-13)


def test_the_named_backend_is_the_one_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a silent replacement of what the caller named."""
    called = []
    spies = {name: lambda *args, _name=name, **options: called.append(_name) for name in available_backends()}
    monkeypatch.setattr(backends, "_BACKENDS", spies)
    q_HTD, k_GTD, v_GTD, _ = random_inputs(3, kv_heads=1, group=1, head_dim=4)
    for name in spies:
        attend(q_HTD, k_GTD, v_GTD, plan=causal_plan(3), rope=None, scale=1.0, backend=name)
    assert called == list(spies)


@pytest.mark.parametrize("backend", ["cudnn", "triton", "Sliced", ""])
def test_an_unknown_backend_lists_the_available_ones(backend: str) -> None:
    """Catches: a fallback, and a stub that is listed before it exists."""
    q_HTD, k_GTD, v_GTD, _ = random_inputs(3, kv_heads=1, group=1, head_dim=4)
    with pytest.raises(
        BackendUnavailable, match=f"'{backend}' is not available here .*; available: reference, sliced"
    ):
        attend(q_HTD, k_GTD, v_GTD, plan=causal_plan(3), rope=None, scale=1.0, backend=backend)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_default_is_available(device: str) -> None:
    """Catches: a table that names what is not there."""
    assert default_backend(torch.device(device), torch.bfloat16, 256) in available_backends()


@pytest.mark.parametrize(
    ("rows", "kv_heads", "dtype", "message"),
    [
        (4, 2, torch.float64, "q has 4 rows, the plan has 5"),
        (5, 3, torch.float64, "4 query heads cannot share 3 key/value heads evenly"),
        (5, 2, torch.float32, "must have one dtype, not torch.float32, torch.float64, torch.float64"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    rows: int, kv_heads: int, dtype: torch.dtype, message: str
) -> None:
    """Catches: a plan or a head count of another pack accepted in silence."""
    q_HTD = torch.zeros(4, rows, 8, dtype=dtype)
    kv_GTD = torch.zeros(kv_heads, rows, 8, dtype=torch.float64)
    with pytest.raises(ValueError, match=message):
        attend(q_HTD, kv_GTD, kv_GTD, plan=causal_plan(5), rope=make_rope(8), scale=1.0, backend="sliced")


def test_keys_of_another_length_are_refused() -> None:
    """Catches: a mask of one size used on keys of another."""
    q_HTD, k_GTD, v_GTD, _ = random_inputs(5, kv_heads=1, group=1, head_dim=4)
    with pytest.raises(ValueError, match="do not fit q"):
        attend(q_HTD, k_GTD[:, :4], v_GTD[:, :4], plan=causal_plan(5), rope=None, scale=1.0, backend="sliced")
