"""Trains the shipped model from its recipe: `make warmup`.

Goes on from the newest save in the folder, so it may be run in several commands. At the end of each it writes the
policy (model in float16, tokenizer) into `FOLDER/policy`.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import torch

from octopus.train.policy import save_policy
from octopus.train.warmup import Warmup
from octopus.train.warmup_config import load_recipe

ROOT = Path(__file__).parent.parent


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(description="Train the shipped model from its recipe.")
    parser.add_argument("--recipe", type=Path, default=ROOT / "examples" / "warmup.toml")
    parser.add_argument("--folder", type=Path, default=Path("runs/warmup"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=12, help="processes that play scripted episodes ahead")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after so many seconds, resumable")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")  # TF32 on a GPU; nothing on a CPU.
    torch.zeros(1, device=options.device)  # The GPU's context first: worker processes may take much memory.
    warmup = Warmup(
        load_recipe(options.recipe, overrides=tuple(options.overrides)),
        folder=options.folder,
        codec_path=ROOT / "octopus" / "shipped" / "tokenizer.json",
        device=options.device,
        report=lambda line: print(line, flush=True),
    )
    finished = warmup.run(workers=options.workers, seconds=options.seconds)
    save_policy(options.folder / "policy", warmup.model.half(), warmup.codec)
    print("finished" if finished else f"stopped at step {warmup.step}; run again to go on", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
