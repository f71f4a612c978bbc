"""What a model's message calls: one tool, written as JSON or as tags, or nothing.

    <tool_call>                                    <tool_call>
    {"name": "search",                             <function=search>
     "arguments": {"query": "snow white"}}         <parameter=query>
    </tool_call>                                   snow white
                                                   </parameter>
                                                   </function>
                                                   </tool_call>

Both say the same; a model's template says which it was trained to write.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_FUNCTION = re.compile(r"\s*<function=([^>\s]+)>(.*)</function>\s*", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_STRING_VALUE = r'"{}"\s*:\s*'


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """What a message says besides its thinking.

    Attributes:
        name: The tool that it calls, None if none.
        arguments: Those of the call.
        tags: Whether the call is written in tags, where every value is a text.
        start: First character of the message's words, or of the call's argument where that is one text.
        stop: One past the last.
    """

    name: str | None
    arguments: dict[str, Any]
    tags: bool
    start: int
    stop: int


def read_message(text: str, *, thinking: bool) -> Said:
    """Reads a message.

    Args:
        text: The message, without the mark that ends it.
        thinking: Whether it begins within the thinking.

    Raises:
        ValueError: it calls more than one tool, or none in a way that can be understood. The message says which.
    """
    start = 0
    if thinking or text.lstrip().startswith("<think>"):
        _, found, _ = text.partition("</think>")
        if not found:
            raise ValueError("the message ends within its thinking")
        start = text.index("</think>") + len("</think>")
    calls = list(_CALL.finditer(text, start))
    if len(calls) > 1:
        raise ValueError(f"one tool can be called at a time, not {len(calls)}")
    if calls:
        begin, end = calls[0].span(1)
        return _read_tags(text, begin, end) or _read_json(text, begin, end)
    if "<tool_call>" in text[start:]:
        raise ValueError("the tool call has no </tool_call>")
    words = text[start:].strip()
    begin = text.index(words, start)
    return Said(name=None, arguments={}, tags=False, start=begin, stop=begin + len(words))


def _read_json(text: str, start: int, stop: int) -> Said:
    try:
        call = json.loads(text[start:stop])
    except RecursionError as error:  # A model may well repeat a bracket.
        raise ValueError("the tool call is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"the tool call is not JSON: {error}") from error
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise ValueError('a tool call is {"name": ..., "arguments": {...}}')
    arguments = call.get("arguments", {})
    if not isinstance(arguments, dict):
        raise ValueError("the arguments of a tool call are an object")
    begin, end = start, stop
    if len(arguments) == 1 and isinstance(next(iter(arguments.values())), str):
        (key,) = arguments
        found = re.compile(_STRING_VALUE.format(re.escape(key))).search(text, text.index('"arguments"', start), stop)
        if found:
            _, end = json.JSONDecoder().raw_decode(text, found.end())
            begin, end = found.end() + 1, end - 1
    return Said(name=call["name"], arguments=arguments, tags=False, start=begin, stop=end)


def _read_tags(text: str, start: int, stop: int) -> Said | None:
    function = _FUNCTION.fullmatch(text, start, stop)
    if function is None:
        return None
    found = list(_PARAMETER.finditer(text, *function.span(2)))
    arguments = {parameter.group(1): parameter.group(2) for parameter in found}
    begin, end = found[0].span(2) if len(found) == 1 else (start, stop)
    return Said(name=function.group(1), arguments=arguments, tags=True, start=begin, stop=end)
