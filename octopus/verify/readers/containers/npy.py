"""NumPy's `.npy` format, by an own parser of its header: nothing is evaluated and nothing is unpickled.

The format is described in numpy's `numpy.lib.format`: a magic string, two bytes of version, the header's length (two
bytes in version 1.0, four in 2.0 and 3.0) and a Python literal `{'descr': '<f4', 'fortran_order': False, 'shape':
(2, 3), }`. Only that literal with a plain number type is accepted; it is matched, not parsed as Python.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np

from octopus.verify.inputs import Unreadable
from octopus.verify.readers.containers.source import opened, read_exactly, refuse_beyond

MAGIC = b"\x93NUMPY"
MAX_HEADER_BYTES = 4096
MAX_AXES = 8
_HEADER = re.compile(
    r"\{'descr': '(?P<type>[<>|=][a-zA-Z]\d{0,3})', 'fortran_order': (?P<fortran>True|False), "
    r"'shape': \((?P<shape>[\d, ]{0,200})\), ?\}\s*"
)
_NUMBERS = re.compile(r"[<>|=](?:b1|[iu][1248]|f[248])")


def read_npy(path: Path, max_bytes: int) -> np.ndarray:
    """The array of a `.npy` file. Raises `Unreadable`."""
    with opened(path) as (file, size):
        # A header is never longer than this, so an honest file of an allowed array passes.
        refuse_beyond(size - MAX_HEADER_BYTES, max_bytes, "the file")
        return parse_npy(read_exactly(file, size, "the file"), "the file")


def parse_npy(data: bytes, what: str) -> np.ndarray:
    """The array that the bytes of a whole `.npy` file describe, as a read-only view of them where possible.

    Args:
        data: All of it; the caller has bounded its length.
        what: How errors call it.

    Raises:
        Unreadable: another format, a type that is not a plain number (an object would be a pickle), or a header that
            asks for more or less than `data` holds.
    """
    dtype, fortran, shape, start = _header(data, what)
    count = math.prod(shape)
    if count * dtype.itemsize != len(data) - start:
        raise Unreadable(
            f"{what}: the header asks for {count * dtype.itemsize:,} bytes (shape {shape}, {dtype.name}), "
            f"{len(data) - start:,} are there"
        )
    flat = np.frombuffer(data, dtype=dtype, count=count, offset=start)
    if dtype == np.bool_ and count and flat.view(np.uint8).max() > 1:
        raise Unreadable(f"{what} is of type bool and has bytes other than 0 and 1")
    return flat.reshape(shape, order="F" if fortran else "C").astype(dtype.newbyteorder("="), copy=False)


def _header(data: bytes, what: str) -> tuple[np.dtype, bool, tuple[int, ...], int]:
    """Type, order, shape and the offset of the first element."""
    if data[: len(MAGIC)] != MAGIC:
        raise Unreadable(f"{what} is not in NumPy's format: it does not begin with its magic string")
    length_bytes = {b"\1\0": 2, b"\2\0": 4, b"\3\0": 4}.get(data[6:8])
    if length_bytes is None:
        raise Unreadable(f"{what} is in a version of NumPy's format that does not exist")
    start = 8 + length_bytes
    length = int.from_bytes(data[8:start], "little")
    if length > min(MAX_HEADER_BYTES, len(data) - start):
        raise Unreadable(f"{what}: the header says that it is {length:,} bytes long")
    header = data[start : start + length].decode("latin-1")
    match = _HEADER.fullmatch(header)
    if match is None:
        raise Unreadable(f"{what}: the header is not that of a plain array (structured types are not accepted)")
    if match["type"].endswith("O"):
        raise Unreadable(f"{what} holds Python objects, that is, a pickle: it is never loaded")
    if _NUMBERS.fullmatch(match["type"]) is None:
        raise Unreadable(
            f"{what} has element type {match['type']}; bool, integers and float16 to float64 are accepted "
            "(write bfloat16 as safetensors, or convert it to float32)"
        )
    numbers = [part.strip() for part in match["shape"].split(",") if part.strip()]
    if len(numbers) > MAX_AXES or not all(number.isdigit() and len(number) < 19 for number in numbers):
        raise Unreadable(f"{what}: the header has no sensible shape")
    shape = tuple(map(int, numbers))
    return np.dtype(match["type"]), match["fortran"] == "True", shape, start + length
