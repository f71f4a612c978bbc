"""The second retriever: Lucene itself, through Anserini's Java classes in the package pyserini.

Uses the classes that pyserini's `LuceneIndexer` and `LuceneSearcher` wrap, without importing those wrappers: they need
torch, transformers, pandas and scikit-learn, and none of that is needed for BM25.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from octopus.retrieval.corpus import Corpus, Document
from octopus.retrieval.jvm import java_class
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

KIND = "pyserini"


class PyseriniBm25:
    """A `Retriever` in the JVM of this process. Made by `build` or `load`.

    The index lives in a temporary folder that goes with the object.
    """

    def __init__(self, corpus: Corpus, folder: tempfile.TemporaryDirectory[str]) -> None:
        self._corpus = corpus
        self._folder = folder
        # Lucene refuses queries of more than 1,024 terms unless told otherwise.
        java_class("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(2**31 - 1)
        self._searcher = java_class("io.anserini.search.SimpleSearcher")(folder.name)
        self._searcher.set_bm25(K1, B)

    @classmethod
    def build(cls, corpus: Corpus) -> PyseriniBm25:
        """Indexes a corpus with Anserini's default English analyser; 3,000 documents take about a second.

        Raises:
            RetrieverUnavailable: if pyserini or Java is missing.
        """
        indexer_class = java_class("io.anserini.index.SimpleIndexer")
        folder = tempfile.TemporaryDirectory(prefix="octopus-index-")
        # A new index, not appended to; by one thread, so that ties are in the order of the corpus.
        indexer = indexer_class(folder.name, False, 1)
        indexer.addRawDocuments([json.dumps({"id": d.id, "contents": searchable(d)}) for d in corpus])
        indexer.close()
        return cls(corpus, folder)

    @classmethod
    def load(cls, folder: Path) -> PyseriniBm25:
        """See `Retriever.load`. The saved folder is copied, and may be moved or deleted afterwards."""
        check_manifest(folder, KIND)
        own = tempfile.TemporaryDirectory(prefix="octopus-index-")
        shutil.copytree(folder / INDEX, own.name, dirs_exist_ok=True)
        return cls(Corpus.read(folder / DOCUMENTS), own)

    def save(self, folder: Path) -> None:
        """See `Retriever.save`."""
        folder.mkdir(parents=True, exist_ok=True)
        self._corpus.write(folder / DOCUMENTS)
        shutil.copytree(self._folder.name, folder / INDEX, dirs_exist_ok=True)
        write_manifest(folder, KIND)

    def search(self, query: str, k: int) -> list[Hit]:
        """See `Retriever.search`."""
        return self.search_batch([query], k)[0]

    def search_batch(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """See `Retriever.search_batch`. One call into Java."""
        check_count(k)
        texts, keys = java_class("java.util.ArrayList")(), java_class("java.util.ArrayList")()
        for number, query in enumerate(queries):
            texts.add(query.encode("utf-8", "replace").decode())  # Java takes no lone surrogates
            keys.add(str(number))
        found = self._searcher.batch_search(texts, keys, k, 1)
        return [
            [Hit(document_id=hit.docid, score=hit.score) for hit in found.get(str(number))]
            for number in range(len(queries))
        ]

    def get_document(self, document_id: str) -> Document:
        """See `Retriever.get_document`."""
        return self._corpus.get(document_id)
