"""One file into a bag, by what its name ends with; and bags into one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from octopus.verify.inputs import Hints, Unreadable
from octopus.verify.readers.bag import Bag, Line, Stored
from octopus.verify.readers.containers.json_text import read_json, read_json_lines
from octopus.verify.readers.containers.npy import read_npy
from octopus.verify.readers.containers.npz import read_npz
from octopus.verify.readers.containers.pt import read_pt
from octopus.verify.readers.containers.safetensors import read_safetensors
from octopus.verify.readers.containers.source import printable

ENDINGS = (".npy", ".npz", ".safetensors", ".json", ".jsonl", ".pt")
_NAMED = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<path>.+)", re.DOTALL)
_PLAIN = {bool: "bool", int: "int64", float: "float64"}


def gather(paths: Sequence[str], hints: Hints) -> Bag:
    """All files in one bag. A path may be `NAME=FILE`, which names the array of a `.npy` or the one of a `.pt` file.

    Raises:
        Unreadable: a file cannot be read, or two give an array of the same name.
    """
    if not paths:
        raise Unreadable("no file was given")
    arrays: dict[str, Stored] = {}
    tables: dict[str, Any] = {}
    lines: list[Line] = []
    loose: dict[str, str] = {}
    for path in paths:
        bag = load(path, hints)
        for name in [*bag.arrays, *bag.tables]:
            if name in arrays or name in tables:
                raise Unreadable(f"{printable(path)} gives {name} once more; name one of them, as in other={path}")
        if lines and bag.lines:
            raise Unreadable("give one file of JSON lines at a time")
        arrays |= bag.arrays
        tables |= bag.tables
        lines += bag.lines
        loose |= bag.loose
    source = printable(_NAMED.sub(r"\g<path>", paths[0]))
    return Bag(source=source, arrays=arrays, tables=tables, lines=tuple(lines), loose=loose)


def load(path: str, hints: Hints) -> Bag:
    """What one file holds. Raises `Unreadable`, with the file's name in the message."""
    named = _NAMED.fullmatch(path)
    file = Path(named["path"] if named else path)
    shown = printable(str(file))
    try:
        bag = _load(file, hints)
    except Unreadable as error:
        message = str(error)
        raise Unreadable(message if shown in message else f"{shown}: {message}") from error
    if named is None:
        return bag
    if len(bag.arrays) != 1:
        raise Unreadable(f"{shown} holds {len(bag.arrays)} arrays; {named['name']}= names the only one of a file")
    return Bag(source=bag.source, arrays={named["name"]: next(iter(bag.arrays.values()))})


def _load(file: Path, hints: Hints) -> Bag:
    ending, limit = file.suffix.lower(), hints.max_bytes
    if ending == ".npy":
        return Bag(arrays=_stored({file.stem: read_npy(file, limit)}), loose={file.stem: printable(str(file))})
    if ending == ".npz":
        return Bag(arrays=_stored(read_npz(file, limit)))
    if ending == ".safetensors":
        return Bag(arrays=read_safetensors(file, limit))
    if ending == ".json":
        return _document(read_json(file))
    if ending == ".jsonl":
        return Bag(lines=tuple(Line(number=number, value=value) for number, value in read_json_lines(file, limit)))
    if ending in (".pt", ".pth"):
        if not hints.allow_pt:
            raise Unreadable("a .pt file is a pickle; save it as .safetensors, or say --allow-pt if you trust it")
        return Bag(arrays=read_pt(file, limit))
    other = printable(ending) or "a folder or a bare name"
    raise Unreadable(f"files that end in {', '.join(ENDINGS)} are read, not {other}")


def _stored(arrays: dict[str, np.ndarray]) -> dict[str, Stored]:
    return {name: Stored(array=array, dtype=array.dtype.name) for name, array in arrays.items()}


def _document(value: Any) -> Bag:
    """A model's configuration as the table `config`; any other object by its keys, number lists as arrays."""
    if not isinstance(value, dict):
        raise Unreadable("the JSON document is not an object")
    if "num_attention_heads" in value or isinstance(value.get("text_config"), dict):
        return Bag(tables={"config": value})
    arrays, tables = {}, {}
    for name, entry in value.items():
        array = _as_array(entry)
        if array is None:
            tables[name] = entry
        else:
            arrays[name] = array
    return Bag(arrays=arrays, tables=tables)


def _as_array(value: Any) -> Stored | None:
    """The value as an array if it is a number or a full block of nested lists of numbers of one type."""
    shape: list[int] = []
    flat = [value]
    while flat and all(isinstance(entry, list) for entry in flat):
        lengths = {len(entry) for entry in flat}
        if len(lengths) != 1 or len(shape) == 8:
            return None
        shape.append(lengths.pop())
        flat = [inner for entry in flat for inner in entry]
    kinds = {type(entry) for entry in flat}
    if kinds == {int, float}:
        kinds = {float}
    if not kinds <= set(_PLAIN) or len(kinds) > 1 or (int in kinds and max(map(abs, flat)) >= 2**63):
        return None
    dtype = _PLAIN[kinds.pop()] if kinds else "int64"
    return Stored(array=np.array(flat, dtype=dtype).reshape(shape), dtype=dtype)
