"""A model's chat template, and the proof that a conversation may be continued without writing its beginning again.

A template is a program: nothing keeps it from writing an old message differently once a new one has come (some take
the thinking out). What a thread holds would then not be what the model was trained to see, so such a template is
refused. Tried are two turns that think and call a tool, and two that do not think.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from octopus.core.errors import ConfigError
from octopus.rollout.chat.plain import WHITE, Piece, PlainText, split
from octopus.rollout.environment import Message

SLOT = "OctopusSlot{}q"
"""Stands for the words of a message while a template is rendered: one word that no template knows."""
CALL = '<tool_call>\n{"name": "search", "arguments": {"query": "q"}}\n</tool_call>'
THOUGHT = "Thinking of {}."
END_OF_THOUGHT = "</think>"
FAULTS = (TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError)
"""What a template can raise: it is a program of a stranger, run in a sandbox."""
ADVICE = "give the tokenizer a chat template that only ever adds to what it wrote"


class Frame(NamedTuple):
    """What stands around the words of a tool's answer.

    Attributes:
        end: The mark that ends a message of the model, which samples it.
        before: From behind that mark to the words.
        after: From the words to where the model begins to write.
    """

    end: str
    before: str
    after: str


class Template:
    """The chat template of a tokenizer.

    Attributes:
        frame: See `Frame`.
        thinks: Whether the model begins to write within its thinking: the template has opened that for it.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, plain: PlainText) -> None:
        """Raises ConfigError unless the template can be continued, and is encoded as the tokenizer does it."""
        if not tokenizer.chat_template:
            raise ConfigError("the tokenizer has no chat template; set its chat_template, or use a policy of Octopus")
        self._tokenizer = tokenizer
        self._plain = plain
        opened = self._render(_BEGUN, [])
        self.thinks = opened.rpartition("<think>")[2].strip() == "" and "<think>" in opened
        self.frame = self._find_frame(opened)
        closed = END_OF_THOUGHT in opened  # A template that has closed the thinking asks for none.
        for thinking in (False,) if closed else (True, False):
            self._refuse_rewriting(opened, thinking=thinking)
        if plain.encode_pieces([Piece(text=opened, markup=True)]) != self._tokens(_BEGUN):
            raise ConfigError("the tokenizer takes spaces away beside its marks, which is not supported")

    def prompt(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> list[int]:
        """The tokens of a conversation up to where the model begins to write.

        Args:
            messages: Their words are words, whatever marks they spell.
            tools: As JSON schemas. A template that knows of none gets them described in the system message.

        Raises:
            ConfigError: the template refuses the messages, or leaves one out.
        """
        slots = [(SLOT.format(number), message["content"]) for number, message in enumerate(messages)]
        empty = [message | {"content": name} for message, (name, _) in zip(map(dict, messages), slots, strict=True)]
        rendered = self._render(empty, tools)
        if tools and rendered == self._render(empty, []):
            return self.prompt(_told(messages, tools), [])
        try:
            return self._plain.encode_pieces(split(rendered, slots))
        except LookupError as error:
            (number,) = error.args
            raise ConfigError(f"the chat template leaves out what message {number} says: {messages[number]}") from error

    def _find_frame(self, opened: str) -> Frame:
        said, answered = (SLOT.format(name) for name in ("Said", "Answered"))
        conversation = [*_BEGUN, _assistant(opened, said), _tool(answered)]
        rendered = self._render(conversation, [])
        try:
            _, _, between, _, after = (piece.text for piece in split(rendered, [(said, said), (answered, answered)]))
        except LookupError as error:
            raise ConfigError(f"the chat template leaves out what a model or a tool says; {ADVICE}") from error
        ends = [mark for mark in self._plain.marks if mark.strip(WHITE) and between.startswith(mark)]
        if not ends:
            raise ConfigError(f"after a message of the model the chat template writes {between[:20]!r}, not a mark")
        end = max(ends, key=len)
        return Frame(end=end, before=between.removeprefix(end), after=after)

    def _refuse_rewriting(self, opened: str, *, thinking: bool) -> None:
        """Raises ConfigError unless two more turns are written behind what was there, as `frame` has it."""
        conversation, expected = list(_BEGUN), [opened]
        for turn in range(2):
            thought = f"{THOUGHT.format(turn)}\n{END_OF_THOUGHT}\n\n"
            said = CALL
            if self.thinks:
                said = thought + CALL if thinking else f"\n{END_OF_THOUGHT}\n\n{CALL}"
            elif thinking:
                said = f"<think>\n{thought}{CALL}"
            answer = f"answer {turn}"
            conversation += [_assistant(opened, said), _tool(answer)]
            expected.append(f"{expected[-1]}{said}{self.frame.end}{self.frame.before}{answer}{self.frame.after}")
        rendered = [self._render(conversation[: len(_BEGUN) + 2 * turn], []) for turn in range(3)]
        for (_, before), (text, wanted) in pairwise(zip(rendered, expected, strict=True)):
            if text != wanted:
                place = _parting(text, wanted)
                kind = "the beginning" if place < len(before) else "a turn"
                raise ConfigError(
                    f"the chat template writes {kind} of a conversation differently once it goes on "
                    f"(turns {'with' if thinking else 'without'} thinking): expected {_near(wanted, place)}, came "
                    f"{_near(text, place)}; {ADVICE}"
                )

    def _render(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> str:
        try:
            text = self._tokenizer.apply_chat_template(
                list(map(dict, messages)), tools=list(tools) or None, add_generation_prompt=True, tokenize=False
            )
        except FAULTS as error:
            roles = ", ".join(message["role"] for message in messages)
            raise ConfigError(f"the chat template refuses messages of {roles}: {error}") from error
        return str(text)

    def _tokens(self, messages: Sequence[Message]) -> list[int]:
        encoded: Any = self._tokenizer.apply_chat_template(
            list(map(dict, messages)), add_generation_prompt=True, tokenize=True, return_dict=True
        )
        return list(encoded["input_ids"])


_BEGUN: tuple[Message, ...] = ({"role": "system", "content": "Be good."}, {"role": "user", "content": "Which?"})


def _assistant(opened: str, said: str) -> Message:
    """What the model says, with what the template wrote for it: an opened `<think>`, or one that is empty."""
    begun = opened.rpartition("<think>")
    return {"role": "assistant", "content": (begun[1] + begun[2] if begun[1] else "") + said}


def _tool(answer: str) -> Message:
    return {"role": "tool", "content": answer}


def _parting(one: str, other: str) -> int:
    """The first place at which two texts differ."""
    shorter = min(len(one), len(other))
    return next((place for place in range(shorter) if one[place] != other[place]), shorter)


def _near(text: str, place: int) -> str:
    return repr(text[max(0, place - 20) : place + 20])


def _told(messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> list[Message]:
    """The messages with the tools described in the system's."""
    described = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    words = (
        f"You may call these functions:\n{described}\nA call is one JSON object, and the last thing that you write:\n"
        '<tool_call>\n{"name": "the function", "arguments": {"its argument": "value"}}\n</tool_call>'
    )
    head, *rest = messages
    if head["role"] != "system":
        return [{"role": "system", "content": words}, *messages]
    return [{"role": "system", "content": f"{head['content']}\n\n{words}"}, *rest]
