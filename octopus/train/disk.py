"""Files that are on the disk, whole, when a function says so: a machine may lose its power at any moment."""

from __future__ import annotations

import os
from pathlib import Path


def flush(path: Path) -> None:
    """Waits until a file, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, text: str) -> None:
    """Writes a file so that whoever reads it finds the old text or the new, whenever the writer is killed."""
    draft = path.with_name(f".{path.name}.draft")
    draft.unlink(missing_ok=True)  # In a folder from elsewhere it may be a link to what is not to be written.
    draft.write_text(text)
    flush(draft)
    draft.replace(path)
    flush(path.parent)
