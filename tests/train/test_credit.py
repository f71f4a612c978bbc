"""Leave-one-branch-out terms against brute force over all subsets of branches.

Catches: a document found by two branches that pays either of them; a branch that is paid for what another one found; a
branch that used another's find and survives its hiding; a hidden set that hides everybody and is paid nonetheless; a
part that nobody found and that is lost anyway; terms that are not centred, or divided by a deviation; the empty group.
"""

import itertools
import random
from collections.abc import Callable, Sequence

import pytest
from credit_cases import played_with

from octopus.core.errors import OctopusError
from octopus.core.graph import Graph
from octopus.train.advantages import group_advantages
from octopus.train.credit.centring import centred, clipped
from octopus.train.credit.coverage import Evidence
from octopus.train.credit.influence import families, influences
from octopus.train.credit.left_out import left_out_terms
from octopus.train.credit.ranks import rank_correlation
from octopus.train.credit.shapley import shapley_values
from octopus.train.credit.world import Valued, World

Terms = tuple[float | None, ...]


class Game:
    """An evaluation by a function of the branches that are left."""

    trust = 1.0

    def __init__(
        self, branches: int, value: Callable[[frozenset[int]], float], hides: Sequence[frozenset[int]] | None = None
    ) -> None:
        self.played = played_with(branches)
        self._value = value
        self._hides = hides or [frozenset({branch}) for branch in range(branches)]

    def values(self, worlds: Sequence[World]) -> list[Valued]:
        everybody = frozenset(range(len(self._hides)))
        gone = [frozenset().union(*(self._hides[branch] for branch in world.hidden)) for world in worlds]
        return [
            Valued(value=self._value(everybody - hidden), hidden_tokens=0, empty=hidden == everybody)
            for hidden in gone
        ]


def of_game(game: Game) -> Terms:
    (terms,) = left_out_terms(game, [game.played])
    return tuple(term.value for term in terms)


def of_evidence(case: Evidence) -> Terms:
    return of_game(evaluated(case))


def evaluated(case: Evidence) -> Game:
    everybody = frozenset(range(len(case.found)))
    return Game(len(everybody), lambda left: case.reward(everybody - left), case.hides)


def evidence(
    gold: str,
    found: list[str],
    *,
    parts_right: float | None = None,
    hides: list[set[int]] | None = None,
    kept: str = "",
) -> Evidence:
    """Documents are letters. The reward is 1 for all parts, or `parts_right` a part."""

    def value(lost: frozenset[int]) -> float:
        if parts_right is None:
            return float(not lost)
        return parts_right * (len(gold) - len(lost))

    own = [{branch} for branch in range(len(found))]
    return Evidence(
        gold=tuple(gold),
        found=tuple(map(frozenset, found)),
        kept=frozenset(kept),
        hides=tuple(map(frozenset, hides or own)),
        value=value,
    )


TOYS = {
    "redundant": (lambda left: float(bool(left & {0, 1})), (0, 0, 0), (0.5, 0.5, 0)),
    "synergy": (lambda left: float(left >= {0, 1}), (1, 1, 0), (0.5, 0.5, 0)),
    "distractor": (lambda left: float(0 in left) - 0.4 * (2 in left), (1, 0, -0.4), (1, 0, -0.4)),
}


@pytest.mark.parametrize("name", TOYS)
def test_toy_games_of_three_branches(name: str) -> None:
    """Catches a term that is taken for a share: redundant finders get nothing, needed pairs the whole twice."""
    value, left_out, shapley = TOYS[name]
    game = Game(3, value)
    assert of_game(game) == pytest.approx(left_out)
    assert shapley_values(game, game.played) == pytest.approx(shapley)


def test_the_leave_one_out_baseline_is_the_centred_reward_scaled() -> None:
    """RLOO of three ones in eight: +0.7143 and -0.4286, which is k / (k - 1) times what is paid here."""
    rewards = [1.0] * 3 + [0.0] * 5
    rloo = [reward - (sum(rewards) - reward) / 7 for reward in rewards]
    assert rloo == pytest.approx([0.7143] * 3 + [-0.4286] * 5, abs=5e-5)
    assert [8 / 7 * paid for paid in group_advantages(rewards)] == pytest.approx(rloo)


def test_shapley_is_exact_and_so_takes_few_branches() -> None:
    assert len(shapley_values(Game(4, lambda left: len(left)), played_with(4))) == 4
    with pytest.raises(OctopusError, match="at most 4 branches, this episode has 5"):
        shapley_values(Game(5, lambda left: len(left)), played_with(5))


