"""The embedded retriever: the formula, the order of equals, and what it does with odd input."""

from __future__ import annotations

import doctest
import math
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from octopus.retrieval import analysis
from octopus.retrieval.analysis import terms
from octopus.retrieval.bm25 import Bm25
from octopus.retrieval.corpus import Corpus, Document
from octopus.retrieval.errors import BadSearch, IndexMismatch, UnknownDocument
from octopus.retrieval.questions import questions
from octopus.retrieval.retriever import Hit, Retriever, searchable

QUERIES = ["remove common leading whitespace", "file file descriptor", "the of", "", "raise an error if it is missing"]


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus.load()


@pytest.fixture(scope="module")
def bm25(corpus: Corpus) -> Bm25:
    return Bm25.build(corpus)


def reference(documents: list[Document], query: str) -> dict[str, float]:
    """Returns the score of every document that shares a term with the query, by the formula."""
    bags = {document.id: Counter(terms(searchable(document))) for document in documents}
    mean = sum(bag.total() for bag in bags.values()) / len(bags)
    scores: Counter[str] = Counter()
    for term in terms(query):
        having = sum(term in bag for bag in bags.values())
        weight = math.log(1 + (len(bags) - having + 0.5) / (having + 0.5))
        for key, bag in bags.items():
            if term in bag:
                scores[key] += weight * bag[term] / (bag[term] + 0.9 * (1 - 0.4 + 0.4 * bag.total() / mean))
    return dict(scores)


@pytest.mark.parametrize("query", QUERIES)
def test_scores_are_the_formula(corpus: Corpus, query: str) -> None:
    """Catches: other k1 or b, another variant of idf, a repeated query term counted once, results without a match."""
    documents = list(corpus)[:300]
    expected = reference(documents, query)
    hits = Bm25.build(Corpus(documents)).search(query, 300)
    assert {hit.document_id: hit.score for hit in hits} == pytest.approx(expected, rel=1e-5)
    assert hits == sorted(hits, key=lambda hit: -hit.score)


def test_equal_scores_are_in_the_order_of_the_corpus() -> None:
    """Catches: an unstable selection, at the cut after k and within it."""
    documents = [Document(id=f"d{n}", name="", text="alpha beta" if n % 3 else "alpha alpha") for n in range(30)]
    bm25 = Bm25.build(Corpus(documents))
    ids = [hit.document_id for hit in bm25.search("alpha", 15)]
    assert ids == [f"d{n}" for n in range(30) if n % 3 == 0] + ["d1", "d2", "d4", "d5", "d7"]
    assert ids[:4] == [hit.document_id for hit in bm25.search("alpha", 4)]


def test_analysis() -> None:
    """Catches: a stop word kept, a possessive kept, words joined by an underscore or a dot divided."""
    assert doctest.testmod(analysis).failed == 0
    assert terms("The dogs' owner's DOGS, isn't it?") == ["dog", "owner", "dog", "isn't"]
    assert terms("os.path.join(a_b, 3.5, v1.2), x--y; ... ___") == ["os.path.join", "a_b", "3.5", "v1.2", "x", "y"]
    assert terms("os is us") == ["os", "us"]
    assert terms("\x00 \ud800 😀") == []


def test_nothing_to_search_for_finds_nothing(bm25: Bm25) -> None:
    """Catches: an error, or arbitrary documents with score 0, for what a policy may well write."""
    for query in ["", "   ", "the of and", "?!", "\x00", "\ud800", "zzzzqqq"]:
        assert bm25.search(query, 3) == []
    assert bm25.search_batch([], 3) == []


def test_bad_input(bm25: Bm25) -> None:
    """Catches: k = 0 taken as "all", or as an empty answer."""
    for k in (0, -1):
        with pytest.raises(BadSearch, match=f"at least 1 result, not {k}"):
            bm25.search("file", k)
        with pytest.raises(BadSearch, match="at least 1 result"):
            bm25.search_batch(["file"], k)
    with pytest.raises(UnknownDocument, match="no document has the id 'nowhere'"):
        bm25.get_document("nowhere")
    with pytest.raises(BadSearch, match="no document has a term"):
        Bm25.build(Corpus([]))
    assert len(bm25.search("file", 10**6)) < 3000


def test_batch_is_the_same_as_one_by_one(bm25: Bm25) -> None:
    """Catches: results that go to the wrong query."""
    retriever: Retriever = bm25
    assert retriever.search_batch(QUERIES, 5) == [bm25.search(query, 5) for query in QUERIES]


def test_searches_in_threads(bm25: Bm25) -> None:
    """Catches: a stemmer or buffer shared between threads."""
    expected = [bm25.search(query, 5) for query in QUERIES]
    found: dict[int, list[list[Hit]]] = {}

    def work(number: int) -> None:
        found[number] = [bm25.search(query, 5) for _ in range(20) for query in QUERIES]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(result == expected * 20 for result in found.values()) and len(found) == 4


def test_save_and_load(bm25: Bm25, corpus: Corpus, tmp_path: Path) -> None:
    """Catches: documents or settings that are not saved; a folder of another kind that is loaded all the same."""
    bm25.save(tmp_path / "saved")
    loaded = Bm25.load(tmp_path / "saved")
    assert loaded.search_batch(QUERIES, 10) == bm25.search_batch(QUERIES, 10)
    assert loaded.get_document("textwrap.dedent") == corpus.get("textwrap.dedent")
    with pytest.raises(IndexMismatch, match=r"holds no saved retriever: retriever\.json is missing"):
        Bm25.load(tmp_path)
    (tmp_path / "saved" / "retriever.json").write_text('{"kind": "pyserini", "version": 1}')
    with pytest.raises(IndexMismatch, match="a bm25 retriever cannot load"):
        Bm25.load(tmp_path / "saved")


def test_most_parts_find_their_document(bm25: Bm25) -> None:
    """Catches: parts that say too little. The whole part as the query finds it first for 94 % of the test documents."""
    asked = questions("test", 600, seed=0, parts=(1,))
    found = [bm25.search(question.parts[0], 3) for question in asked]
    first = sum(hits[0].document_id == question.gold[0] for hits, question in zip(found, asked, strict=True))
    ids = [[hit.document_id for hit in hits] for hits in found]
    among = sum(question.gold[0] in three for three, question in zip(ids, asked, strict=True))
    assert 0.90 <= first / len(asked) <= 0.98, "easier or harder than what the published figures are about"
    assert among / len(asked) >= 0.97


def test_the_library_does_not_wake_jax(tmp_path) -> None:
    """Catches: an import that lets JAX reserve the GPU. A stand-in for JAX says whether it was imported."""
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("raise SystemExit('jax was imported')")
    look = "import octopus.retrieval.bm25; print('jax' in sys.modules)"
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {look}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("False", "")
