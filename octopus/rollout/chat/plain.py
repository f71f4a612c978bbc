"""Given text as tokens of a model's own tokenizer: marks by their ids, everything else as plain text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from octopus.core.errors import ConfigError, invariant

WHITE = " \t\r\n\u2581"
"""The last one is how SentencePiece spells a space."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A stretch of a given text.

    Attributes:
        text: What it says.
        markup: Whether marks in it are marks. In a user's or a tool's words they are words.
    """

    text: str
    markup: bool


class PlainText:
    """Encodes given text.

    A mark is a token that the tokenizer has been given besides those of its model: `<|im_end|>`, `<tool_call>`. In
    what a template writes they are found and stand for themselves; in the words of a prompt or a tool they are spelled
    out, so that words can end no message and call no tool. Between marks everything is encoded in one go, whoever wrote
    it, so a text without marks gets exactly the tokens that the tokenizer gives it.

    Attributes:
        marks: Ids of the marks, by what they are spelled like.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Takes a fast tokenizer. Raises ConfigError for a slow one."""
        if not tokenizer.is_fast:
            raise ConfigError(f"expected a tokenizer with a tokenizer.json, came the slow {type(tokenizer).__name__}")
        self.marks: dict[str, int] = {
            token.content: number for number, token in tokenizer.added_tokens_decoder.items()
        }
        # Some tokenizers have been given white space too (Gemma-3), which words may hold.
        self._ids = frozenset(number for mark, number in self.marks.items() if mark.strip(WHITE))
        described = json.loads(tokenizer.backend_tokenizer.to_str())
        self._plain = Tokenizer.from_str(json.dumps(described | {"added_tokens": [], "post_processor": None}))
        longest_first = sorted(self.marks, key=len, reverse=True)
        self._mark = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def encode(self, text: str) -> list[int]:
        """The text's tokens, none of them a mark.

        Lone surrogates become question marks, and so does what the tokenizer knows only as a mark (`<unk>`).
        """
        tokens: list[int] = []
        waiting = [text.encode("utf-8", "replace").decode("utf-8")]
        while waiting:
            part = waiting.pop()
            encoded = self._plain.encode(part, add_special_tokens=False)
            spans = [span for one, span in zip(encoded.ids, encoded.offsets, strict=True) if one in self._ids]
            if spans:  # The model's own vocabulary has marks, or knows some characters only as one.
                waiting += reversed(_torn(part, spans))
            else:
                tokens += encoded.ids
        invariant(not self._ids.intersection(tokens), f"a text became a mark: {text!r}")
        return tokens

    def encode_pieces(self, pieces: Iterable[Piece]) -> list[int]:
        """The tokens of the pieces, one behind the other."""
        tokens: list[int] = []
        plain = ""
        for piece in pieces:
            start = 0
            for found in self._mark.finditer(piece.text) if piece.markup else ():
                plain += piece.text[start : found.start()]
                tokens += [*self.encode(plain), self.marks[found.group()]]
                plain, start = "", found.end()
            plain += piece.text[start:]
        return tokens + self.encode(plain)


def _torn(text: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    """The text in pieces, torn in the middle of each span; a span of one character becomes a question mark."""
    pieces, start = [], 0
    for first, last in spans:
        invariant(first < last, f"a mark stands for nothing in {text!r}, which would be torn for ever")
        middle = (first + last) // 2
        if last - first > 1:
            pieces.append(text[start:middle])
            start = middle
        else:
            pieces += [text[start:first], "?" * (text[first:last] != "?")]
            start = last
    return [*pieces, text[start:]]


def split(text: str, slots: Sequence[tuple[str, str]]) -> list[Piece]:
    """A rendered text as pieces: each slot's name, which must be found in this order, makes room for its words.

    Raises:
        LookupError: a slot is not found; the argument is its number.
    """
    pieces = []
    for number, (name, words) in enumerate(slots):
        before, found, text = text.partition(name)
        if not found:
            raise LookupError(number)
        pieces += [Piece(text=before, markup=True), Piece(text=words, markup=False)]
    return [*pieces, Piece(text=text, markup=True)]
