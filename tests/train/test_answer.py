"""Where an episode answered, and which answer is held to be right.

Catches: the wrong turn taken for the answer; a count of draws that is off, so that other noise is drawn; a turn that
reaches back into another segment; a reference in other tokens than the policy would sample.
"""

import pytest
import tiny_policy
from credit_cases import Scored, siblings
from toy_tasks import environment, right

from octopus.core.cursor import Cursor
from octopus.core.graph import Graph
from octopus.rollout.episode import Episode, SampledToken
from octopus.train.credit.answer import answer_place, reference_answer
from octopus.train.credit.world import Played


@pytest.mark.parametrize("mode", ["octopus", "text", "single"])
@pytest.mark.parametrize("parts", [1, 2])
def test_a_script_answers_with_the_reference(mode: str, parts: int) -> None:
    """The script takes names from what searches showed, in the very tokens that the environment calls right."""
    asked = environment(parts=parts)
    record = right(asked, mode)
    place = answer_place(record.episode)
    assert list(place.tokens) == asked.reference(tiny_policy.codec())
    branches = {branch.thread for branch in record.episode.branches}
    own = [token for token in record.episode.sampled if token.thread not in branches]
    assert place.draws == len(own) - len(place.tokens) > 0
    reference = reference_answer(Played(environment=asked, record=record), tiny_policy.codec(), place)
    assert reference.tokens == place.tokens and reference.weight == 1.0


def test_what_was_rewound_counts_as_drawn_but_is_not_the_answer() -> None:
    graph = Graph()
    root = graph.thread()
    graph.append(root, [1])
    for token in (2, 3):
        graph.append(root, [token])
    (old, _), stop = root.cursor, root.own_tokens
    graph.rewind(root, stop - 1)
    graph.append(root, [4])
    new = root.cursor.segment
    places = [(old, 1, True), (old, 2, False), (new, 0, True)]
    episode = Episode(
        name="rewound",
        segments=tuple(graph.segments),
        waits=(),
        sampled=tuple(
            SampledToken(segment=segment, offset=offset, log_probability=-1.0, live=live)
            for segment, offset, live in places
        ),
        reward=0.0,
    )
    place = answer_place(episode)
    assert (place.cursor, place.tokens, place.draws) == (Cursor(new, 0), (4,), 2)


def test_without_a_right_answer_the_own_one_counts_by_its_reward() -> None:
    played = siblings(reward=0.25)
    place = answer_place(played.record.episode)
    own = reference_answer(played, tiny_policy.codec(), place)
    assert (own.tokens, own.weight) == ((12, 13), 0.25)
    known = Played(environment=Scored(reference=[7]), record=played.record)
    assert reference_answer(known, tiny_policy.codec(), place).tokens == (7,)