def test_a_branch_that_found_nothing_gets_less_than_one_that_did() -> None:
    assert of_evidence(evidence("ab", ["a", "b", "x"])) == (1.0, 1.0, 0.0)
    assert of_evidence(evidence("ab", ["a", "b", ""], parts_right=0.5)) == (0.5, 0.5, 0.0)


def test_a_document_found_by_two_gives_neither_a_marginal() -> None:
    case = evidence("ab", ["a", "ab", "x"], parts_right=0.5)
    assert of_evidence(case) == (0.0, 0.5, 0.0)
    assert shapley_values(evaluated(case), played_with(3)) == pytest.approx([0.25, 0.75, 0.0])


def test_a_part_that_nobody_found_is_not_lost() -> None:
    """The answer may have guessed it; hiding a branch takes no guess away."""
    assert evidence("abc", ["a", "b"], parts_right=1.0).reward([0, 1]) == 1.0
    assert of_evidence(evidence("zz", ["a", "b"])) == (0.0, 0.0)


def test_what_the_orchestrator_found_itself_is_not_lost() -> None:
    assert of_evidence(evidence("ab", ["a", "b"], parts_right=0.5, kept="a")) == (0.0, 0.5)


def test_an_only_branch_has_no_term() -> None:
    assert of_evidence(evidence("a", ["a"])) == (None,)
    assert of_evidence(evidence("a", [])) == ()


def test_hiding_hides_whoever_was_influenced() -> None:
    chain = [{0, 1}, {1}, {2}]
    assert of_evidence(evidence("ab", ["", "a", "b"], parts_right=0.5, hides=chain)) == (0.5, 0.5, 0.5)
    everybody = [{0, 1, 2}, {1}, {2}]
    assert of_evidence(evidence("ab", ["", "a", "b"], hides=everybody)) == (None, 1.0, 1.0)


@pytest.mark.parametrize("seed", range(40))
def test_shapley_sums_to_what_the_branches_brought_and_bounds_the_terms(seed: int) -> None:
    """Reward per part is a covering game: marginals shrink as others join, so the term is the least of them."""
    rng = random.Random(seed)
    gold = "abcd"[: rng.randint(1, 4)]
    found = ["".join(rng.sample("abcdx", rng.randint(0, 3))) for _ in range(rng.randint(2, 4))]
    case = evidence(gold, found, parts_right=1 / len(gold))
    game = evaluated(case)
    values, terms = shapley_values(game, game.played), of_evidence(case)
    brought = case.reward([]) - case.reward(range(len(found)))
    assert sum(values) == pytest.approx(brought)
    assert brought == pytest.approx(len(set(gold) & set("".join(found))) / len(gold))
    for term, value in zip(terms, values, strict=True):
        assert term is not None and -1e-12 <= term <= value + 1e-12
    if not any(set(one) & set(other) & set(gold) for one, other in itertools.combinations(found, 2)):
        assert terms == pytest.approx(values)  # branches that share nothing: both agree


def test_terms_are_centred_over_the_branches_at_the_same_place_and_never_divided() -> None:
    """Catches a mean over all branches, under which whoever has the easy part is paid for it."""
    first, second = (0, 0), (0, 1)
    assert centred([[(first, 1.0), (second, 0.5)], [(first, 0.5), (second, 0.5)]]) == [[0.25, 0.0], [-0.25, 0.0]]
    assert centred([[(first, 1.0), (second, None)], [(first, 0.0), (second, 0.5)]]) == [[0.5, 0.0], [-0.5, 0.0]]
    assert centred([[(first, None)], []]) == [[0.0], []]
    assert centred([[(first, 0.3), (second, 0.9)]]) == [[0.0, 0.0]]
    assert centred([[("scout", 0.2), ("scout", 0.4)], [("judge", 1.0)]]) == [
        pytest.approx([-0.1, 0.1]),
        [0.0],
    ]


@pytest.mark.parametrize("term", [0.1, 0.7, 1 / 3])
def test_equal_terms_are_paid_exactly_nothing(term: float) -> None:
    """Row 2 of public bugs. Catches: rounding of a mean, 1e-17, for which an episode of a silent group is packed."""
    assert centred([[("branch", term)]] * 3) == [[0.0]] * 3
    assert centred([[("branch", 0.1 + 0.2)], [("branch", 0.3)]]) == [[0.0], [0.0]]


def test_one_term_in_twenty_stays_bounded() -> None:
    """Rewards, and so terms, are mostly 0 with rare spikes: a left-out deviation of 0 would blow them up to 1e6."""
    terms = [[("branch", float(episode == 7))] for episode in range(20)]
    paid = [values[0] for values in centred(terms)]
    assert paid == pytest.approx([-0.05] * 7 + [0.95] + [-0.05] * 12)
    assert sum(paid) == pytest.approx(0)


