"""The audits of paged decoders on our own paged kernels, in Triton's interpreter, in float32.

A program of its own, as the interpreter is chosen when Triton is imported. Prints what is found without a fault in each
family, then of each planted fault the codes by which it was found, then how often our kernels attended.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

from contextlib import nullcontext

import torch
from paged_faults import FAULTS

from octopus.attention.dag.paged import PagedPass
from octopus.models import backbone
from octopus.verify.functional.paged import paged_findings
from octopus.verify.selftest.fault import GEMMA3, LLAMA, QWEN
from octopus.verify.selftest.paged import EngineStack
from octopus.verify.subject import Subject

if __name__ == "__main__":
    attended, attend = [], PagedPass.attend
    PagedPass.attend = lambda *given, **named: (attended.append(1), attend(*given, **named))[1]
    backbone.refuse_paged_backend = lambda name, device: None  # It says that there is no GPU.
    cases = [(f"clean {family}", family, nullcontext) for family in (LLAMA, QWEN, GEMMA3)]
    for name, family, fault in [*cases, *((fault.__name__, LLAMA, fault) for fault in FAULTS)]:
        with fault():
            stack = EngineStack(family=family, dtype=torch.float32, backend="triton")
            found = {finding.code for finding in paged_findings(stack, Subject(name="paged", length=0))}
        print(name, *sorted(found), flush=True)
    print("attended", len(attended))
