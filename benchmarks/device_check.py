"""Whether a device computes what the float64 reference says: packed attention, and paged rollouts of whole models.

Prints one JSON object a check; exit code 1 if any fails. The bounds are those of the CPU tests.

    PYTHONPATH=.:tests:tests/attention python benchmarks/device_check.py --device cuda
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import torch
import transformers
from numeric import random_plan
from random_rollouts import RandomRollout, packed_log_probabilities, tiny_engine
from tiny_models import tiny_llama, tiny_qwen35
from torch import Tensor

from octopus.attention.plan import Plan
from octopus.attention.reference import attend_reference
from octopus.attention.rope import Rope
from octopus.attention.sliced import attend_sliced

KV_HEADS = 2


def attention_error(device: str, seed: int, *, group: int, head_dim: int, dtype: torch.dtype) -> float:
    """Worst error of output and gradients of `sliced` in `dtype` against the float64 reference, of the largest entry.

    Slots that no row sees hold 1e4 for `sliced` and 0 for the reference: they must not matter.
    """
    plan = random_plan(seed, segments=9, longest=37)
    torch.manual_seed(seed)
    rope = Rope(inverse_frequencies_R=torch.rand(head_dim // 8, dtype=torch.float64, device=device))
    heads = (KV_HEADS * group, KV_HEADS, KV_HEADS, KV_HEADS * group)
    q, k, v, d_out = (torch.randn(n, plan.length, head_dim, device=device).to(dtype) for n in heads)
    seen = torch.zeros(plan.length, dtype=torch.bool, device=device)
    for piece in plan.slices:
        seen[piece.k0 : piece.k1] = True
    clean = [x.double() for x in (q, k, v)]
    poisoned = [q, *(torch.where(seen[:, None], x, torch.full_like(x, 1e4)) for x in (k, v))]
    expected = results(attend_reference, plan, clean, d_out.double(), rope)
    found = results(attend_sliced, plan, poisoned, d_out, rope)
    return max(float((a.double() - b).abs().max() / b.abs().max()) for a, b in zip(found, expected, strict=True))


def results(
    attend: Callable[..., tuple[Tensor, Tensor]], plan: Plan, inputs: list[Tensor], d_out: Tensor, rope: Rope
) -> list[Tensor]:
    """The output and the gradients of q, k and v."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    out, _ = attend(*leaves, plan=plan, rope=rope, scale=leaves[0].shape[-1] ** -0.5)
    return [out.detach(), *torch.autograd.grad(out, leaves, d_out)]


def rollout_error(device: str, build: Any, seed: int) -> float:
    """Worst error of sampled tokens' log-probabilities, paged and batched against packed, in float64."""
    engine = tiny_engine(build().to(device), batch_tokens=7, pages=400, state_slots=200)
    rollout = RandomRollout(engine, seed)
    rollout.run(60)
    recorded = rollout.recorded()
    segments = [rollout.segments[index] for index in sorted(rollout.segments)]
    again = packed_log_probabilities(engine.backbone, segments, list(recorded))
    return max(abs(a - b) for a, b in zip(recorded.values(), again, strict=True))


def checks(device: str) -> Iterator[tuple[str, float, float]]:
    """`(case, worst error, bound)`."""
    for dtype, bound in ((torch.float64, 1e-12), (torch.float32, 1e-4), (torch.bfloat16, 3e-2)):
        for group, head_dim in ((1, 32), (7, 64), (4, 256)):
            errors = [attention_error(device, s, group=group, head_dim=head_dim, dtype=dtype) for s in range(8)]
            yield f"sliced/{str(dtype)[6:]}/group{group}/d{head_dim}", max(errors), bound
    for build in (tiny_llama, tiny_qwen35):
        yield f"rollouts/{build.__name__}", max(rollout_error(device, build, seed) for seed in range(6)), 1e-10


def main() -> int:
    """Runs all checks."""
    parser = argparse.ArgumentParser(description="Compare a device with the float64 reference.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    device = parser.parse_args().device
    card = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    failed = 0
    for case, error, bound in checks(device):
        failed += error > bound
        line = {
            "benchmark": "device_check",
            "case": case,
            "variant": "octopus",
            "metric": "worst_relative_error",
            "value": error,
            "unit": "1",
            "bound": bound,
            "device": card,
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
            "date": datetime.now(UTC).date().isoformat(),
            "command": f"python benchmarks/device_check.py --device {device}",
        }
        print(json.dumps(line), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
