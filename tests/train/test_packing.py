"""From a group of episodes to a row with loss terms.

Catches: abandoned tokens that are trained on; a token paid with another episode's advantage; a term twice or not at
all; a sampled token that nothing predicts; a missing log-probability read as 0; a shared segment that is laid out
twice; a pack over its budget; a line of thought counted twice or with tokens that it gave up.
"""

import math
from dataclasses import replace

import pytest
from scripted import SCRIPT, encode, group

from octopus.core.errors import PlanError
from octopus.core.graph import Graph
from octopus.rollout.episode import Episode, SampledToken
from octopus.train.packing import RatedEpisode, bins, evenly, pack, pack_rated, path_tokens


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


def test_each_token_is_paid_its_own_advantage() -> None:
    first = group()[0]
    worth = tuple(float(number) for number in range(len(first.sampled)))
    packed = pack_rated([RatedEpisode(episode=first, advantages=worth)])
    expected = [number for number, token in enumerate(first.sampled) if token.live]
    assert packed.advantages_N.tolist() == expected
    with pytest.raises(ValueError, match="shorter"):
        pack_rated([RatedEpisode(episode=first, advantages=worth[:-1])])


def shared_prompt(count: int, prompt: int, own: int) -> list[Episode]:
    """Episodes that share their prompt's segment and sample `own` tokens each."""
    graph = Graph()
    root = graph.thread()
    graph.append(root, list(range(1, prompt + 1)))
    prompts = tuple(graph.segments)
    episodes = []
    for number, thread in enumerate(graph.fork(root, count)):
        graph.append(thread, [7] * own)
        segment = thread.cursor.segment
        sampled = [SampledToken(segment=segment, offset=o, log_probability=-1.0, live=True) for o in range(own)]
        episodes.append(
            Episode(name=str(number), segments=(*prompts, segment), waits=(), sampled=tuple(sampled), reward=1.0)
        )
    return episodes


def test_what_episodes_share_is_laid_out_once() -> None:
    episodes = shared_prompt(3, prompt=10, own=2)
    packed = pack_rated([evenly(episode, 1.0) for episode in episodes])
    assert packed.plan.length == 10 + 3 * 2
    assert packed.targets.predictor_rows_N.tolist() == [9, 10, 9, 12, 9, 14]
    assert path_tokens(episodes) == 3 * (10 + 2)


def test_bins_keep_order_and_budget_and_charge_what_is_shared_once() -> None:
    shared = [evenly(episode, 1.0) for episode in shared_prompt(5, prompt=10, own=2)]
    assert [len(filled) for filled in bins(shared, budget_tokens=14)] == [2, 2, 1]
    apart = [evenly(shared_prompt(1, prompt=5, own=2)[0], 1.0) for _ in range(8)]
    assert [len(filled) for filled in bins(apart, budget_tokens=8)] == [1] * 8  # eight rows of 7
    assert [len(filled) for filled in bins(apart, budget_tokens=14)] == [2] * 4
    assert [len(filled) for filled in bins(apart, budget_tokens=3)] == [1] * 8  # larger than the budget: alone
    assert [one for filled in bins(apart, budget_tokens=20) for one in filled] == apart
    assert bins([], budget_tokens=8) == []


def test_a_line_of_thought_ends_at_its_last_live_token() -> None:
    """Three branches re-read the prompt, the root everything; the rewound first try belongs to nobody."""
    for episode, rollout in zip(group(), SCRIPT.rollouts, strict=True):
        prompt, answer = len(SCRIPT.prompt), len(SCRIPT.delimiter + rollout.answer)
        notes = sum(map(len, (*SCRIPT.documents, *rollout.notes)))
        assert path_tokens([episode]) == 3 * prompt + notes + prompt + notes + answer
