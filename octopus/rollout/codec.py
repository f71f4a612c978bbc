"""Text as tokens: a byte-level BPE in whose vocabulary the control tokens come first.

Text and control never mix. `encode_text` makes text tokens only, whatever the text spells; a control token gets into a
thread by its id alone, from the protocol or from the policy's own sampling. The codec is also the shortest `Dialect`:
an action is one control token, its words and `<|end|>`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from octopus.core.errors import ConfigError, invariant
from octopus.rollout.actions import ControlTurn
from octopus.rollout.control import Control, framed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from octopus.rollout.environment import Environment
    from octopus.rollout.modes import Mode

VOCABULARY = 2048

UNKNOWN = "\U0010fffd"
"""A character that no text has: a tokenizer that does not know every byte gives its token for what is unknown."""


class Codec:
    """A trained tokenizer, and the dialect of policies that were trained with it; see `Dialect`.

    Attributes:
        tokenizer: The library's object; its file format is `tokenizer.json`.
        fork_takes: See `Dialect`.
    """

    fork_takes = "a number"

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Takes a tokenizer whose first ids are the control tokens.

        Raises:
            ConfigError: They are not, or a text becomes one of them.
        """
        for control in Control:
            if tokenizer.token_to_id(control.spelling) != control:
                raise ConfigError(f"the tokenizer must have {control.spelling} as token {int(control)}")
        # Text that spells a control token is text. The setting is not part of the file, so it is made here.
        tokenizer.encode_special_tokens = True
        self.tokenizer = tokenizer
        for text in (*(control.spelling for control in Control), UNKNOWN):
            if any(token < len(Control) for token in self._encoded(text)):
                raise ConfigError(
                    f"the tokenizer makes a control token of the text {text!r}; expected a byte-level BPE whose merges "
                    "end in none, with its control tokens marked as special"
                )

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
        tokens = self._encoded(text.encode("utf-8", "replace").decode("utf-8"))
        invariant(not tokens or min(tokens) >= len(Control), f"a text became a control token: {text!r}")
        return tokens

    def _encoded(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

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

    # ---- the dialect ----

    def prompt(self, environment: Environment, mode: Mode) -> list[int]:
        """What the environment asks, and what the mode opens with."""
        return [*environment.prompt(self), *mode.opening]

    def again(self, environment: Environment, mode: Mode, turn: Sequence[int]) -> list[int]:
        """The environment's prompt; of the turn that forked, a child is told its number only."""
        return environment.prompt(self)

    def turn(self, allowed: frozenset[Control], max_tokens: int) -> ControlTurn:
        """One action token, its words, `<|end|>`."""
        return ControlTurn(allowed, max_tokens, decode=self.decode_text)

    def result(self, text: str, *, ok: bool) -> list[int]:
        """`<|result|> text <|end|>`, or `<|error|> text <|end|>`."""
        return framed(Control.RESULT if ok else Control.ERROR, self.encode_text(text))

    def tasks(self, words: str) -> list[str]:
        """As many nameless tasks as the number says; none if it is no number (or an absurdly long one)."""
        return [""] * int(words) if words.isascii() and words.isdigit() and len(words) < 4 else []

    def child(self, index: int, count: int, task: str) -> list[int]:
        """`<|child|> 2 <|end|>`."""
        return framed(Control.CHILD, self.encode_text(str(index)))

    def reading(self, sources: Sequence[tuple[int, bool]]) -> list[list[int]]:
        """Each mount is followed by `<|result|>`, in place of a missing one stands `<|error|>`; `<|end|>` ends it."""
        marks = [[int(Control.RESULT if committed else Control.ERROR)] for _, committed in sources]
        return [[], *marks[:-1], [*marks[-1], int(Control.END)]]
