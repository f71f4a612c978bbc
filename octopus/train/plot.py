"""The curve of a run as an SVG picture: mean reward of each step, and evaluations as dots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

Points = Sequence[tuple[int, float]]
"""(step, value) pairs, values from 0 to 1."""

WIDTH, HEIGHT, MARGIN = 640, 320, 44


def reward_plot(rewards: Points, evaluations: Points, *, title: str) -> str:
    """Draws both series over the steps; the vertical axis goes from 0 to 1.

    Args:
        rewards: Mean reward of the sampled episodes.
        evaluations: Exact match, greedy, on validation questions.
        title: Stands above.
    """
    steps = [step for step, _ in (*rewards, *evaluations)]
    first, last = min(steps, default=0), max(steps, default=1)

    def place(step: int, value: float) -> str:
        x = MARGIN + (WIDTH - 2 * MARGIN) * (step - first) / max(1, last - first)
        return f"{x:.1f},{_height(value):.1f}"

    line = " ".join(place(step, value) for step, value in rewards)
    dots = [place(step, value).split(",") for step, value in evaluations]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
            'font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            f'<text x="{MARGIN}" y="20" font-size="14">{escape(title)}</text>',
            *_grid(),
            f'<text x="{MARGIN}" y="{HEIGHT - MARGIN + 18}">step {first}</text>',
            f'<text x="{WIDTH - MARGIN}" y="{HEIGHT - MARGIN + 18}" text-anchor="end">{last}</text>',
            f'<polyline points="{line}" fill="none" stroke="#1f77b4" stroke-width="1.5"/>',
            *(f'<circle cx="{x}" cy="{y}" r="3.5" fill="#d62728"/>' for x, y in dots),
            f'<text x="{WIDTH - MARGIN}" y="20" text-anchor="end">line: reward of sampled episodes; dots: exact match, '
            "validation</text>",
            "</svg>",
            "",
        ]
    )


def _grid() -> Iterable[str]:
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = f"{_height(value):.1f}"
        yield f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{y}" y2="{y}" stroke="#ddd"/>'
        yield f'<text x="{MARGIN - 6}" y="{y}" text-anchor="end" dominant-baseline="middle">{value:g}</text>'


def _height(value: float) -> float:
    return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * value
