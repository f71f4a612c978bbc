"""Files to subjects: every format says what it finds in the bag, and their words are put together by batch row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from octopus.verify.inputs import Hints, Unreadable
from octopus.verify.readers import declared
from octopus.verify.readers.bag import Bag
from octopus.verify.readers.containers.source import BYTES_PER_TOKEN, refuse_beyond
from octopus.verify.readers.files import gather
from octopus.verify.readers.fitting import refuse_unfit
from octopus.verify.readers.formats import (
    block_mask,
    boundaries,
    descent,
    endpoints,
    episodes,
    flash_mask,
    gradients,
    heads,
    key_cache,
    loss,
    magi,
    mask,
    padding,
    positions,
    resume,
    slices,
    trace,
    tree_row,
)
from octopus.verify.readers.part import Format, Part
from octopus.verify.subject import Subject

MAX_ROWS = 4096
"""Batch rows or episodes of one run; each is audited by itself."""

# In the order in which they are asked how many tokens there are.
ALL: tuple[Format, ...] = tuple(
    module.FORMAT
    for module in (
        mask, slices, flash_mask, magi, endpoints, tree_row, block_mask, episodes, trace, descent, padding, positions,
        boundaries, key_cache, gradients, loss, heads, resume,
    )
)  # fmt: skip
FORMATS: tuple[str, ...] = tuple(form.name for form in ALL)
NAMES_SHOWN = (
    "Names: mask, parents, tin and tout, segments, document_ids, cu_seqlens, position_ids, attention_mask, labels, ..."
)
MASKS = frozenset(name for form in ALL if form.name in ("mask", "slices", "flashmask", "magi") for name in form.names)
KNOWN: frozenset[str] = frozenset(name for form in ALL for name in form.names) | frozenset(declared.NAMES)


def read(paths: Sequence[str], *, hints: Hints) -> list[Subject]:
    """The subjects that the files describe together, one a batch row, episode or trace.

    Args:
        paths: Files, each as `FILE` or `NAME=FILE`; `NAME` names the array of a file that holds one.
        hints: `hints.format` limits the reading to one format.

    Raises:
        Unreadable: a file is broken, hostile, too large or of no known kind; or the files do not fit together.
    """
    bag = _without_loose_ends(_lone_matrix(gather(paths, hints)))
    try:
        return subjects(bag, hints)
    except Unreadable as error:
        raise Unreadable(f"{bag.source}: {error}") from error


def subjects(bag: Bag, hints: Hints) -> list[Subject]:
    """The subjects that a bag describes, one a batch row. Raises `Unreadable`."""
    if hints.format is not None and hints.format not in FORMATS:
        raise Unreadable(f"{hints.format} is no format; there are {', '.join(FORMATS)}")
    parts: dict[str, Sequence[Part]] = {}
    for form in ALL:
        if hints.format in (None, form.name) and (found := form.read(bag, hints)):
            parts[form.name] = found
    if not parts:
        raise Unreadable(_nothing(bag))
    rows = _rows(parts)
    unused = sorted((bag.arrays.keys() | bag.tables.keys()) - KNOWN)
    notes = [*bag.notes, *([f"not used, since no format has such a name: {', '.join(unused)}"] if unused else [])]
    return [_subject(bag, hints, parts, row, rows, notes) for row in range(rows)]


def _lone_matrix(bag: Bag) -> Bag:
    """Of arrays under names that nobody knows, the only one that is square is the mask, if no other is given."""
    square = [
        name
        for name, stored in bag.arrays.items()
        if name not in KNOWN and stored.array.ndim >= 2 and stored.array.shape[-1] == stored.array.shape[-2]
    ]
    if len(square) != 1 or MASKS & bag.arrays.keys() or bag.lines:
        return bag
    arrays = {("mask" if name == square[0] else name): stored for name, stored in bag.arrays.items()}
    loose = {name: file for name, file in bag.loose.items() if name != square[0]}
    return replace(bag, arrays=arrays, loose=loose, notes=(f"{square[0]} is square and was taken for the mask",))


def _without_loose_ends(bag: Bag) -> Bag:
    """Refuses a file that was given for nothing: what it should have been checked against would be missed silently."""
    for name, file in bag.loose.items():
        if name not in KNOWN:
            near = sorted((known for known in KNOWN if known.startswith(name)), key=len)
            near = near or get_close_matches(name, sorted(KNOWN), n=1, cutoff=0.5) or ["position_ids"]
            example = f"{near[0]}={file}"
            raise Unreadable(f"nothing is known by the name of {name}; say what it is, as in {example}. {NAMES_SHOWN}")
    return bag


def _nothing(bag: Bag) -> str:
    names = ", ".join(sorted(bag.arrays.keys() | bag.tables.keys())[:10])
    if bag.lines:
        return "the lines are neither events of a trace (`kind`) nor episodes (`segments`)"
    return (
        f"nothing known by the name of {names or 'anything'}; name it, as in position_ids=FILE. "
        f"{NAMES_SHOWN}"
    )


def _rows(parts: dict[str, Sequence[Part]]) -> int:
    """How many batch rows there are. Raises `Unreadable` if formats with more than one do not agree."""
    counts = {name: len(found) for name, found in parts.items()}
    rows = max(counts.values())
    if rows > MAX_ROWS:
        raise Unreadable(f"{rows:,} rows at once; at most {MAX_ROWS:,} are read")
    for name, count in counts.items():
        if count not in (1, rows):
            raise Unreadable(f"{name} has {count} batch rows, others have {rows}")
    return rows


def _subject(
    bag: Bag, hints: Hints, parts: dict[str, Sequence[Part]], row: int, rows: int, notes: Sequence[str]
) -> Subject:
    fields: dict[str, Any] = {}
    givers: dict[str, str] = {}
    found = {name: several[row if len(several) > 1 else 0] for name, several in parts.items()}
    for name, part in found.items():
        for field, value in part.fields.items():
            if field in fields:
                raise Unreadable(f"{givers[field]} and {name} both give the {field}: choose with --format-in")
            fields[field], givers[field] = value, name
    lengths = [part.length for part in found.values() if part.length is not None]
    longest = max(lengths, default=0)
    refuse_beyond(longest * BYTES_PER_TOKEN, hints.max_bytes, f"a row of {longest:,} tokens")
    length = lengths[0] if lengths else 0
    if lengths and not length and "events" not in fields:
        raise Unreadable("there is not one token in it")
    purposes = declared.declared(bag, hints)
    refuse_unfit(fields, purposes, length)
    names = [part.name for part in found.values() if part.name is not None]
    said = [note for part in found.values() for note in part.notes]
    return Subject(
        name=names[0] if names else f"batch{row}",
        source=bag.source,
        length=length,
        declared=purposes,
        notes=tuple(dict.fromkeys([*said, *notes])),
        **fields,
    )
