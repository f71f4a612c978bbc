"""Descriptions of documents in other words: what the parts of a question are made of.

From the first sentences of a document this takes the plain words that say something, leaves the object's own name out,
drops some, puts synonyms for a few common ones and other endings on some. What is left cannot be found by matching
sentences; its rare words, which are never replaced, are what a ranked search needs.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from random import Random

from octopus.retrieval.analysis import STOP_WORDS, terms
from octopus.retrieval.corpus import Document
from octopus.retrieval.synonyms import SYNONYMS

MIN_WORDS = 6
MAX_WORDS = 12
OPENING_WORDS = 40  # of a text, from which the words of a part come
RARE = 60  # documents at most that a rare word's stem is in
MIN_RARE = 3
ENDING_SHARE = 0.3  # of the words get another ending, if the corpus knows one
SYNONYM_SHARE = 0.5  # of the words that have a synonym get it

_PLAIN_WORD = re.compile(r"[a-z]{2,14}")
_NAME_PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_ENDINGS = ("ing", "ed", "es", "s", "d", "e")


class Paraphraser:
    """Knows which words are rare in a collection of texts, and which endings its words take."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._frequency: Counter[str] = Counter()
        forms: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for text in texts:
            found = set(plain_words(text))
            self._frequency.update({stem(word) for word in found})
            for word in found:
                forms[stem(word), trunk(word)].add(word)
        # Other spellings of the same word: equal for a stemming search, and different as strings.
        self._forms = {word: sorted(family - {word}) for family in forms.values() for word in family}

    def candidates(self, document: Document) -> list[str]:
        """Returns the words that may describe a document, in order, each stem once; never those of its name."""
        banned = {stem(piece) for piece in name_words(document.name)}
        chosen: dict[str, str] = {}
        for word in plain_words(" ".join(document.text.split()[:OPENING_WORDS])):
            if word not in STOP_WORDS and stem(word) not in banned:
                chosen.setdefault(stem(word), word)
        return list(chosen.values())

    def rare(self, word: str) -> bool:
        """Says whether few documents have the word, in any of its forms."""
        return self._frequency[stem(word)] <= RARE

    def describable(self, document: Document) -> bool:
        """Says whether a document has enough words, and enough rare ones, to be told from the others."""
        words = self.candidates(document)
        return len(words) >= MIN_WORDS + 1 and sum(map(self.rare, words)) >= MIN_RARE

    def describe(self, document: Document, rng: Random) -> str:
        """Returns `MIN_WORDS` to `MAX_WORDS` lower-case words about a describable document, other ones at each draw.

        They never stand in the text as they are.
        """
        words = self.candidates(document)
        banned = {stem(piece) for piece in name_words(document.name)}
        text = " ".join(plain_words(document.text))
        while (part := self._draw(words, banned, rng)) in text:
            pass  # seldom: nothing was dropped from within and nothing replaced
        return part

    def _draw(self, words: list[str], banned: set[str], rng: Random) -> str:
        """Returns some of the words in their order, a few of them varied, but never to one with a banned stem."""
        rare = [index for index, word in enumerate(words) if self.rare(word)]
        kept = set(rng.sample(rare, MIN_RARE))
        others = [index for index in range(len(words)) if index not in kept]
        wanted = rng.randint(MIN_WORDS, min(MAX_WORDS, len(words) - 1))
        kept |= set(rng.sample(others, wanted - MIN_RARE))
        varied = (self._vary(words[index], rng) for index in sorted(kept))
        return " ".join(new if stem(new) not in banned else old for old, new in varied)

    def _vary(self, word: str, rng: Random) -> tuple[str, str]:
        """Returns a word, and a synonym of it, another form of it, or itself."""
        if word in SYNONYMS and not self.rare(word) and rng.random() < SYNONYM_SHARE:
            return word, SYNONYMS[word]
        forms = self._forms.get(word)
        return word, rng.choice(forms) if forms and rng.random() < ENDING_SHARE else word


def plain_words(text: str) -> list[str]:
    """Returns the words of a text that are letters only, in lower case: no identifiers, numbers or markup."""
    stripped = (word.strip("\"'.,;:!?()[]<>").lower() for word in text.split())
    return [word for word in stripped if _PLAIN_WORD.fullmatch(word)]


def name_words(name: str) -> list[str]:
    """Returns the words that a name is made of, and the name's own dotted parts, in lower case.

    >>> name_words("Thread.getName")
    ['thread', 'get', 'name', 'thread', 'getname']
    """
    return [piece.lower() for piece in _NAME_PIECE.findall(name)] + name.lower().split(".")


@cache
def stem(word: str) -> str:
    """Returns the search term of one lower-case word, or the word itself if it is a stop word."""
    found = terms(word)
    return found[0] if found else word


def trunk(word: str) -> str:
    """Returns a word without the ending that verbs and plurals take: the same for `file` and `filing`."""
    long_enough = (ending for ending in _ENDINGS if word.endswith(ending) and len(word) > len(ending) + 2)
    return word.removesuffix(next(long_enough, ""))
