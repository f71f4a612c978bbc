"""`octopus-verify convert`: what was read from any format, written as named arrays that are read back the same."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from octopus.core.errors import ConfigError
from octopus.verify.case import Case
from octopus.verify.inputs import MAX_BYTES, Hints
from octopus.verify.pairs import TooManyRuns
from octopus.verify.readers.containers.source import refuse_beyond
from octopus.verify.readers.reading import FORMATS, read
from octopus.verify.subject import FULL, DenseMask, Ranges, Subject


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="dumps, each FILE or NAME=FILE")
    parser.add_argument("output", type=Path, metavar="OUT", help="file to write: .npz or .safetensors")
    parser.add_argument("--row", type=int, default=0, metavar="N", help="batch row, episode or trace to write (first)")
    parser.add_argument("--mask", choices=("dense", "slices"), help="form of the mask (as it is)")
    parser.add_argument("--mask-convention", choices=("keep", "drop", "additive"), help="what True or 0 means")
    parser.add_argument("--format-in", choices=FORMATS, help="the reader to use; found out by default")
    parser.add_argument("--allow-pt", action="store_true", help="read .pt files (loads torch, weights only)")
    parser.add_argument("--max-bytes", type=int, default=MAX_BYTES, metavar="N", help="largest array (%(default)s)")


def run(options: argparse.Namespace) -> int:
    """Reads, writes, says what was assumed on stderr, and returns 0. Raises Unreadable and ConfigError."""
    hints = Hints(
        convention=options.mask_convention,
        allow_pt=options.allow_pt,
        max_bytes=options.max_bytes,
        format=options.format_in,
    )
    subjects = read(options.files, hints=hints)
    if not 0 <= options.row < len(subjects):
        raise ConfigError(f"--row {options.row}: there are {len(subjects)} rows, counted from 0")
    subject = subjects[options.row]
    write(options.output, arrays_of(subject, options.mask, options.max_bytes))
    for note in subject.notes:
        print(f"octopus-verify: {note}", file=sys.stderr)
    return 0


def arrays_of(subject: Subject, mask: str | None, max_bytes: int) -> dict[str, np.ndarray]:
    """The subject's mask, descent, positions, padding, boundaries and targets by the names that files use.

    Raises:
        ConfigError: there is nothing of them, or the mask has too many runs for slices.
        Unreadable: a dense mask would be larger than `max_bytes`.
    """
    found: dict[str, Any] = {}
    if subject.mask is not None:
        found |= _mask(subject, mask, max_bytes)
    found |= _descent(subject)
    if subject.positions is not None:
        ids_AT = subject.positions.ids_AT
        found["position_ids"] = ids_AT[0] if len(ids_AT) == 1 else ids_AT[:, None]
    if subject.padding_T is not None:
        found["key_padding_mask"] = subject.padding_T
    if subject.boundaries is not None:
        found["cu_seqlens_q"] = subject.boundaries.queries_N
        if subject.boundaries.keys_N is not None:
            found["cu_seqlens_k"] = subject.boundaries.keys_N
    if subject.loss is not None:
        found["loss_tokens"], found["loss_predictors"] = subject.loss.token_rows_N, subject.loss.predictor_rows_N
        optional = {"loss_weights": subject.loss.weights_N, "supervised": subject.loss.supervised_T}
        optional["sampled"] = subject.loss.sampled_T
        found |= {name: array for name, array in optional.items() if array is not None}
    if not found:
        raise ConfigError(f"{subject.name} has no mask, descent, positions or targets to convert")
    return {name: np.ascontiguousarray(array) for name, array in found.items()}


def _mask(subject: Subject, form: str | None, max_bytes: int) -> dict[str, Any]:
    mask = subject.mask
    if isinstance(mask, DenseMask) and form != "slices":
        stored = mask.seen_HQK if mask.values_HQK is None else mask.values_HQK
        return {"mask": stored[None], "query_start": np.array(subject.query_start)}
    try:
        seen = Case(replace(subject, descent=None)).seen
    except TooManyRuns as reason:
        raise ConfigError(f"the mask cannot be converted: {reason}") from reason
    assert seen is not None
    q_N, k0_N, k1_N = seen.runs()
    if form == "dense":
        refuse_beyond(subject.length**2, max_bytes, "the dense mask")
        seen_TT = np.zeros((subject.length, subject.length), dtype=bool)
        for q, k0, k1 in zip(q_N.tolist(), k0_N.tolist(), k1_N.tolist(), strict=True):
            seen_TT[q, k0:k1] = True
        return {"mask": seen_TT}
    if isinstance(mask, Ranges):
        columns = [mask.slices_S5] if mask.shifts_S is None else [mask.slices_S5, mask.shifts_S[:, None]]
        return {"slices": np.concatenate(columns, axis=1), "length": np.array(subject.length)}
    slices = np.stack([q_N, q_N + 1, k0_N, k1_N, np.full_like(q_N, FULL)], axis=1)
    return {"slices": slices, "length": np.array(subject.length)}


def _descent(subject: Subject) -> dict[str, Any]:
    descent = subject.descent
    if descent is None:
        return {}
    found: dict[str, Any] = {"parents": descent.parents_T, "document_ids": descent.documents_T}
    found["times"] = descent.times_T
    if descent.intervals_T2 is not None:
        found["tin"], found["tout"] = descent.intervals_T2.T
    if descent.segments is not None:
        numbers = {row.id: number for number, row in enumerate(descent.segments)}
        found["segments"] = [
            (
                numbers[row.id],
                -1 if row.parent is None else numbers.get(row.parent, len(numbers)),
                row.start,
                row.length,
                -1 if row.fork_length is None else row.fork_length,
            )
            for row in descent.segments
        ]
    if descent.mounts:
        known = all(mount.shift is not None for mount in descent.mounts)
        found["mounts"] = [(m.at, m.k0, m.k1, *([m.shift] if known else [])) for m in descent.mounts]
    return {name: np.asarray(value) for name, value in found.items() if value is not None}


def write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Writes an `.npz` or a `.safetensors` file. Raises ConfigError for another ending."""
    if path.suffix == ".npz":
        np.savez(path, **arrays)  # type: ignore[arg-type]
    elif path.suffix == ".safetensors":
        from safetensors.numpy import save_file

        save_file(arrays, path)
    else:
        raise ConfigError(f"{path} should end with .npz or .safetensors")
