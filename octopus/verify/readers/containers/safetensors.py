"""The safetensors format, by an own parser: eight bytes of header length, a JSON header, and the tensors' bytes.

Every tensor's type, shape and place are checked against each other and against the file before anything is allocated.
Tensors must fill the file without holes or overlaps, as the format demands.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from octopus.verify.inputs import Unreadable
from octopus.verify.readers.bag import Stored
from octopus.verify.readers.containers.json_text import is_count, parse_json
from octopus.verify.readers.containers.source import opened, read_exactly, refuse_beyond, refuse_name

MAX_HEADER_BYTES = 2**20
MAX_AXES = 8
_TYPES = {
    "BOOL": "?", "U8": "<u1", "I8": "<i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8",
    "I64": "<i8", "F16": "<f2", "BF16": "<u2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip


def read_safetensors(path: Path, max_bytes: int) -> dict[str, Stored]:
    """The tensors by name; bfloat16 is widened to float32, which is exact.

    Raises:
        Unreadable: the header is too long, no JSON, lies about a tensor, or the file asks for too much.
    """
    with opened(path) as (file, size):
        header, start = _header(file, size)
        metadata = header.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            raise Unreadable("the safetensors metadata is not a table of strings")
        for name, entry in header.items():
            _check_entry(name, entry)
        _check_layout(header, size - start)
        refuse_beyond(sum(_bytes_in_memory(entry) for entry in header.values()), max_bytes, "the safetensors file")
        return {name: _tensor(file, start, name, entry) for name, entry in header.items()}


def _header(file: BinaryIO, size: int) -> tuple[dict[str, Any], int]:
    """The header and the offset of the first tensor byte."""
    length = int.from_bytes(read_exactly(file, 8, "the header's length"), "little")
    if length > MAX_HEADER_BYTES or length > size - 8:
        raise Unreadable(
            f"the safetensors header says that it is {length:,} bytes long; {min(MAX_HEADER_BYTES, size - 8):,} are "
            "the most that are read here"
        )
    header = parse_json(read_exactly(file, length, "the header"), "the safetensors header")
    if not isinstance(header, dict):
        raise Unreadable("the safetensors header is not a table")
    return header, 8 + length


def _check_entry(name: str, entry: object) -> None:
    refuse_name(name, "a tensor")
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise Unreadable(f"tensor {name} is not described by dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _TYPES:
        raise Unreadable(f"tensor {name} has a type that is not accepted; accepted are {', '.join(_TYPES)}")
    if not isinstance(shape, list) or len(shape) > MAX_AXES or not all(map(is_count, shape)):
        raise Unreadable(f"tensor {name} has no sensible shape")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(is_count, offsets)):
        raise Unreadable(f"tensor {name} has no sensible data_offsets")
    needed = math.prod(shape) * np.dtype(_TYPES[dtype]).itemsize
    if needed != offsets[1] - offsets[0]:
        raise Unreadable(
            f"tensor {name} of shape {shape} and type {dtype} needs {needed:,} bytes, its data_offsets {offsets} span "
            f"{offsets[1] - offsets[0]:,}"
        )


def _check_layout(header: dict[str, Any], data_bytes: int) -> None:
    """One tensor begins where the one before ends, and the last one ends with the file."""
    at = 0
    for name, entry in sorted(header.items(), key=lambda item: tuple(item[1]["data_offsets"])):
        start, stop = entry["data_offsets"]
        if start != at:
            raise Unreadable(f"tensor {name} lies at {start:,}, where {at:,} is the next byte: a hole or an overlap")
        at = stop
    if at != data_bytes:
        raise Unreadable(f"the tensors end at byte {at:,}, the file's data at {data_bytes:,}")


def _bytes_in_memory(entry: dict[str, Any]) -> int:
    start, stop = entry["data_offsets"]
    return int(stop - start) * (2 if entry["dtype"] == "BF16" else 1)


def _tensor(file: BinaryIO, start: int, name: str, entry: dict[str, Any]) -> Stored:
    first, stop = entry["data_offsets"]
    file.seek(start + first)
    data = read_exactly(file, stop - first, f"tensor {name}")
    if entry["dtype"] == "BOOL" and data.translate(None, b"\0\1"):
        raise Unreadable(f"tensor {name} is of type BOOL and has bytes other than 0 and 1")
    array = np.frombuffer(data, dtype=_TYPES[entry["dtype"]]).reshape(entry["shape"])
    if entry["dtype"] == "BF16":
        return Stored(array=(array.astype(np.uint32) << 16).view(np.float32), dtype="bfloat16")
    return Stored(array=array, dtype=array.dtype.name)
