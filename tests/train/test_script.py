"""A scripted episode goes through the whole life of a graph.

Catches: an abandoned first try that stays live; a token recorded at the wrong place; branches that were not read or not
waited for; a delimiter that counts as sampled; a reward for the wrong answer.
"""

from scripted import SCRIPT, encode, group

from octopus.core.cursor import Cursor
from octopus.core.visibility import view


def test_live_tokens_are_the_notes_and_the_answer() -> None:
    for episode, rollout in zip(group(), SCRIPT.rollouts, strict=True):
        live = [token.segment.tokens[token.offset] for token in episode.sampled if token.live]
        assert live == encode("".join(rollout.notes) + rollout.answer)


def test_the_first_try_is_recorded_but_not_live() -> None:
    for episode, rollout in zip(group(), SCRIPT.rollouts, strict=True):
        abandoned = [token for token in episode.sampled if not token.live]
        assert [token.segment.tokens[token.offset] for token in abandoned] == encode(rollout.first_try)


def test_the_answer_sees_every_note_and_no_first_try() -> None:
    for episode, rollout in zip(group(), SCRIPT.rollouts, strict=True):
        last = episode.segments[-1]
        seen = [
            part.segment.tokens[part.start : part.stop]
            for part in view(Cursor(last, len(last.tokens)))
        ]
        text = [token for tokens in seen for token in tokens]
        branches = [
            document + note for document, note in zip(SCRIPT.documents, rollout.notes, strict=True)
        ]
        expected = encode(SCRIPT.prompt + SCRIPT.delimiter + rollout.answer + "".join(branches))
        assert text == expected


def test_the_root_waited_for_every_branch() -> None:
    for episode in group():
        assert len({edge.awaited.segment for edge in episode.waits}) == len(SCRIPT.documents)


def test_only_the_right_answer_is_rewarded() -> None:
    assert [episode.reward for episode in group()] == [1.0, 0.0, 0.0]
