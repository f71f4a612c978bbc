"""Leave-one-branch-out terms against brute force over all subsets of branches.

Catches: a document found by two branches that pays either of them; a branch that is paid for what another one found; a
branch that used another's find and survives its hiding; a hidden set that hides everybody and is paid nonetheless; a
part that nobody found and that is lost anyway; terms that are not centred, or divided by a deviation; the empty group.
"""

import itertools
import math
import random

import pytest

from octopus.core.graph import Graph
from octopus.train.credit import Evidence, centred, influences, left_out_terms


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


def shapley(case: Evidence) -> list[float]:
    """The exact value of each branch: its marginal averaged over all orders in which branches may join."""
    branches = range(len(case.found))
    values = [0.0 for _ in branches]
    for order in itertools.permutations(branches):
        for place, branch in enumerate(order):
            with_it = case.reward(order[place + 1 :])
            values[branch] += with_it - case.reward(order[place:])
    return [value / math.factorial(len(case.found)) for value in values]


def test_a_branch_that_found_nothing_gets_less_than_one_that_did() -> None:
    assert left_out_terms(evidence("ab", ["a", "b", "x"])) == (1.0, 1.0, 0.0)
    assert left_out_terms(evidence("ab", ["a", "b", ""], parts_right=0.5)) == (0.5, 0.5, 0.0)


def test_a_document_found_by_two_gives_neither_a_marginal() -> None:
    case = evidence("ab", ["a", "ab", "x"], parts_right=0.5)
    assert left_out_terms(case) == (0.0, 0.5, 0.0)
    assert shapley(case) == pytest.approx([0.25, 0.75, 0.0])


def test_a_part_that_nobody_found_is_not_lost() -> None:
    """The answer may have guessed it; hiding a branch takes no guess away."""
    assert evidence("abc", ["a", "b"], parts_right=1.0).reward([0, 1]) == 1.0
    assert left_out_terms(evidence("zz", ["a", "b"])) == (0.0, 0.0)


def test_what_the_orchestrator_found_itself_is_not_lost() -> None:
    assert left_out_terms(evidence("ab", ["a", "b"], parts_right=0.5, kept="a")) == (0.0, 0.5)


def test_an_only_branch_has_no_term() -> None:
    assert left_out_terms(evidence("a", ["a"])) == (None,)
    assert left_out_terms(evidence("a", [])) == ()


def test_hiding_hides_whoever_was_influenced() -> None:
    chain = [{0, 1}, {1}, {2}]
    assert left_out_terms(evidence("ab", ["", "a", "b"], parts_right=0.5, hides=chain)) == (0.5, 0.5, 0.5)
    everybody = [{0, 1, 2}, {1}, {2}]
    assert left_out_terms(evidence("ab", ["", "a", "b"], hides=everybody)) == (None, 1.0, 1.0)


@pytest.mark.parametrize("seed", range(40))
def test_shapley_sums_to_what_the_branches_brought_and_bounds_the_terms(seed: int) -> None:
    """Reward per part is a covering game: marginals shrink as others join, so the term is the least of them."""
    rng = random.Random(seed)
    gold = "abcd"[: rng.randint(1, 4)]
    found = ["".join(rng.sample("abcdx", rng.randint(0, 3))) for _ in range(rng.randint(2, 4))]
    case = evidence(gold, found, parts_right=1 / len(gold))
    values, terms = shapley(case), left_out_terms(case)
    brought = case.reward([]) - case.reward(range(len(found)))
    assert sum(values) == pytest.approx(brought)
    assert brought == pytest.approx(len(set(gold) & set("".join(found))) / len(gold))
    for term, value in zip(terms, values, strict=True):
        assert term is not None and -1e-12 <= term <= value + 1e-12
    if not any(set(one) & set(other) & set(gold) for one, other in itertools.combinations(found, 2)):
        assert list(terms) == pytest.approx(values)  # branches that share nothing: both agree


def test_terms_are_centred_over_the_branches_at_the_same_place_and_never_divided() -> None:
    """Catches a mean over all branches, under which whoever has the easy part is paid for it."""
    first, second = (0, 0), (0, 1)
    assert centred([{first: 1.0, second: 0.5}, {first: 0.5, second: 0.5}]) == [
        {first: 0.25, second: 0.0},
        {first: -0.25, second: 0.0},
    ]
    assert centred([{first: 1.0, second: None}, {first: 0.0, second: 0.5}]) == [
        {first: 0.5, second: 0.0},
        {first: -0.5, second: 0.0},
    ]
    assert centred([{first: None}, {}]) == [{first: 0.0}, {}]
    assert centred([{first: 0.3, second: 0.9}]) == [{first: 0.0, second: 0.0}]


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
