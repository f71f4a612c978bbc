"""The question environment: what is shown, and what an answer earns.

Catches: credit for names in the wrong place, for naming everything, or for a part whose evidence is lost; a search that
shows documents it does not name as shown; a description that gives the name away by its tokens.
"""

import pytest
from toy_job import QUESTION, codec, question

from octopus.rollout.tools import ToolOutput


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        ("snow.fall, Oven_2, sea", 1.0),
        ("snow.fall, Oven_2, hill", 0.5 * 2 / 3),
        ("Oven_2, snow.fall, sea", 0.5 / 3),
        ("snow.fall,Oven_2, sea", 0.0),
        ("snow.fall", 0.5 / 3),
        ("snow.fall, Oven_2, sea, sea", 0.5 * 3 / 4),
        ("snow.fall, Oven_2, sea, ", 0.5 * 3 / 4),
        ("", 0.0),
    ],
)
def test_what_an_answer_earns(answer: str, reward: float) -> None:
    assert question().score(answer) == pytest.approx(reward)


def test_what_an_answer_would_earn_without_some_of_its_parts() -> None:
    lost = {(): 1.0, (1,): 0.5 * 2 / 3, (0, 2): 0.5 / 3, (0, 1, 2): 0.0}
    assert {parts: question().score(QUESTION.answer, lost=parts) for parts in lost} == pytest.approx(lost)
    assert question().score("snow.fall, x, y", lost=(1,)) == pytest.approx(0.5 / 3)


def test_what_a_search_shows() -> None:
    shown = question(results=2, words=3).search("quiet cold sea")
    assert shown == ToolOutput(text="sea : blue sky over\nsnow.fall : white snow falls", documents=("c", "a"))
    assert question().search("nothing of it") == ToolOutput(text="")


def test_the_prompt_numbers_the_parts() -> None:
    assert codec().decode(question().prompt(codec())) == (
        "<|question|><|part|>1 snow white<|part|>2 fire oven<|part|>3 quiet sky<|end|>"
    )


def test_a_lost_search_shows_nothing_and_hangs_on_the_turn() -> None:
    """Catches: a loss that asking again cannot mend, or that rollouts of a task do not share; a wrong share."""
    always, never, sometimes = (question(lost=share) for share in (1.0, 0.0, 0.3))
    found = ToolOutput(text="sea : blue sky over the quiet sea", documents=("c",))
    assert always.tools(0)["search"].call_now("quiet sky").text == ""
    assert always.tools(0)["search"].call_now("quiet sky").documents == ()
    assert never.tools(0)["search"].call_now("quiet sky").text == found.text

    def luck(words: str) -> list[bool]:
        return [sometimes.tools(turn)["search"].call_now(words).text == "" for turn in range(300)]

    assert luck("quiet sky") == luck("quiet sky") != luck("quiet sea")
    assert sum(luck("quiet sky")) / 300 == pytest.approx(0.3, abs=0.08)
