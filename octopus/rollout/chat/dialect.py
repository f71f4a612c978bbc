"""The dialect of models that have a chat template: actions are tool calls, what comes back are the tools' answers.

A fork as SmolLM2's template has it; what stands in brackets is sampled, all else is given:

    root      <|im_start|>system ... tools ... <|im_end|> <|im_start|>user ... <|im_end|> <|im_start|>assistant
              [Two things to look up. <tool_call> fork: snow, fire </tool_call> <|im_end|>]
              <|im_start|>tool  thread 1: (ann)  thread 2: (bob) <|im_end|> <|im_start|>assistant
              [<tool_call> answer: ann, bob </tool_call> <|im_end|>]
    child 1   <|im_start|>tool  You are thread 1 of 2. Your task: snow <|im_end|> <|im_start|>assistant
              [<tool_call> commit: ann </tool_call> <|im_end|>]

`(ann)` is a mount of the tokens that the child sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from octopus.rollout.actions import TOOLS
from octopus.rollout.chat.plain import Piece, PlainText
from octopus.rollout.chat.schemas import schemas
from octopus.rollout.chat.template import Template
from octopus.rollout.chat.turn import ChatTurn
from octopus.rollout.control import Control
from octopus.rollout.environment import Environment
from octopus.rollout.modes import Mode

WRITTEN = frozenset({"<think>", "</think>", "<tool_call>", "</tool_call>"})
"""Marks that a model writes within a message."""


class Chat:
    """See `Dialect`.

    Attributes:
        tokenizer: The model's.
        template: Its chat template.
        fork_takes: See `Dialect`.
    """

    fork_takes = "a list of tasks, their number"

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Takes a tokenizer with a chat template.

        Raises:
            ConfigError: There is none, or it is not one that a conversation can be continued with; see `Template`.
        """
        self.tokenizer = tokenizer
        self._plain = PlainText(tokenizer)
        self.template = Template(tokenizer, self._plain)
        self._end = self._plain.marks[self.template.frame.end]
        special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
        written = {number for mark, number in self._plain.marks.items() if mark in WRITTEN}
        self._strange = (special | set(tokenizer.all_special_ids)) - written

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""
        return len(self.tokenizer)

    def encode_text(self, text: str) -> list[int]:
        """The text's tokens, none of them a mark."""
        return self._plain.encode(text)

    def decode_text(self, tokens: Sequence[int]) -> str:
        """The text of the tokens, without special ones."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def decode(self, tokens: Sequence[int]) -> str:
        """The tokens for people to read, marks spelled out."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def prompt(self, environment: Environment, mode: Mode) -> list[int]:
        """The environment's messages, with the tools that the mode and the environment have."""
        found = environment.tools(0)
        missing = {control for control, name in TOOLS.items() if name not in found}
        return self.template.prompt(environment.messages(), schemas(_with_wait(mode.offered) - missing))

    def again(self, environment: Environment, mode: Mode, turn: Sequence[int]) -> list[int]:
        """The prompt, and the very tokens of the message that forked."""
        return [*self.prompt(environment, mode), *turn]

    def turn(self, allowed: frozenset[Control], max_tokens: int) -> ChatTurn:
        """One message of the model."""
        return ChatTurn(
            _with_wait(allowed),
            max_tokens,
            end=self._end,
            strange=lambda token: token in self._strange or token >= self.vocabulary,
            decode=self.decode,
            thinking=self.template.thinks,
        )

    def result(self, text: str, *, ok: bool) -> list[int]:
        """A tool's answer, and the head of the model's next message."""
        frame = self.template.frame
        return self._given(frame.before, text if ok else f"error: {text}", frame.after)

    def tasks(self, words: str) -> list[str]:
        """One a line."""
        return words.split("\n")

    def child(self, index: int, count: int, task: str) -> list[int]:
        """The answer of `fork` as a child sees it."""
        return self.result(f"You are thread {index} of {count}. Your task: {task}", ok=True)

    def reading(self, sources: Sequence[tuple[int, bool]]) -> list[list[int]]:
        """A tool's answer with the number of each thread before what it committed."""
        frame, pieces, before = self.template.frame, [], self.template.frame.before
        for number, (index, committed) in enumerate(sources):
            lead = f"thread {index}: " if committed else f"thread {index} has failed"
            pieces.append(self._given(before, ("\n" if number else "") + lead, ""))
            before = ""
        # What failed is told in the piece before; a mount's own piece follows it, and the last one closes the answer.
        return [*pieces, self._given("", "", frame.after)]

    def save(self, path: Path | str) -> None:
        """Writes the tokenizer's files into the folder of `path`."""
        self.tokenizer.save_pretrained(Path(path).parent)

    def transformers(self) -> PreTrainedTokenizerBase:
        """The tokenizer."""
        return self.tokenizer

    def _given(self, before: str, text: str, after: str) -> list[int]:
        return self._plain.encode_pieces(
            [Piece(text=before, markup=True), Piece(text=text, markup=False), Piece(text=after, markup=True)]
        )


def _with_wait(actions: frozenset[Control]) -> frozenset[Control]:
    """Who may read threads may wait for them as well; the codec's policies were trained without."""
    return actions | {Control.WAIT} if Control.READ in actions else actions
