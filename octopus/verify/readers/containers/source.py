"""Opening a file that may be hostile: regular, not too large, and read no further than was checked."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from octopus.verify.inputs import Unreadable

MAX_NAME_CHARACTERS = 200
BYTES_PER_TOKEN = 64
"""What an audit holds at least for each token, whatever the files hold."""


def refuse_beyond(n_bytes: int, max_bytes: int, what: str) -> None:
    """Raises `Unreadable` if `what` needs more than is allowed."""
    if n_bytes > max_bytes:
        raise Unreadable(f"{what} asks for {n_bytes:,} bytes; {max_bytes:,} are allowed (--max-bytes raises that)")


@contextmanager
def opened(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """The file and its size in bytes.

    Raises:
        Unreadable: it is missing, a directory, a pipe or a device, or may not be read. A pipe is never waited for.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Unreadable(f"cannot open {printable(str(path))}: {reason}") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise Unreadable(f"{printable(str(path))} is not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        yield file, status.st_size


def read_exactly(file: BinaryIO, n_bytes: int, what: str) -> bytes:
    """The next `n_bytes` of the file. Raises `Unreadable` if it ends before."""
    data = file.read(n_bytes)
    if len(data) != n_bytes:
        raise Unreadable(f"the file ends inside {what}: {n_bytes:,} bytes expected, {len(data):,} there")
    return data


def printable(name: str) -> str:
    """The name as it may be shown: no control characters (which would speak to a terminal), not endless."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in name)
    return shown if len(shown) <= MAX_NAME_CHARACTERS else shown[:MAX_NAME_CHARACTERS] + "..."


def refuse_name(name: str, what: str) -> None:
    """Raises `Unreadable` for a name of a tensor or member that is a path trick or cannot be printed."""
    parts = name.replace("\\", "/").split("/")
    if not name or name != printable(name) or ".." in parts or "" in parts or ":" in name:
        raise Unreadable(f"{what} has a name that is not accepted: {printable(name)!r}")
