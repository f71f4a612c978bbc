"""The row of tokens as bars of segments, forks as lines below it, mounts as arcs above it with their shifts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from octopus.verify.case import Case
from octopus.verify.pictures.scene import (
    FAINT,
    INK,
    PAPER,
    SEGMENTS,
    THIN,
    Box,
    Dot,
    Path,
    Shape,
    Text,
    fitted,
)
from octopus.verify.subject import Mount

WIDTH, LEFT, BAR_TOP, BAR = 420, 20, 150, 22
DROP = 80
MAX_MOUNTS = 60


def mount_panel(case: Case) -> list[Shape]:
    """Shapes in a panel whose corner is (0, 0)."""
    descent, lineage = case.subject.descent, case.lineage
    mounts = () if descent is None else descent.mounts
    bounds = [*case.names.starts.tolist(), case.subject.length]
    count = "1 mount" if len(mounts) == 1 else f"{len(mounts) or 'no'} mounts"
    count += f", {MAX_MOUNTS} of them drawn" if len(mounts) > MAX_MOUNTS else ""
    shapes: list[Shape] = [
        Text(x=0, y=14, text=f"Segments: {len(bounds) - 1:,}, {count}", size=13, bold=True),
        Text(x=0, y=30, text="arcs: mounted keys to where they become visible; below: where segments fork off", size=10,
             fill=FAINT),
    ]  # fmt: skip
    for mount in mounts[:MAX_MOUNTS]:
        shapes += _arc(case, mount)
    shapes += _apart([_shift(case, mount) for mount in mounts[:MAX_MOUNTS]])
    for index, (start, stop) in enumerate(pairwise(bounds)):
        name, colour = case.names.names[index], SEGMENTS[index % len(SEGMENTS)]
        x, width = _x(case, start), _x(case, stop) - _x(case, start)
        if width < THIN:
            continue
        title = f"{name}: rows {start} to {stop - 1}"
        shapes.append(Box(x=x, y=BAR_TOP, width=width, height=BAR, fill=colour, stroke=PAPER, title=title))
        label = name if fitted(name, width - 4, 10) == name else ""  # Half a number says nothing.
        shapes.append(Text(x=x + width / 2, y=BAR_TOP + 15, text=label, size=10, fill=PAPER, anchor="middle"))
        if lineage is not None and start < stop:
            before = int(lineage.predecessors_T[start])
            if before not in (start - 1, -1):
                shapes += _fork(case, before, start)
    return shapes


def _x(case: Case, row: float) -> float:
    return LEFT + WIDTH * row / max(1, case.subject.length)


def _reach(case: Case, mount: Mount) -> tuple[float, float, float]:
    """From where to where its arc goes, and how high."""
    source, target = _x(case, (mount.k0 + mount.k1) / 2), _x(case, mount.at + 0.5)
    return source, target, 22 + 60 * abs(target - source) / WIDTH


def _shift(case: Case, mount: Mount) -> Text:
    source, target, height = _reach(case, mount)
    text = "" if mount.shift is None else f"{mount.shift:+d}"
    return Text(x=(source + target) / 2, y=BAR_TOP - height - 4, text=text, size=10, fill=INK, anchor="middle")


def _apart(labels: Sequence[Text]) -> list[Text]:
    """Those that cover none before them."""
    kept: list[Text] = []
    for label in labels:
        room = 3.5 * len(label.text)
        if all(
            abs(label.x - other.x) > room + 3.5 * len(other.text) or abs(label.y - other.y) > label.size
            for other in kept
        ):
            kept.append(label)
    return kept


def _arc(case: Case, mount: Mount) -> list[Shape]:
    """From the middle of the mounted keys to the row at which they become visible."""
    source, target, height = _reach(case, mount)
    points = [
        (source + (target - source) * step / 16, BAR_TOP - height * math.sin(math.pi * step / 16)) for step in range(17)
    ]
    colour = SEGMENTS[int(case.names.index(mount.k0)) % len(SEGMENTS)]
    shift = "not known" if mount.shift is None else f"{mount.shift:+d}"
    title = f"rows {mount.k0} to {mount.k1 - 1} of {case.names.of(mount.k0)} seen from {case.names.say(mount.at)} on"
    ends = Dot(x=target, y=BAR_TOP, radius=3, fill=colour, title=f"{title}, shift {shift}")
    span = Path(points=((_x(case, mount.k0), BAR_TOP - 2), (_x(case, mount.k1), BAR_TOP - 2)), stroke=colour, width=3)
    return [Path(points=tuple(points), stroke=colour, width=1.2), span, ends]


def _fork(case: Case, before: int, start: int) -> list[Shape]:
    """From behind the row that a segment continues to the segment's first row."""
    source, target = _x(case, before + 1), _x(case, start)
    depth = BAR_TOP + BAR + 12 + DROP * abs(target - source) / WIDTH
    bottom = BAR_TOP + BAR
    points = ((source, bottom), (source, depth), (target, depth), (target, bottom))
    return [Path(points=points, stroke=FAINT, width=1), Dot(x=source, y=bottom, radius=2, fill=FAINT)]
