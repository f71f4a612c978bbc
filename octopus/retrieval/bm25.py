"""The embedded retriever: BM25 by the library bm25s, with the formula, settings and analysis of Lucene.

score(query, document) = sum over query terms of ln(1 + (N - n + 0.5) / (n + 0.5)) * f / (f + k1 (1 - b + b L / mean L))

with N documents, n of them with the term, f its count in the document, L the document's length in terms. Lucene rounds
L above 40 to four significant bits and this does not, so most scores agree to 1 % and not to the last digit.

Letters: N documents, P pairs of a term and a document, V terms (and one end).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from octopus.retrieval.analysis import terms
from octopus.retrieval.corpus import Corpus, Document
from octopus.retrieval.errors import BadSearch, IndexMismatch
from octopus.retrieval.retriever import (
    DOCUMENTS,
    INDEX,
    K1,
    B,
    Hit,
    check_count,
    check_manifest,
    searchable,
    write_manifest,
)
from octopus.retrieval.without_jax import bm25s

KIND = "bm25"


class Bm25:
    """A `Retriever` in this process, held in memory. Made by `build` or `load`."""

    def __init__(self, corpus: Corpus, index: Any) -> None:
        self._corpus = corpus
        self._index = index

    @classmethod
    def build(cls, corpus: Corpus) -> Bm25:
        """Indexes a corpus; 3,000 documents take about a second.

        Raises:
            BadSearch: if no document has a term to be found by.
        """
        vocabulary: dict[str, int] = {}
        ids = [[vocabulary.setdefault(t, len(vocabulary)) for t in terms(searchable(d))] for d in corpus]
        if not vocabulary:
            raise BadSearch("there is nothing to search: no document has a term")
        index = bm25s.BM25(method="lucene", k1=K1, b=B)
        index.index((ids, vocabulary), show_progress=False)
        return cls(corpus, index)

    @classmethod
    def load(cls, folder: Path) -> Bm25:
        """See `Retriever.load`."""
        check_manifest(folder, KIND)
        corpus = Corpus.read(folder / DOCUMENTS)
        try:
            # What the file says of the method and of who computes is not heeded.
            index = bm25s.BM25.load(
                folder / INDEX, show_progress=False, allow_pickle=False, method="lucene", backend="numpy", k1=K1, b=B
            )
        except (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise IndexMismatch(f"{folder / INDEX} cannot be read: {error}") from error
        _check(index, len(corpus), folder / INDEX)
        return cls(corpus, index)

    def save(self, folder: Path) -> None:
        """See `Retriever.save`."""
        folder.mkdir(parents=True, exist_ok=True)
        self._corpus.write(folder / DOCUMENTS)
        self._index.save(folder / INDEX, show_progress=False)
        write_manifest(folder, KIND)

    def search(self, query: str, k: int) -> list[Hit]:
        """See `Retriever.search`."""
        check_count(k)
        known = self._index.get_tokens_ids(terms(query))
        if not known:
            return []
        scores_N = self._index.get_scores_from_ids(known)
        return [Hit(document_id=self._corpus[n].id, score=float(scores_N[n])) for n in best(scores_N, k)]

    def search_batch(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """See `Retriever.search_batch`."""
        return [self.search(query, k) for query in queries]

    def get_document(self, document_id: str) -> Document:
        """See `Retriever.get_document`."""
        return self._corpus.get(document_id)


def _check(index: Any, documents: int, folder: Path) -> None:
    """Raises `IndexMismatch` unless every place that the index names exists."""
    scores_P, documents_P, starts_V = (index.scores[name] for name in ("data", "indices", "indptr"))
    flat = all(array.ndim == 1 for array in (scores_P, documents_P, starts_V))
    whole = all(np.issubdtype(array.dtype, np.integer) for array in (documents_P, starts_V))
    if not (flat and whole and scores_P.dtype.kind == "f" and len(starts_V) and len(scores_P) == len(documents_P)):
        raise IndexMismatch(f"{folder} is no index: its arrays are of other types or lengths")
    inside = not len(documents_P) or (documents_P.min() >= 0 and documents_P.max() < documents)
    rising = starts_V[0] == 0 and starts_V[-1] == len(scores_P) and bool((np.diff(starts_V) >= 0).all())
    terms_known = [term for text, term in index.vocab_dict.items() if text]  # The library files the empty text beyond.
    known = all(type(term) is int and 0 <= term < len(starts_V) - 1 for term in terms_known)
    if not (inside and rising and known and index.scores["num_docs"] == documents):
        raise IndexMismatch(f"{folder} is of other documents, or damaged: it names what is not there")


def best(scores_N: np.ndarray, k: int) -> list[int]:
    """Returns the indices of the `k` highest positive scores, highest first, the lower index first among equals."""
    found = np.flatnonzero(scores_N > 0)
    if len(found) > k:  # all that tie with the k-th stay, so that their order is ours and not that of partition
        found = found[scores_N[found] >= np.partition(scores_N[found], -k)[-k]]
    order = np.argsort(-scores_N[found], kind="stable")[:k]
    return [int(n) for n in found[order]]
