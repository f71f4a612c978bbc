"""Text to search terms, as Lucene's `EnglishAnalyzer` makes them: words, lower case, no stop words, Porter stems.

Sources: the word boundaries of Unicode's Annex 29, Lucene's list of 33 stop words, and Porter's algorithm for stripping
suffixes (1980). Known differences: scripts that are written without spaces are not divided here, and the stemmer is
Snowball's `porter`, which lacks two suffixes ("bli", "logi") that Lucene's has in addition.
"""

from __future__ import annotations

import re

import Stemmer  # type: ignore[import-not-found]  # compiled, without stubs

_LUCENE_STOP_WORDS = """
    a an and are as at be but by for if in into is it no not of on or such that the their then there these they this
    to was will with
"""
STOP_WORDS = frozenset(_LUCENE_STOP_WORDS.split())

# Letters, digits and underscores; between two letters also . : ' and between two digits also . , ; ' without a break.
_WORD = re.compile(r"(?:\w|(?<=[^\W\d_])[.:'’·](?=[^\W\d_])|(?<=\d)[.,;'’](?=\d))+")
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
_POSSESSIVE = re.compile(r"['’][sS]$")


def words(text: str) -> list[str]:
    """Returns the words of a text as they stand, `can't` and `os.path` as one, possessive endings removed."""
    return [_POSSESSIVE.sub("", word) for word in _WORD.findall(text) if _LETTER_OR_DIGIT.search(word)]


def terms(text: str) -> list[str]:
    """Returns the search terms of a text in order, repeated as often as they occur.

    >>> terms("Removes the longest-common prefixes of Python's os.path names.")
    ['remov', 'longest', 'common', 'prefix', 'python', 'os.path', 'name']
    """
    stemmer = Stemmer.Stemmer("porter")  # must not be shared between threads, and costs nothing to make
    lowered = [word.lower() for word in words(text)]
    # Words of one and two letters have no suffix; Lucene leaves them alone and Snowball does not.
    return [stemmer.stemWord(word) if len(word) > 2 else word for word in lowered if word not in STOP_WORDS]
