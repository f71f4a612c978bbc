"""What a search engine is to the rest: a protocol with two implementations, `bm25.Bm25` and `pyserini.PyseriniBm25`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from octopus.retrieval.corpus import Document
from octopus.retrieval.errors import BadSearch, IndexMismatch

# The defaults of Anserini and Pyserini.
K1 = 0.9
B = 0.4

MANIFEST = "retriever.json"
DOCUMENTS = "documents.jsonl"
INDEX = "index"


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    """One result: which document, and how well it fits (higher is better; comparable within one search only)."""

    document_id: str
    score: float


class Retriever(Protocol):
    """A ranked search over a fixed corpus, whose documents are found by their names and texts.

    Searches change nothing and may run in several threads at once.
    """

    def search(self, query: str, k: int) -> list[Hit]:
        """Returns the best `k` documents, best first; fewer if fewer share a term with the query.

        A query without any term (empty, only stop words or punctuation) finds nothing, which is no error: what a
        policy writes is data. Of two equal scores the document that comes first in the corpus is first.

        Raises:
            BadSearch: if `k` is less than 1.
        """
        ...

    def search_batch(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """Returns what `search` returns for each query, in their order."""
        ...

    def get_document(self, document_id: str) -> Document:
        """Returns a document.

        Raises:
            UnknownDocument: if no document has this id.
        """
        ...

    def save(self, folder: Path) -> None:
        """Writes the index and the documents to a folder, which is made if needed."""
        ...

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Returns the retriever that was saved there; it answers every search as the saved one did.

        Raises:
            IndexMismatch: if the folder holds no retriever, or one of another kind.
        """
        ...


def check_count(k: int) -> None:
    """Raises `BadSearch` unless at least one result is asked for."""
    if k < 1:
        raise BadSearch(f"a search returns at least 1 result, not {k}")


def searchable(document: Document) -> str:
    """Returns what both retrievers index of a document."""
    return f"{document.name}\n{document.text}"


def write_manifest(folder: Path, kind: str) -> None:
    """Notes in a folder which kind of retriever it holds. Written last, so that a broken save is not loaded."""
    (folder / MANIFEST).write_text(json.dumps({"kind": kind, "version": 1}) + "\n")


def check_manifest(folder: Path, kind: str) -> None:
    """Raises `IndexMismatch` unless the folder holds a retriever of this kind, and no links."""
    path = folder / MANIFEST
    for part in (path, folder / DOCUMENTS, folder / INDEX, *(folder / INDEX).rglob("*")):
        if part.is_symlink():
            raise IndexMismatch(f"{part} is a link; expected the thing itself")
    if not path.is_file():
        raise IndexMismatch(f"{folder} holds no saved retriever: {MANIFEST} is missing")
    try:
        found = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise IndexMismatch(f"{path} cannot be read: {error}") from error
    if found != {"kind": kind, "version": 1}:
        raise IndexMismatch(f"{folder} holds {found}, which a {kind} retriever cannot load")
