"""From a group of episodes to a row with loss terms.

Catches: abandoned tokens that are trained on; a token paid with another episode's advantage; a term twice or not at
all; a sampled token that nothing predicts; a missing log-probability read as 0.
"""

import math
from dataclasses import replace

import pytest
from scripted import SCRIPT, encode, group

from octopus.core.errors import PlanError
from octopus.core.graph import Graph
from octopus.rollout.episode import Episode, SampledToken
from octopus.train.packing import pack


def test_every_live_token_has_one_term_with_its_episodes_advantage() -> None:
    packed = pack([group()])
    texts = [encode("".join(rollout.notes) + rollout.answer) for rollout in SCRIPT.rollouts]
    assert packed.targets.labels_N.tolist() == [token for text in texts for token in text]
    assert len(set(packed.targets.token_rows_N.tolist())) == packed.loss_terms
    expected = [
        advantage
        for text, advantage in zip(texts, (1 - 1 / 3, -1 / 3, -1 / 3), strict=True)
        for _ in text
    ]
    assert packed.advantages_N.tolist() == pytest.approx(expected)


def test_each_segment_enters_once_and_predictors_stand_before_on_the_path() -> None:
    episodes = group()
    packed = pack([episodes])
    assert packed.plan.length == sum(len(segment.tokens) for episode in episodes for segment in episode.segments)
    before = packed.plan.predecessors_T[packed.targets.token_rows_N]
    assert packed.targets.predictor_rows_N.tolist() == before.tolist()


def test_groups_are_compared_within_themselves_only() -> None:
    winners = [replace(episode, reward=1.0) for episode in group()]
    assert not pack([winners, [replace(episode, reward=0.0) for episode in group()]]).advantages_N.any()


def test_recorded_log_probabilities_are_kept_and_missing_ones_stay_missing() -> None:
    first, *rest = group()
    recorded = tuple(
        replace(token, log_probability=-0.5 if token.live else math.inf) for token in first.sampled
    )
    packed = pack([[replace(first, sampled=recorded), *rest]])
    own = sum(token.live for token in first.sampled)
    assert packed.sampled_log_probabilities_N[:own].tolist() == [-0.5] * own
    assert all(map(math.isnan, packed.sampled_log_probabilities_N[own:]))


def test_a_sampled_token_without_predictor_is_refused() -> None:
    graph = Graph()
    graph.append(root := graph.thread(), [5])
    token = SampledToken(segment=root.cursor.segment, offset=0, log_probability=None, live=True)
    episode = Episode(name="bare", segments=tuple(graph.segments), waits=(), sampled=(token,), reward=1.0)
    with pytest.raises(PlanError, match=r"^episode bare: the first token of Segment\(0, 1 tokens\) was sampled"):
        pack([[episode]])
