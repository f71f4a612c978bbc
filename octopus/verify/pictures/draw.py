"""The whole picture, as one HTML file that needs nothing else, or as a PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as File

from octopus.verify.case import Case
from octopus.verify.findings import Finding, Severity
from octopus.verify.pairs import TooManyRuns
from octopus.verify.pictures.block_panel import block_panel
from octopus.verify.pictures.mask_panel import mask_panel
from octopus.verify.pictures.mount_panel import mount_panel
from octopus.verify.pictures.png import PictureUnavailable, write_png
from octopus.verify.pictures.position_panel import position_panel
from octopus.verify.pictures.scene import (
    FAINT,
    INK,
    LEAK,
    MISSING,
    PAPER,
    Box,
    Scene,
    Shape,
    Text,
    fitted,
    moved,
)
from octopus.verify.pictures.svg import escaped, svg
from octopus.verify.subject import Subject

WIDTH, MARGIN, COLUMN, UPPER, LOWER = 1080, 24, 560, 510, 300
LINE, MAX_LINES = 18, 20
COLOURS = {Severity.ERROR: LEAK, Severity.WARNING: MISSING, Severity.INFO: FAINT}


def draw(subject: Subject, findings: Sequence[Finding], path: File) -> None:
    """Writes the picture of one subject.

    Args:
        findings: Those of this subject; witnesses that are pairs are ringed in the mask, all are listed.
        path: Ends with `.html` or `.png`.

    Raises:
        PictureUnavailable: another ending, a PNG without Pillow, or the file cannot be written.
    """
    ending = path.suffix.lower()
    if ending not in (".html", ".png"):
        raise PictureUnavailable(f"a picture ends with .html or .png, not {ending or 'nothing'}")
    panels = scene_of(subject, findings)
    try:
        if ending == ".png":
            write_png(_with_list(panels, findings), path)
        else:
            path.write_text(_page(subject, findings, svg(panels)), encoding="utf-8")
    except OSError as error:
        raise PictureUnavailable(f"cannot write {path}: {error.strerror}") from error


def scene_of(subject: Subject, findings: Sequence[Finding]) -> Scene:
    """The four panels; those of the mask are left out where there is none or it has too many runs."""
    case = Case(subject)
    shapes: list[Shape] = [Box(x=0, y=0, width=WIDTH, height=1, fill=PAPER)]
    y = MARGIN
    try:
        # What does not have the subject's length cannot be laid over it; the list of findings says so.
        if case.seen is not None and not case.mismatches and subject.length:
            shapes += [moved(shape, MARGIN, y) for shape in mask_panel(case, case.seen, findings)]
            shapes += [moved(shape, MARGIN + COLUMN, y) for shape in block_panel(case, case.seen)]
            y += UPPER
    except TooManyRuns as reason:
        shapes.append(Text(x=MARGIN, y=y + 14, text=f"The mask is not drawn: {reason}", size=12, fill=FAINT))
        y += 2 * LINE
    if subject.length:
        shapes += [moved(shape, MARGIN, y) for shape in position_panel(case)]
        shapes += [moved(shape, MARGIN + COLUMN, y) for shape in mount_panel(case)]
        y += LOWER
    return Scene(width=WIDTH, height=y, shapes=tuple(shapes))


def _with_list(scene: Scene, findings: Sequence[Finding]) -> Scene:
    """The findings as lines below the panels."""
    y = scene.height + LINE
    shapes: list[Shape] = [Text(x=MARGIN, y=y, text=f"Findings: {len(findings)}", size=13, bold=True)]
    for finding in findings[:MAX_LINES]:
        y += LINE
        colour = COLOURS[finding.severity]
        shapes.append(Text(x=MARGIN, y=y, text=finding.code, size=12, fill=colour, bold=True))
        text = fitted(_sentence(finding), WIDTH - MARGIN - 100, 12)
        shapes.append(Text(x=MARGIN + 70, y=y, text=text, size=12, fill=INK))
    if len(findings) > MAX_LINES:
        y += LINE
        shapes.append(Text(x=MARGIN, y=y, text=f"and {len(findings) - MAX_LINES:,} more", size=12, fill=FAINT))
    return Scene(width=scene.width, height=y + MARGIN, shapes=(*scene.shapes, *shapes))


def _sentence(finding: Finding) -> str:
    return finding.message + (f" ({finding.count:,} times)" if finding.count > 1 else "")


STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; color: #1c2733; background: #fff; margin: 24px auto; max-width: 1080px; }
svg { max-width: 100%; height: auto; }
h1 { font-size: 20px; margin: 0 24px; }
p, table { margin: 8px 24px; }
table { border-collapse: collapse; }
td { padding: 4px 12px 4px 0; vertical-align: top; border-top: 1px solid #d5dbe1; }
.error { color: #d62828; font-weight: 600; } .warning { color: #b36b00; font-weight: 600; } .info { color: #6b7785; }
.note { color: #6b7785; }
"""


def _page(subject: Subject, findings: Sequence[Finding], picture: str) -> str:
    """One page without scripts; a policy in it forbids the browser to load anything."""
    title = escaped(f"{subject.name}" + (f" of {subject.source}" if subject.source else ""))
    rows = [
        f'<tr><td class="{finding.severity.word}">{escaped(finding.code)}</td><td>{escaped(_sentence(finding))}'
        + (f'<br><span class="note">{escaped(finding.cause)}</span>' if finding.cause else "")
        + "</td></tr>"
        for finding in findings
    ]
    listed = f"<table>{''.join(rows)}</table>" if rows else "<p>No findings.</p>"
    notes = "".join(f'<p class="note">{escaped(note)}</p>' for note in subject.notes)
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{title}</title><style>{STYLE}</style></head>\n"
        f"<body><h1>{title}</h1>\n{picture}\n<p><b>Findings: {len(findings)}</b></p>\n{listed}\n{notes}</body></html>\n"
    )
