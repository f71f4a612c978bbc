"""The embedded retriever: BM25 by the library bm25s, with the formula, settings and analysis of Lucene.

score(query, document) = sum over query terms of ln(1 + (N - n + 0.5) / (n + 0.5)) * f / (f + k1 (1 - b + b L / mean L))

with N documents, n of them with the term, f its count in the document, L the document's length in terms. Lucene rounds
L above 40 to four significant bits and this does not, so most scores agree to 1 % and not to the last digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from octopus.retrieval.analysis import terms
from octopus.retrieval.corpus import Corpus, Document
from octopus.retrieval.errors import BadSearch
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
        return cls(Corpus.read(folder / DOCUMENTS), bm25s.BM25.load(folder / INDEX, show_progress=False))

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


def best(scores_N: np.ndarray, k: int) -> list[int]:
    """Returns the indices of the `k` highest positive scores, highest first, the lower index first among equals."""
    found = np.flatnonzero(scores_N > 0)
    if len(found) > k:  # all that tie with the k-th stay, so that their order is ours and not that of partition
        found = found[scores_N[found] >= np.partition(scores_N[found], -k)[-k]]
    order = np.argsort(-scores_N[found], kind="stable")[:k]
    return [int(n) for n in found[order]]
