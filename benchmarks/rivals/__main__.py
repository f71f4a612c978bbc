"""`python -m rivals ADAPTER`, in the rivals' own environment: prints that adapter's figures as JSON lines.

Whatever the library logs goes to stderr.
"""

from __future__ import annotations

import contextlib
import json
import sys
from importlib import import_module
from importlib.metadata import version

import torch
from torch import library as operators


def declared_vision_operators() -> operators.Library:
    """Declares the operators without which torchvision cannot be imported; they go when what is returned does.

    Its wheel holds them for CUDA builds of torch only. SGLang and vLLM import it for image models, which we do not run.
    """
    declared = operators.Library("torchvision", "FRAGMENT")
    if torch.version.cuda is None:
        for name in ("nms", "qnms"):
            declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return declared


def main() -> None:
    torch.set_num_threads(1)
    declared = declared_vision_operators()
    with contextlib.redirect_stdout(sys.stderr):
        adapter = import_module(f"rivals.{sys.argv[1]}")
        figures = list(adapter.figures())
    versions = {package: version(package) for package in (adapter.PACKAGE, "torch")}
    for figure in figures:
        print(json.dumps({**figure._asdict(), "versions": versions}))
    del declared  # Until here it had to live.


if __name__ == "__main__":
    main()
