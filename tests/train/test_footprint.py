"""Sizes of rollouts, counted by hand for scripted ones.

Catches: a shared prompt that is counted for each rollout; a mount that is counted again by those who inherit it; pages
rounded over all tokens instead of by segment or thread; text mode that claims reads.
"""

import tiny_policy
from toy_tasks import environment, right

from octopus.train.footprint import footprint, primitives


def pages(tokens: int) -> int:
    return (tokens + 15) // 16


def test_the_primitives_of_a_two_part_question() -> None:
    asked = environment(parts=2)
    assert primitives([right(asked)]) == {"fork": 1, "read_thread": 2, "wait_threads": 1, "rewind": 0, "commit": 2}
    assert primitives([right(asked, "text")])["read_thread"] == 0
    assert set(primitives([right(asked, "single"), right(asked, "single")]).values()) == {0}
    assert primitives([]) == {"fork": 0, "read_thread": 0, "wait_threads": 0, "rewind": 0, "commit": 0}


def test_sizes_of_a_two_part_question() -> None:
    """The children's own lines start from the root's prompt and fork; the root reads two names."""
    asked = environment(parts=2)
    record = right(asked)
    segments = record.episode.segments
    written = {s.writer: sum(len(o.tokens) for o in segments if o.writer == s.writer) for s in segments}
    root, *others = written.values()  # the root's segment is the first
    before_fork = len(asked.prompt(tiny_policy.codec())) + 3  # <|fork|> 2 <|end|>
    names = sum(part.stop - part.start for s in segments for mount in s.mounts for part in mount.parts)
    ends = [root + names, *(before_fork + own for own in others)]
    size = footprint([record.episode], page_size=16)
    assert size.unique_tokens == root + sum(others)
    assert size.path_tokens == sum(ends)
    assert size.pages_held == sum(pages(len(s.tokens)) for s in segments)
    assert size.pages_copied == sum(map(pages, ends))


def test_an_episode_counted_twice_shares_everything_but_its_paths() -> None:
    episode = right(environment(parts=2)).episode
    one, two = footprint([episode], page_size=16), footprint([episode, episode], page_size=16)
    assert (two.unique_tokens, two.pages_held) == (one.unique_tokens, one.pages_held)
    assert (two.path_tokens, two.pages_copied) == (2 * one.path_tokens, 2 * one.pages_copied)
