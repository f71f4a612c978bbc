"""Coverage over whole scripted episodes, also where searches lose their results.

Catches: a branch that is paid though its search showed nothing; one that is not paid for what it alone found; terms
that do not shrink as fewer searches arrive; hidden tokens that are not counted; a scope taken for the other.
"""

from statistics import fmean

import pytest
import tiny_policy
from toy_tasks import DOCUMENTS, environment

from octopus.core.graph import Graph
from octopus.retrieval.bm25 import Bm25
from octopus.retrieval.corpus import Corpus
from octopus.rollout.environment import DescribedObjects
from octopus.rollout.scripted import play_script
from octopus.train.credit.coverage import Coverage
from octopus.train.credit.left_out import Term, left_out_terms
from octopus.train.credit.world import Played

EPISODES = 60


def terms_under_loss(lost: float) -> list[tuple[bool, Term]]:
    """For each branch of many scripted episodes whether its search showed anything, and its term."""
    retriever = Bm25.build(Corpus(DOCUMENTS))
    found = []
    for number in range(EPISODES):
        question = environment(parts=2, number=number).question
        asked = DescribedObjects(question=question, retriever=retriever, lost=lost)
        record = play_script(str(number), asked, tiny_policy.codec(), "octopus", patient=False)
        (terms,) = left_out_terms(Coverage("closure"), [Played(environment=asked, record=record)])
        found += [
            (bool(branch.documents), term)
            for branch, term in zip(record.episode.branches, terms, strict=True)
        ]
    return found


def test_search_that_loses_hits_pays_who_found_something() -> None:
    """Rewards are 1, 1/4 and 0 for two, one and no part: a find adds 3/4 beside another, 1/4 alone."""
    means = []
    for lost in (0.0, 0.1, 0.3):
        terms = terms_under_loss(lost)
        assert {term.value for showed, term in terms if not showed} <= {0.0}
        assert {term.value for showed, term in terms if showed} <= {0.75, 0.25}
        assert lost == 0 or abs(fmean(not showed for showed, _ in terms) - lost) < 0.12
        means.append(fmean(term.value for _, term in terms if term.value is not None))
    assert means[0] == 0.75 > means[1] > means[2] > 0.25


def test_scopes_differ_in_what_others_wrote_under_influence() -> None:
    """Branch 1 has read branch 0: it goes with it, or it wrote the same without it. A child of 0 goes either way."""
    from credit_cases import Scored, played_of

    graph = Graph()
    root = graph.thread()
    graph.append(root, [1])
    first, second, third = graph.fork(root, 3)
    graph.append(first, [2, 2])
    (child,) = graph.fork(first)
    graph.append(child, [3])
    graph.read_thread(second, first)
    graph.append(second, [4, 4, 4])
    graph.append(third, [5])
    graph.append(root, [6, 7])
    played = played_of(graph, root, answer_tokens=1, environment=Scored())
    hidden = {}
    for scope in ("closure", "recompute"):
        (terms,) = left_out_terms(Coverage(scope), [played])
        hidden[scope] = {branch.place: term.hidden_tokens for branch, term in zip(
            played.record.episode.branches, terms, strict=True
        )}  # fmt: skip
    assert hidden["closure"] == {(0, 0): 4, (0, 1): 0, (0, 2): 0, (0, 0, 0): 0}
    assert hidden["recompute"] == {(0, 0): 1, (0, 1): 0, (0, 2): 0, (0, 0, 0): 0}


@pytest.mark.parametrize("scope", ["closure", "recompute"])
def test_an_only_branch_has_no_term(scope: str) -> None:
    asked = environment(parts=1)
    record = play_script("one", asked, tiny_policy.codec(), "octopus")
    (terms,) = left_out_terms(Coverage(scope), [Played(environment=asked, record=record)])
    assert [term.value for term in terms] == [None]
