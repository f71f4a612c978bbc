"""Records that were sent to another rank are the same records.

Catches: a mount without its shift or its order; waits, places of branches or log-probabilities that are lost; a shared
prompt that is packed twice.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
from toy_tasks import environment, right

from octopus.rollout.records import as_json
from octopus.train.credit.coverage import Coverage
from octopus.train.credit.left_out import left_out_terms
from octopus.train.credit.world import Played
from octopus.train.footprint import footprint, primitives
from octopus.train.job_config import CreditConfig
from octopus.train.packing import Pack, evenly, pack_rated
from octopus.train.parallel.wire import Group, from_wire, to_wire
from octopus.train.rating import Rating, rate

ENVIRONMENT = environment(2)


def played() -> Group:
    """Two rollouts of one question, with threads that wait and read; the second earned nothing."""
    first, other = right(ENVIRONMENT), right(ENVIRONMENT)
    return first, replace(other, episode=replace(other.episode, reward=0.0))


def sent(group: Group) -> Group:
    return from_wire(json.loads(json.dumps(to_wire(group))))


def packed(group: Group) -> Pack:
    return pack_rated([evenly(record.episode, 1.0) for record in group])


def rated(group: list[Played]) -> Rating:
    return rate(group, left_out_terms(Coverage("closure"), group), credit=CreditConfig())


def test_what_is_computed_from_records_is_the_same() -> None:
    group = played()
    there = sent(group)
    assert [as_json(record) for record in there] == [as_json(record) for record in group]
    assert primitives(there) == primitives(group)
    episodes = [[record.episode for record in records] for records in (there, group)]
    assert footprint(episodes[0], page_size=16) == footprint(episodes[1], page_size=16)
    ours, whole = packed(there), packed(group)
    assert ours.plan.slices == whole.plan.slices
    assert ours.plan.wait_edges == whole.plan.wait_edges and ours.plan.wait_edges
    for name in ("tokens_T", "positions_T", "subtree_ends_T", "predecessors_T"):
        assert (getattr(ours.plan, name) == getattr(whole.plan, name)).all()
    np.testing.assert_array_equal(ours.sampled_log_probabilities_N, whole.sampled_log_probabilities_N)
    ratings = [rated([Played(environment=ENVIRONMENT, record=record) for record in one]) for one in (there, group)]
    assert ratings[0].terms == ratings[1].terms and any(ratings[0].terms)
    assert [one.advantages for one in ratings[0].episodes] == [one.advantages for one in ratings[1].episodes]


def test_what_episodes_share_stays_shared() -> None:
    first, _ = played()
    there = sent((first, first))
    assert there[0].episode.segments == there[1].episode.segments
    assert packed(there).plan.length == packed((first,)).plan.length
