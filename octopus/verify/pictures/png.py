"""A scene as a PNG file, through Pillow (the extra `pictures`)."""

from __future__ import annotations

from pathlib import Path as File
from typing import Any

from octopus.core.errors import ConfigError
from octopus.verify.pictures.scene import PAPER, Box, Dot, Path, Raster, Scene, Shape, Text

SCALE = 2


class PictureUnavailable(ConfigError):
    """A picture of this kind cannot be drawn here. The message says what to install or to choose."""


def write_png(scene: Scene, file: File) -> None:
    """Draws at twice the size, for screens of high density. Raises `PictureUnavailable` without Pillow."""
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise PictureUnavailable("a PNG needs Pillow: pip install 'octopus-kv[pictures]', or choose .html") from error
    image = Image.new("RGB", (round(scene.width * SCALE), round(scene.height * SCALE)), PAPER)
    canvas = ImageDraw.Draw(image)
    for shape in scene.shapes:
        _draw(image, canvas, shape)
    image.save(file, format="PNG", optimize=True)


def _draw(image: Any, canvas: Any, shape: Shape) -> None:
    match shape:
        case Box():
            corners = _scaled(shape.x, shape.y, shape.x + shape.width, shape.y + shape.height)
            if corners[2] > corners[0] and corners[3] > corners[1]:
                canvas.rectangle(corners, fill=shape.fill, outline=shape.stroke, width=1)
        case Path():
            flat = _scaled(*(value for point in shape.points for value in point))
            canvas.line(flat, fill=shape.stroke, width=max(1, round(shape.width * SCALE)), joint="curve")
        case Dot():
            r = shape.radius
            corners = _scaled(shape.x - r, shape.y - r, shape.x + r, shape.y + r)
            canvas.ellipse(corners, fill=shape.fill, outline=shape.stroke, width=SCALE)
        case Text():
            anchor = {"start": "ls", "middle": "ms", "end": "rs"}[shape.anchor]
            bold = 0.4 * SCALE if shape.bold else 0
            canvas.text(
                _scaled(shape.x, shape.y), shape.text, fill=shape.fill, anchor=anchor, font=_font(shape.size),
                stroke_width=bold,
            )  # fmt: skip
        case Raster():
            from PIL import Image

            size = max(1, round(shape.width * SCALE)), max(1, round(shape.height * SCALE))
            cells = Image.fromarray(shape.rgb).resize(size, Image.Resampling.NEAREST)
            image.paste(cells, tuple(round(value) for value in _scaled(shape.x, shape.y)))


def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size * SCALE)


def _scaled(*values: float) -> tuple[float, ...]:
    return tuple(value * SCALE for value in values)
