"""What a person sees of a run: lines with the time that is left, and a curve.

Catches: a pace that counts another stage's steps; a step left out of what is left; values drawn upside down or beyond
the frame; a title that breaks the picture.
"""

import xml.etree.ElementTree as ElementTree

from octopus.train.plot import HEIGHT, MARGIN, WIDTH, reward_plot
from octopus.train.progress import Progress, duration

FIGURES = {"loss": 0.5, "grad_norm": 2.0, "loss_terms": 1234, "updated": True}


def test_the_time_left_is_that_of_the_stage_at_its_own_pace() -> None:
    times, lines = iter([0.0, 10.0, 10.0, 30.0, 30.0, 31.0, 31.0, 35.0]), list[str]()
    progress = Progress(lines.append, clock_s=lambda: next(times))
    for stage, number, of in (("imitation", 1, 2), ("imitation", 2, 2), ("grpo", 9, 12), ("grpo", 10, 12)):
        progress.begin(stage, number, of)
        progress.end(FIGURES | ({"reward": 0.25, "exact_match": 0.125} if stage == "grpo" else {}))
    terms = "loss +0.5000   grad norm 2   1,234 terms"
    assert lines == [
        f"imitation 1/2   {terms}   10.0 s, 10 s left",
        f"imitation 2/2   {terms}   20.0 s, 0 s left",
        f"grpo  9/12   reward 0.250   exact 0.125   {terms}   1.0 s, 3 s left",
        f"grpo 10/12   reward 0.250   exact 0.125   {terms}   4.0 s, 5 s left",
    ]


def test_durations_for_people() -> None:
    assert [duration(s) for s in (0.4, 59.4, 59.6, 185, 3599.6, 7805)] == [
        "0 s", "59 s", "1 min 00 s", "3 min 05 s", "1 h 00 min", "2 h 10 min",
    ]  # fmt: skip


def test_a_step_that_was_not_taken_is_told() -> None:
    lines: list[str] = []
    progress = Progress(lines.append)
    progress.begin("grpo", 1, 1)
    progress.end(FIGURES | {"updated": False})
    assert "NOT FINITE, weights left as they were" in lines[0]


def test_the_curve_is_within_its_frame_and_upright() -> None:
    picture = ElementTree.fromstring(reward_plot([(5, 0.0), (7, 1.0)], [(5, 0.5)], title="a < b & c"))
    (line,) = (element for element in picture if element.tag.endswith("polyline"))
    assert line.get("points") == f"{MARGIN}.0,{HEIGHT - MARGIN}.0 {WIDTH - MARGIN}.0,{MARGIN}.0"
    (dot,) = (element for element in picture if element.tag.endswith("circle"))
    assert float(dot.get("cy")) == HEIGHT / 2
    assert "a < b & c" in [element.text for element in picture]
    ElementTree.fromstring(reward_plot([], [], title="nothing yet"))
