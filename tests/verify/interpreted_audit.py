"""The self-test's faults in a model whose packed attention is our own kernels, in Triton's interpreter.

A program of its own, as the interpreter is chosen when Triton is imported. Prints what is found without a fault, then
of each fault its code, and the code by which it was found.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import sys

import torch

from octopus.attention import backends
from octopus.attention.dag import packed
from octopus.attention.dag.packed import Blocks, KernelTable
from octopus.attention.libraries import kernel
from octopus.verify.selftest.bench import Bench
from octopus.verify.selftest.cell import cell, clean_reports
from octopus.verify.selftest.faults import FAULTS

SMALL = Blocks(other=32, rest=16, warps=4, stages=1)

if __name__ == "__main__":
    packed.kernel_table = lambda head_dim: KernelTable(own=32, forward=SMALL, queries=SMALL, keys=SMALL, values=SMALL)
    backends.unavailable = kernel.unavailable = lambda name: None  # It says that there is no GPU.
    kernel._refusal = lambda name, like: None
    bench, wanted = Bench(name="llama", backend="triton"), sys.argv[1:]
    for _, report in clean_reports(bench, torch.float32):
        for finding in report.findings:
            print("clean", finding.code, finding.message.replace(" ", "_"), flush=True)
    for fault in FAULTS:
        if "llama" in fault.stacks and not fault.dump and (not wanted or fault.name in wanted):
            found = cell(bench, fault, torch.float32)
            print(fault.name, fault.code, found.code if found.visible else "invisible", flush=True)
