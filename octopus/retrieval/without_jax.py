"""The library bm25s, imported without JAX.

bm25s probes for JAX while it is imported, and where JAX has a GPU that probe reserves three quarters of the GPU's
memory for each process. What it would be used for (choosing the best hits) is done here with numpy.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType


def _without_jax(name: str) -> ModuleType:
    """Imports a module to which JAX seems not to be installed; JAX itself stays as it was."""
    hidden = {key: module for key, module in sys.modules.items() if key == "jax"}
    sys.modules["jax"] = None  # type: ignore[assignment]  # How the import system says: not to be had.
    try:
        return importlib.import_module(name)
    finally:
        del sys.modules["jax"]
        sys.modules.update(hidden)


bm25s = _without_jax("bm25s")
