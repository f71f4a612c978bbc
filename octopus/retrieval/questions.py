"""Questions of one to four parts: "which objects are described?", each part about a different document.

    parts   ("strips common blanks margin every text", "give running total figures iterable")
    answer  "dedent, accumulate"        names in the order of the parts; only an exact match counts

The split is by document: no document of a test question is ever in a training question, so a model that knows the
training documents by heart knows nothing about the others.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Literal, get_args

from octopus.retrieval.corpus import Corpus, Document
from octopus.retrieval.errors import BadQuestionRequest
from octopus.retrieval.names import NameMaker
from octopus.retrieval.paraphrase import Paraphraser

Split = Literal["train", "validation", "test"]

MAX_NAME = 20  # characters of a name that a question may ask for
SHARES: dict[Split, float] = {"train": 0.6, "validation": 0.1, "test": 0.3}
WINDOW_WORDS = (15, 60)


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """One task.

    Attributes:
        id: Unique among the questions of one seed and split.
        parts: One description each, 6 to 12 lower-case words.
        gold: The id of the document that each part describes.
        answer: The names of these documents, joined by ", ".
        split: Which documents it is about.
    """

    id: str
    parts: tuple[str, ...]
    gold: tuple[str, ...]
    answer: str
    split: Split


def split_of(document_id: str) -> Split:
    """Returns the split that a document belongs to, from the hash of its id alone."""
    place = int.from_bytes(hashlib.sha256(document_id.encode()).digest()[:8]) / 2**64
    if place < SHARES["train"]:
        return "train"
    return "validation" if place < SHARES["train"] + SHARES["validation"] else "test"


def questions(split: Split, count: int, *, seed: int, parts: Sequence[int] = (1, 2, 3, 4)) -> list[Question]:
    """Returns `count` questions about the shipped corpus; the same for the same arguments, on every machine.

    Args:
        split: Of the documents that are asked for.
        count: How many.
        seed: Another one gives other questions.
        parts: The numbers of parts, taken in turn.

    Raises:
        BadQuestionRequest: if there is no such split, or there are fewer documents than parts.
    """
    if split not in get_args(Split):
        raise BadQuestionRequest(f"there is no split {split!r}; there are {', '.join(get_args(Split))}")
    return _write(_describable(split), count, Random(f"questions {split} {seed}"), f"{split}-{seed}", split, parts)


def questions_about(
    documents: Sequence[Document], count: int, *, seed: int, parts: Sequence[int] = (1, 2, 3, 4)
) -> list[Question]:
    """Returns training questions about given documents, as `fresh_corpus` returns them.

    Raises:
        BadQuestionRequest: if fewer documents can be described than a question has parts.
    """
    usable = [document for document in documents if _paraphraser().describable(document)]
    return _write(usable, count, Random(f"fresh {seed}"), f"fresh-{seed}", "train", parts)


def fresh_corpus(count: int, *, seed: int, windows: bool = False) -> list[Document]:
    """Returns documents for warm-up: texts of the training split under names that were drawn for this call.

    A model that is trained on these cannot learn names by heart; what is left to learn is to search and to copy.

    Args:
        count: How many.
        seed: Another one gives other names, and other documents.
        windows: False: whole texts, each once, the object's own name in them exchanged too. True: stretches of
            `WINDOW_WORDS` words from anywhere in the training texts, without end.

    Raises:
        BadQuestionRequest: if more whole texts are asked for than there are.
    """
    rng = Random(f"corpus {seed} {windows}")
    sources = _describable("train")
    if not windows and count > len(sources):
        raise BadQuestionRequest(f"{count} whole texts are asked for and {len(sources)} are there; windows have no end")
    texts = _windows(sources, rng) if windows else iter(rng.sample(sources, len(sources)))
    names = _fresh_names(rng)
    return [_renamed(next(texts), next(names), f"fresh-{seed}-{number}") for number in range(count)]


@cache
def _stdlib() -> Corpus:
    """Returns the shipped corpus, read once."""
    return Corpus.load()


@cache
def _paraphraser() -> Paraphraser:
    """Returns the paraphraser that knows the words of the shipped corpus."""
    return Paraphraser(document.text for document in _stdlib())


@cache
def _describable(split: Split) -> tuple[Document, ...]:
    """Returns the documents of a split that questions are made of: a short name, and enough words that tell."""
    return tuple(
        document
        for document in _stdlib()
        if split_of(document.id) == split
        and len(document.name) <= MAX_NAME
        and _paraphraser().describable(document)
    )


def _write(
    documents: Sequence[Document], count: int, rng: Random, prefix: str, split: Split, parts: Sequence[int]
) -> list[Question]:
    """Returns `count` questions that use the documents evenly, none of them twice in one question."""
    if not parts or min(parts) < 1 or max(parts) > len(documents):
        raise BadQuestionRequest(f"{tuple(parts)} parts cannot be made of {len(documents)} describable documents")
    supply = _rounds(documents, rng)
    written = []
    for number in range(count):
        chosen: dict[str, Document] = {}
        while len(chosen) < parts[number % len(parts)]:
            document = next(supply)
            chosen[document.id] = document
        written.append(
            Question(
                id=f"{prefix}-{number}",
                parts=tuple(_paraphraser().describe(document, rng) for document in chosen.values()),
                gold=tuple(chosen),
                answer=", ".join(document.name for document in chosen.values()),
                split=split,
            )
        )
    return written


def _rounds(documents: Sequence[Document], rng: Random) -> Iterator[Document]:
    """Yields all documents in a random order, then in another one, without end."""
    while True:
        yield from rng.sample(documents, len(documents))


def _windows(documents: Sequence[Document], rng: Random) -> Iterator[Document]:
    """Yields random stretches of the texts, put one behind another, as documents that can be described."""
    words = " ".join(document.text for document in documents).split()
    while True:
        length = rng.randint(*WINDOW_WORDS)
        start = rng.randrange(len(words) - length)
        window = Document(id="", name="", text=" ".join(words[start : start + length]))
        if _paraphraser().describable(window):
            yield window


def _fresh_names(rng: Random) -> Iterator[str]:
    """Yields names like those of the training documents, none of them real, none twice."""
    taken = {document.name for document in _stdlib()}
    maker = NameMaker(document.name for document in _describable("train"))
    while True:
        name = maker.draw(rng)
        if len(name) <= MAX_NAME and name not in taken:
            taken.add(name)
            yield name


def _renamed(document: Document, name: str, document_id: str) -> Document:
    """Returns a document under another name, also where its text speaks of itself by an unmistakable name."""
    own, new = document.name.split(".")[-1], name.split(".")[-1]
    text = document.text
    if own and (not own.islower() or "_" in own):
        text = re.sub(rf"\b{re.escape(own)}\b", new, text)
    return Document(id=document_id, name=name, text=text)
