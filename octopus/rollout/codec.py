"""Text as tokens: a byte-level BPE in whose vocabulary the control tokens come first.

Text and control never mix. `encode_text` makes text tokens only, whatever the text spells; a control token gets into a
thread by its id alone, from the protocol or from the policy's own sampling.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from octopus.core.errors import ConfigError, invariant

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

VOCABULARY = 2048


class Control(IntEnum):
    """The control tokens; the value is the token id.

    `END` closes whatever another one opened. `QUESTION`, `PART`, `CHILD`, `RESULT` and `ERROR` are given to the policy;
    the others are the actions that it may take.
    """

    END = 0
    QUESTION = 1
    PART = 2
    CHILD = 3
    RESULT = 4
    ERROR = 5
    FORK = 6
    SEARCH = 7
    OPEN = 8
    READ = 9
    WAIT = 10
    REWIND = 11
    COMMIT = 12
    ANSWER = 13

    @property
    def spelling(self) -> str:
        """As people see it: `<|end|>`."""
        return f"<|{self.name.lower()}|>"


def framed(control: Control, tokens: Sequence[int] = ()) -> list[int]:
    """`<|control|> tokens <|end|>`."""
    return [int(control), *tokens, int(Control.END)]


class Codec:
    """A trained tokenizer.

    Attributes:
        tokenizer: The library's object; its file format is `tokenizer.json`.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Takes a tokenizer whose first ids are the control tokens. Raises ConfigError if they are not."""
        for control in Control:
            if tokenizer.token_to_id(control.spelling) != control:
                raise ConfigError(f"the tokenizer must have {control.spelling} as token {int(control)}")
        # Text that spells a control token is text. The setting is not part of the file, so it is made here.
        tokenizer.encode_special_tokens = True
        self.tokenizer = tokenizer

    @classmethod
    def train(cls, texts: Iterable[str], *, vocabulary: int = VOCABULARY) -> Codec:
        """A codec for such texts.

        Args:
            texts: What it will mostly encode; every other text can be encoded too, in more tokens.
            vocabulary: Most tokens in all: the control tokens, 256 bytes, and merges as far as the texts give them.
        """
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=[control.spelling for control in Control],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
        return cls(tokenizer)

    @classmethod
    def load(cls, path: Path | str) -> Codec:
        """The codec that `save` wrote."""
        return cls(Tokenizer.from_file(str(path)))

    def save(self, path: Path | str) -> None:
        """Writes a `tokenizer.json`."""
        self.tokenizer.save(str(path))

    @property
    def vocabulary(self) -> int:
        """Number of tokens, control tokens included."""
        return int(self.tokenizer.get_vocab_size())

    def encode_text(self, text: str) -> list[int]:
        """The text's tokens, never a control token. Lone surrogates, which no file can hold, become question marks."""
        whole = text.encode("utf-8", "replace").decode("utf-8")
        tokens: list[int] = self.tokenizer.encode(whole, add_special_tokens=False).ids
        invariant(not tokens or min(tokens) >= len(Control), f"a text became a control token: {text!r}")
        return tokens

    def decode_text(self, tokens: Sequence[int]) -> str:
        """The text of the tokens, control tokens left out. Bytes that are not UTF-8 become U+FFFD."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))

    def decode(self, tokens: Sequence[int]) -> str:
        """The tokens for people to read, control tokens spelled out."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=False))

    def transformers(self) -> PreTrainedTokenizerFast:
        """The same tokenizer as the transformers library wraps it, which is what an engine takes."""
        from transformers import PreTrainedTokenizerFast

        copy = Tokenizer.from_str(self.tokenizer.to_str())
        end = Control.END.spelling
        return PreTrainedTokenizerFast(tokenizer_object=copy, eos_token=end, split_special_tokens=True)
