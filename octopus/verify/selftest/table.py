"""The matrix as text and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from octopus.verify.selftest.cell import Cell
from octopus.verify.selftest.fault import ALL
from octopus.verify.selftest.matrix import Matrix

SHORT = {"float64": "fp64", "float32": "fp32", "bfloat16": "bf16", "exact": "exact"}
LEGEND = (
    "Each cell: the code it was called by, and by how many times the clean noise of the dtype the fault moves output "
    "or gradient. In brackets: not visible (10 times or less). A dot: it cannot be planted there."
)


def table(matrix: Matrix, *, markdown: bool = False) -> Iterator[str]:
    """Lines: a heading, one line a fault, and the sums."""
    columns = list(dict.fromkeys((c.stack, c.dtype) for c in sorted(matrix.cells, key=_column)))
    heads = ["fault", *(f"{stack} {SHORT[dtype]}" for stack, dtype in columns)]
    cells = {(c.fault, c.stack, c.dtype): c for c in matrix.cells}
    rows = [
        [f.name, *(_said(cells.get((f.name, stack, dtype))) for stack, dtype in columns)]
        for f in matrix.faults
    ]
    yield from _markdown(heads, rows) if markdown else _text(heads, rows)
    yield ""
    yield LEGEND
    yield from sums(matrix)


MARKS = (
    "`V` caught, and visible: it moves output or gradient by more than 10 times the clean noise of the dtype; "
    "`f` caught, though not visible; `-` missed; `.` cannot be planted there"
)


def compact(matrix: Matrix) -> Iterator[str]:
    """Markdown: a line a fault with one mark for each stack and dtype; the faults of dumps in one line; the sums."""
    cells = {(c.fault, c.stack, c.dtype): c for c in matrix.cells}
    stacks = [stack for stack in ALL if any(c.stack == stack for c in matrix.cells)]
    dtypes = list(dict.fromkeys(c.dtype for c in matrix.cells if c.dtype != "exact"))
    named = {fault.name: _codes(matrix, fault.name) for fault in matrix.faults}
    in_dumps = [f"{fault.name} {named[fault.name]}" for fault in matrix.faults if fault.dump]
    rows = [
        [
            fault.name,
            named[fault.name],
            *(f"`{''.join(_mark(cells.get((fault.name, stack, dtype))) for dtype in dtypes)}`" for stack in stacks),
        ]
        for fault in matrix.faults
        if not fault.dump
    ]
    yield f"{MARKS}. Each time in {', '.join(SHORT[dtype] for dtype in dtypes)}."
    yield ""
    yield from _markdown(["fault", "called", *stacks], rows)
    yield ""
    if in_dumps:
        yield f"In dumps, where no model runs: {', '.join(in_dumps)}."
        yield ""
    yield from (f"- {line}" for line in sums(matrix))


def _codes(matrix: Matrix, fault: str) -> str:
    """What a fault was called, by whichever stack."""
    return ", ".join(sorted({c.code for c in matrix.cells if c.fault == fault and c.code}))


def _mark(cell: Cell | None) -> str:
    if cell is None:
        return "."
    return "-" if cell.code is None else "V" if cell.visible else "f"


def sums(matrix: Matrix) -> Iterator[str]:
    """What was caught and what was visible, in each dtype."""
    for dtype in dict.fromkeys(c.dtype for c in matrix.cells if c.dtype != "exact"):
        own = [c for c in matrix.cells if c.dtype in (dtype, "exact")]
        faults = {c.fault for c in own}
        visible = sum(c.visible for c in own)
        caught = sum(c.code is not None for c in own)
        missed = matrix.missed(dtype)
        yield (
            f"{dtype}: {len(faults) - len(missed)} of {len(faults)} faults caught wherever they can be planted; "
            f"{caught} of {len(own)} cells caught, {visible} visible"
            + (f"; missed: {', '.join(missed)}" if missed else "")
        )
    yield f"without a fault: {len(matrix.false_alarms)} findings"


def _column(cell: Cell) -> tuple[int, str]:
    return (cell.dtype == "exact", "")


def _said(cell: Cell | None) -> str:
    if cell is None:
        return "."
    name = cell.code or "MISSED"
    if cell.times_noise is None:
        return name
    said = f"{name} {cell.times_noise:.0e}"
    return said if cell.visible else f"({said})"


def _text(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(line[i]) for line in (heads, *rows)) for i in range(len(heads))]
    for line in (heads, *rows):
        yield "  ".join(entry.ljust(width) for entry, width in zip(line, widths, strict=True)).rstrip()


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for line in (heads, ["---"] * len(heads), *rows):
        yield f"| {' | '.join(line)} |"