def test_terms_are_clipped_one_by_one_before_they_are_compared() -> None:
    """Catches a cap on a total, under which all terms of a group come out equal, and a lost sign."""
    assert [clipped(term, 0.5) for term in (3.0, -3.0, 0.2, None)] == [0.5, -0.5, 0.2, None]


def test_order_of_episodes_and_branches_only_permutes() -> None:
    rng = random.Random(0)
    group = [[(kind, rng.choice([None, 0.0, 1.0, rng.random()])) for kind in range(4)] for _ in range(6)]
    paid = centred(group)
    episodes, branches = rng.sample(range(6), 6), rng.sample(range(4), 4)
    moved = centred([[group[e][b] for b in branches] for e in episodes])
    assert moved == [[pytest.approx(paid[e][b]) for b in branches] for e in episodes]


def test_rank_correlation() -> None:
    """Catches ties ranked by their order, and a correlation of values."""
    assert rank_correlation([1, 2, 3], [10, 200, 3_000]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 2, 3, 4, 5], [5, 6, 7, 8, 7]) == pytest.approx(0.820783, abs=1e-6)
    assert rank_correlation([0, 0, 1, 1], [0, 1, 0, 1]) == pytest.approx(0)
    assert rank_correlation([1, 1, 1], [1, 2, 3]) is None
    assert rank_correlation([1], [1]) is None and rank_correlation([], []) is None


def test_families() -> None:
    assert families([(0, 0), (0, 1), (0, 0, 3), (0, 0, 3, 1)]) == ({0, 2, 3}, {1}, {2, 3}, {3})


def test_influence_follows_forks_and_reads_over_any_number_of_hops() -> None:
    """Of five, a reads b, c is forked from a later, d stands alone; the root reads a and forks e."""
    graph = Graph()
    root = graph.thread()
    graph.append(root, [1])
    a, b, d = graph.fork(root, 3)
    for thread in (a, b, d):
        graph.append(thread, [2, 3])
    graph.read_thread(a, b)
    graph.append(a, [4])
    (c,) = graph.fork(a, 1)
    graph.append(c, [5])
    graph.read_thread(root, a)
    (e,) = graph.fork(root, 1)
    graph.append(e, [6])
    threads = [a, b, c, d, e]
    hidden = influences([thread.id for thread in threads], graph.segments)
    assert hidden == (frozenset({0, 2, 4}), frozenset({0, 1, 2, 4}), frozenset({2}), frozenset({3}), frozenset({4}))


def test_influence_of_a_segment_that_was_opened_after_its_reader() -> None:
    """A read extends an empty segment with something that is younger than it."""
    graph = Graph()
    root = graph.thread()
    graph.append(root, [1])
    a, b = graph.fork(root, 2)
    graph.append(a, [2])
    graph.read_thread(root, a)
    graph.append(b, [3])
    graph.read_thread(root, b)
    (c,) = graph.fork(root, 1)
    graph.append(c, [4])
    assert influences([a.id, b.id, c.id], graph.segments)[1] == frozenset({1, 2})


def test_influence_of_what_was_handed_over_as_text() -> None:
    """Of three root threads, a waits for b and is given its words; c was forked before the root waited."""
    graph = Graph()
    root, a, b, c = (graph.thread() for _ in range(4))
    for thread in (root, a, b, c):
        graph.append(thread, [1])
    graph.wait_threads(root, [b])
    graph.wait_threads(a, [b])
    graph.commit(b)
    graph.append(a, [2])
    hidden = influences([a.id, b.id, c.id], graph.segments, graph.waits)
    assert hidden == (frozenset({0}), frozenset({0, 1}), frozenset({2}))


def test_a_wait_of_the_parent_influences_no_child_from_before() -> None:
    """A child that failed leaves no mount, so the root goes on in the segment that its children continue."""
    graph = Graph()
    root = graph.thread()
    graph.append(root, [1])
    a, b = graph.fork(root, 2)
    for thread in (a, b):
        graph.append(thread, [2])
    graph.wait_threads(root, [a, b])
    graph.fail(a, "no words")
    graph.commit(b)
    graph.append(root, [3])
    (c,) = graph.fork(root, 1)
    graph.append(c, [4])
    hidden = influences([a.id, b.id, c.id], graph.segments, graph.waits)
    assert hidden == (frozenset({0, 2}), frozenset({1, 2}), frozenset({2}))
