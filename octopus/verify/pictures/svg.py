"""A scene as SVG. Everything that comes from a file is escaped; rasters are embedded as PNG."""

from __future__ import annotations

import base64
import struct
import zlib
from html import escape

import numpy as np

from octopus.verify.pictures.scene import Box, Dot, Path, Raster, Scene, Shape, Text

FONT = "system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif"


def svg(scene: Scene) -> str:
    """One `<svg>` element."""
    size = f'width="{scene.width:g}" height="{scene.height:g}" viewBox="0 0 {scene.width:g} {scene.height:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{FONT}" role="img">'
    return "\n".join([head, *map(_element, scene.shapes), "</svg>"])


def _element(shape: Shape) -> str:
    match shape:
        case Box():
            place = f'x="{shape.x:.1f}" y="{shape.y:.1f}" width="{shape.width:.1f}" height="{shape.height:.1f}"'
            return _titled(f"rect {place} {_paint(shape.fill, shape.stroke)}", "rect", shape.title)
        case Path():
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)
            return f'<polyline points="{points}" {_paint(None, shape.stroke)} stroke-width="{shape.width:g}"/>'
        case Dot():
            place = f'cx="{shape.x:.1f}" cy="{shape.y:.1f}" r="{shape.radius:g}"'
            return _titled(f"circle {place} {_paint(shape.fill, shape.stroke)}", "circle", shape.title)
        case Text():
            style = f'font-size="{shape.size}" fill="{shape.fill}" text-anchor="{shape.anchor}"'
            weight = ' font-weight="600"' if shape.bold else ""
            return f'<text x="{shape.x:.1f}" y="{shape.y:.1f}" {style}{weight}>{escaped(shape.text)}</text>'
        case Raster():
            data = base64.b64encode(png_bytes(shape.rgb)).decode()
            place = f'x="{shape.x:.1f}" y="{shape.y:.1f}" width="{shape.width:.1f}" height="{shape.height:.1f}"'
            how = 'preserveAspectRatio="none" style="image-rendering:pixelated"'
            return f'<image {place} {how} href="data:image/png;base64,{data}"/>'


def _paint(fill: str | None, stroke: str | None) -> str:
    return f'fill="{fill or "none"}"' + (f' stroke="{stroke}"' if stroke else "")


def _titled(opening: str, name: str, title: str | None) -> str:
    return f"<{opening}/>" if title is None else f"<{opening}><title>{escaped(title)}</title></{name}>"


def escaped(text: str) -> str:
    """The text for XML and HTML, which know no control characters."""
    return escape("".join(c if c.isprintable() else "?" for c in text))


def png_bytes(rgb: np.ndarray) -> bytes:
    """A uint8 `[rows, columns, 3]` array as a PNG file (ISO/IEC 15948: filter 0, one IDAT chunk)."""
    rows, columns, _ = rgb.shape
    lines = np.concatenate([np.zeros((rows, 1), np.uint8), rgb.reshape(rows, -1)], axis=1)
    header = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
