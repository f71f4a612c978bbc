"""Cached keys against the rotation of their positions, and what positions are kept in.

Letters: T tokens, G key/value heads, D head dim, F rotary frequencies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from octopus.verify.audits.audit import Audit, Inconclusive
from octopus.verify.case import Case, known
from octopus.verify.facets import KeyCache, Rotary
from octopus.verify.findings import Finding, Severity, Witness
from octopus.verify.rules import finding

REACH = 64
"""Largest offset that is tried."""
ROWS = 256
"""Rows of a stretch that are compared; the first ones."""
EXACT_BELOW = {"bfloat16": 256, "float16": 2048}
"""Up to here a 16-bit float holds every whole number."""
UNIT = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Distance from 1 to the next number of each dtype."""
BASES = (10_000.0, 100_000.0, 500_000.0, 1_000_000.0, 5_000_000.0, 10_000_000.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Convention:
    """One way to rotate: the first `dim` of a head's dimensions, halves or neighbours paired."""

    dim: int
    theta: float
    interleaved: bool
    factor: float = 1.0

    def __str__(self) -> str:
        pairs = "neighbouring dimensions paired" if self.interleaved else "halves paired"
        scaled = "" if self.factor == 1.0 else f", positions divided by {self.factor:g}"
        return f"{self.dim} rotary dimensions, base {self.theta:g}, {pairs}{scaled}"

    def rotate(self, before_TGD: np.ndarray, positions_T: np.ndarray) -> np.ndarray:
        """The keys at their positions, in float64. Source: RoFormer, arXiv 2104.09864, equation 34."""
        half = self.dim // 2
        frequencies_F = self.theta ** (-np.arange(half) / half) / self.factor
        angles_TF = positions_T[:, None] * frequencies_F
        cos_T1F, sin_T1F = np.cos(angles_TF)[:, None], np.sin(angles_TF)[:, None]
        x = before_TGD[..., : self.dim]
        even, odd = (x[..., ::2], x[..., 1::2]) if self.interleaved else (x[..., :half], x[..., half:])
        pair = [even * cos_T1F - odd * sin_T1F, odd * cos_T1F + even * sin_T1F]
        turned = np.stack(pair, axis=-1 if self.interleaved else -2)
        out = before_TGD.copy()
        out[..., : self.dim] = turned.reshape(x.shape)
        return out


def cached_keys(case: Case) -> Iterator[Finding]:
    """OCT205 and OCT206: each stretch of cached keys."""
    keys = known(case.subject.keys)
    rotary = known(case.subject.heads).rotary
    if rotary is None:
        raise Inconclusive("how keys are rotated is not known: give the model's config.json")
    declared = declared_convention(rotary)
    ids_T = known(case.subject.positions).ids_AT[0]
    starts = [*case.names.starts.tolist(), case.subject.length]
    for name, start, stop in zip(case.names.names, starts, starts[1:], strict=False):
        rows = np.arange(start, stop)[case.real_T[start:stop]][:ROWS]
        if len(rows):
            yield from _stretch(case, keys, declared, name, rows, ids_T[rows])


def precision(case: Case) -> Iterator[Finding]:
    """OCT207: what positions and frequencies are kept in, and how far positions reach."""
    positions, heads = known(case.subject.positions), case.subject.heads
    rows = np.flatnonzero(case.real_T)
    ids_T = positions.ids_AT.max(axis=0)
    largest = int(ids_T[rows].max()) if len(rows) else 0
    limit = EXACT_BELOW.get(positions.dtype)
    if limit is not None:
        yield finding(
            "OCT207",
            f"positions are kept in {positions.dtype}, exact up to {limit}; the largest here is {largest}",
            subject=case.subject,
            witness=Witness(expected="whole numbers", actual=positions.dtype),
            severity=Severity.ERROR if largest > limit else Severity.WARNING,
        )
    if positions.inverse_frequency_dtype in EXACT_BELOW:
        dtype = positions.inverse_frequency_dtype
        witness = Witness(expected="float32", actual=dtype)
        message = f"inverse frequencies are kept in {dtype}"
        yield finding("OCT207", message, subject=case.subject, witness=witness, segments=("frequencies",))
    lowest = positions.ids_AT.min(axis=0)
    if len(rows) and lowest[rows].min() < 0:
        row = int(rows[np.argmin(lowest[rows])])
        witness = Witness(row=row, expected="0 or more", actual=str(lowest[row]))
        message = f"{case.names.say(row)} is at position {lowest[row]}"
        yield finding("OCT207", message, subject=case.subject, witness=witness, segments=("negative",))
    if heads is not None and heads.max_positions is not None and largest >= heads.max_positions:
        beyond = rows[ids_T[rows] >= heads.max_positions]
        row = int(beyond[0])
        yield finding(
            "OCT207",
            f"{case.names.say(row)} is at position {ids_T[row]}, the model was made for {heads.max_positions}",
            subject=case.subject,
            count=len(beyond),
            witness=Witness(row=row, expected=f"below {heads.max_positions}", actual=str(ids_T[row])),
            segments=("beyond",),
        )


def declared_convention(rotary: Rotary) -> Convention:
    """What a configuration says. Raises Inconclusive for scalings that are not plain."""
    scaling = rotary.scaling or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind not in ("default", "linear", "mrope"):
        raise Inconclusive(f"keys scaled by {kind} are not compared")
    factor = scaling.get("factor", 1.0)
    linear = kind == "linear" and isinstance(factor, int | float)
    return Convention(
        dim=rotary.dim,
        theta=rotary.theta,
        interleaved=bool(rotary.interleaved),
        factor=float(str(factor)) if linear else 1.0,
    )


def _stretch(
    case: Case, keys: KeyCache, declared: Convention, name: str, rows: np.ndarray, ids_N: np.ndarray
) -> Iterator[Finding]:
    before, after = keys.before_TGD[rows].astype(np.float64), keys.after_TGD[rows].astype(np.float64)
    allowed = tolerance(keys.dtype, int(ids_N.max()) + REACH)

    def fits(convention: Convention, offset: int = 0) -> bool:
        return _error(convention.rotate(before, ids_N + offset), after) <= allowed

    if fits(declared):
        return
    offsets = sorted(range(-REACH, REACH + 1), key=abs)
    offset = next((offset for offset in offsets if fits(declared, offset)), None)
    row = int(rows[0])
    if offset is not None:
        yield finding(
            "OCT205",
            f"cached keys of {name} are rotated by {offset:+d} more than their positions",
            subject=case.subject,
            count=len(rows),
            witness=Witness(row=row, expected=f"position {ids_N[0]}", actual=f"position {ids_N[0] + offset}"),
            segments=(name,),
            layer=keys.layer,
        )
        return
    other = next((one for one in _others(declared, before.shape[-1]) if fits(one)), None)
    if other is None and _error(before, after) <= allowed:
        cause, code = "the keys are not rotated at all", "OCT205"
    elif other is None:
        cause, code = f"no offset within {REACH} and no other known convention fits", "OCT205"
    else:
        cause, code = f"they fit another convention: {other}", "OCT206"
    error = _error(declared.rotate(before, ids_N), after)
    yield finding(
        code,
        f"cached keys of {name} do not fit the declared rotation ({declared})",
        subject=case.subject,
        count=len(rows),
        witness=Witness(row=row, expected=f"within {allowed:.1e}", actual=f"off by {error:.1e}"),
        cause=cause,
        segments=(name,),
        layer=keys.layer,
    )


def tolerance(dtype: str, largest_position: int) -> float:
    """How far right keys may be off, relative to the largest.

    Some rotate in what they store. With roundings of u, half a unit, the cosine, the sine and both products are off by
    u of themselves, and the sum by u more: 2 u (|x cos| + |y sin|) + u |sum|. As |x cos| + |y sin| is at most the
    length of the pair, and that at most sqrt(2) times the largest key, this is (2 sqrt(2) + 1) u. Angles are computed
    in float32: their rounding is half a unit of the angle, so it grows with the position.
    """
    unit = UNIT.get(dtype, UNIT["float32"])
    return (2 * 2**0.5 + 1) * unit / 2 + UNIT["float32"] * (largest_position + 4)


def _error(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).max() / max(np.abs(other).max(), np.finfo(np.float64).tiny))


def _others(declared: Convention, head_dim: int) -> Iterator[Convention]:
    dims = dict.fromkeys([declared.dim, head_dim, head_dim // 2, head_dim // 4])
    for interleaved in (not declared.interleaved, declared.interleaved):
        for dim in (dim for dim in dims if dim and dim % 2 == 0):
            for theta in dict.fromkeys([declared.theta, *BASES]):
                for factor in (1.0, 2.0, 4.0, 8.0):
                    yield Convention(dim=dim, theta=theta, interleaved=interleaved, factor=factor)


AUDITS = (
    Audit(name="cached keys", codes=("OCT205", "OCT206"), needs=("keys", "heads", "positions"), run=cached_keys),
    Audit(name="precision", codes=("OCT207",), needs=("positions",), run=precision),
)
