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


def declare_vision_operators() -> None:
    """Declares the operators without which torchvision cannot be imported.

    Its wheel holds them for CUDA builds of torch only. SGLang and vLLM import it for image models, which we do not run.
    """
    if torch.version.cuda is None:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        declare_vision_operators.library = library  # The operators go when this does.


def main() -> None:
    torch.set_num_threads(1)
    declare_vision_operators()
    with contextlib.redirect_stdout(sys.stderr):
        adapter = import_module(f"rivals.{sys.argv[1]}")
        figures = list(adapter.figures())
    versions = {package: version(package) for package in (adapter.PACKAGE, "torch")}
    for figure in figures:
        print(json.dumps({**figure._asdict(), "versions": versions}))


if __name__ == "__main__":
    main()
