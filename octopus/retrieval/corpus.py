"""Documents, and the corpus that ships with the package: what Python's standard library says about itself.

`stdlib.jsonl` was made by `scripts/build_corpus.py`; its licence, hash and history stand in `stdlib.LICENSE.md`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from octopus.retrieval.errors import CorpusDamaged, UnknownDocument

STDLIB = Path(__file__).parent / "stdlib.jsonl"
STDLIB_SHA256 = "5d6aaa02fffa3c018e58f175a02d74e3bb4440136cd36f6efcf507e5aab4fdeb"


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """One documented object.

    Attributes:
        id: Full dotted name, `textwrap.dedent`.
        name: The shortest ending of the id that no other document's id has, `dedent`.
        text: The first sentences of its documentation, on one line.
    """

    id: str
    name: str
    text: str


class Corpus:
    """Documents in a fixed order, found by id."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self._documents = tuple(documents)
        self._by_id = {document.id: document for document in self._documents}
        if len(self._by_id) < len(self._documents):
            raise CorpusDamaged(f"{len(self._documents) - len(self._by_id)} of the documents repeat an id")

    @classmethod
    def load(cls) -> Corpus:
        """Returns the corpus that ships with the package.

        Raises:
            CorpusDamaged: if the file is not, byte for byte, the one that this version was made with.
        """
        found = hashlib.sha256(STDLIB.read_bytes()).hexdigest()
        if found != STDLIB_SHA256:
            raise CorpusDamaged(f"{STDLIB.name} has the hash {found}, not {STDLIB_SHA256}; install the package again")
        return cls.read(STDLIB)

    @classmethod
    def read(cls, path: Path) -> Corpus:
        """Reads a file with one JSON object a line, whose keys are the attributes of `Document`.

        Raises:
            CorpusDamaged: naming the first line that is no such object.
        """
        documents = []
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
            if line:
                try:
                    documents.append(Document(**json.loads(line)))
                except (ValueError, TypeError, RecursionError) as error:
                    raise CorpusDamaged(f"{path.name}, line {number}: {error}") from error
        return cls(documents)

    def write(self, path: Path) -> None:
        """Writes the file that `read` reads."""
        path.write_text("".join(json.dumps(asdict(document)) + "\n" for document in self._documents), encoding="utf-8")

    def get(self, document_id: str) -> Document:
        """Returns the document with this id.

        Raises:
            UnknownDocument: if there is none.
        """
        if document_id not in self._by_id:
            raise UnknownDocument(f"no document has the id {document_id!r}")
        return self._by_id[document_id]

    def __len__(self) -> int:
        return len(self._documents)

    def __iter__(self) -> Iterator[Document]:
        return iter(self._documents)

    def __getitem__(self, index: int) -> Document:
        return self._documents[index]
