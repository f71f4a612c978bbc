"""From the tokens of a message to an action.

Catches: a call that is misread or taken for an answer; words that are cut at the wrong token; a wrong call that ends
its agent instead of being answered; a control token inside a message.
"""

import json
import random

import pytest
from chat_tokenizers import PLAIN, chat

from octopus.rollout.actions import Action, Fault, Mistake
from octopus.rollout.chat.plain import Piece
from octopus.rollout.control import Control

ALL = frozenset(Control)
ROOT = ALL - {Control.COMMIT}
CHILD = ALL - {Control.ANSWER}


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def said(text: str, allowed: frozenset[Control] = ROOT, template: str = PLAIN) -> Action | Mistake | Fault | None:
    talk = chat(template)
    turn = talk.turn(allowed, 200_000)
    tokens = talk._plain.encode_pieces([Piece(text=f"{text}<|im_end|>", markup=True)])
    results = [turn.take(token) for token in tokens]
    assert not any(results[:-1])
    return results[-1]


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (call("search", '{"query": " white snow "}'), Control.SEARCH, "white snow"),
        ("<think>\n<tool_call>?\n</think>\n\nWell. " + call("get_document", '{"docid": "a"}'), Control.OPEN, "a"),
        (call("fork", '{"tasks": ["white\\nsnow", "fire"]}'), Control.FORK, "white snow\nfire"),
        (call("read_thread", '{"thread": 2}'), Control.READ, "2"),
        (call("wait_threads", '{"threads": [1, 2]}'), Control.WAIT, "1 2"),
        (call("rewind", '{"turns": 1}'), Control.REWIND, "1"),
        (call("answer", '{"text": "snow, \\"sea\\""}'), Control.ANSWER, 'snow, "sea"'),
        ("<think>\nEasy.\n</think>\n\n snow, sea \n", Control.ANSWER, "snow, sea"),
        ("", Control.ANSWER, ""),
        ("<tool_call>\n<function=search>\n<parameter=query>\nwhite snow\n</parameter>\n</function>\n</tool_call>",
         Control.SEARCH, "white snow"),
        ('<tool_call>\n<function=fork>\n<parameter=tasks>\n["snow", "fire"]\n</parameter>\n</function>\n</tool_call>',
         Control.FORK, "snow\nfire"),
    ],
)  # fmt: skip
def test_a_message_is_an_action(text: str, kind: Control, words: str) -> None:
    action = said(text)
    assert isinstance(action, Action)
    assert (action.kind, action.words) == (kind, words)


def test_words_without_a_call_commit_in_a_child() -> None:
    action = said("snow", CHILD)
    assert isinstance(action, Action) and action.kind is Control.COMMIT


def test_a_message_that_begins_within_its_thinking() -> None:
    """Catches a call that the model only thinks of, taken for one that it makes."""
    thought = call("search", '{"query": "sea"}')
    action = said(f"Not {thought} but\n</think>\n\nsnow", template="qwen3_5_think")
    assert isinstance(action, Action) and (action.kind, action.words) == (Control.ANSWER, "snow")
    mistake = said("endless", template="qwen3_5_think")
    assert isinstance(mistake, Mistake) and mistake.why == "the message ends within its thinking"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (call("search", '{"query": "a"}') * 2, "one tool can be called at a time, not 2"),
        ("<tool_call>\n{}", "the tool call has no </tool_call>"),
        ("<tool_call>{</tool_call>", "the tool call is not JSON: "),
        ("<tool_call>[1]</tool_call>", "a tool call is "),
        (call("search", "[]"), "the arguments of a tool call are an object"),
        (call("commit", '{"text": "a"}'), "there is no tool commit; there are search, "),
        (call("fly", "{}"), "there is no tool fly; there are search, get_document, fork, read_thread, wait_threads, "),
        (call("search", '{"words": "a"}'), "search takes query and nothing else"),
        (call("search", '{"query": 1}'), "search takes query, a string"),
        (call("read_thread", '{"thread": true}'), "read_thread takes thread, a whole number"),
        (call("wait_threads", '{"threads": [true]}'), "wait_threads takes threads, a list of whole numbers"),
        (call("fork", '{"tasks": []}'), "fork takes tasks, a list of strings"),
        ("<think>\nendless", "the message ends within its thinking"),
        (f"<tool_call>{'[' * 100_000}</tool_call>", "the tool call is nested too deeply"),
        (f"<tool_call><function=fork><parameter=tasks>{'[' * 100_000}</parameter></function></tool_call>",
         "tasks is nested too deeply"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_answered_with_why(text: str, why: str) -> None:
    mistake = said(text)
    assert isinstance(mistake, Mistake) and mistake.why.startswith(why) and mistake.words == text


def test_a_mark_inside_a_message_and_a_long_message_are_faults() -> None:
    talk = chat(PLAIN)
    assert talk.turn(ROOT, 9).take(talk._plain.marks["<|im_start|>"]) is Fault.BAD_ACTION
    assert talk.turn(ROOT, 9).take(talk.vocabulary) is Fault.BAD_ACTION
    assert talk.turn(ROOT, 1).take(talk.encode_text("a")[0]) is Fault.TURN_TOKENS
    assert talk.turn(ROOT, 9).take(talk._plain.marks["<think>"]) is None


@pytest.mark.parametrize("words", ["snow", "", 'say "é✓" \\ now', "🐙🐙", "a\nb", "x" * 50])
@pytest.mark.parametrize("template", [PLAIN, "qwen3_5_think"])
def test_the_argument_is_the_fewest_tokens_that_hold_the_words(words: str, template: str) -> None:
    """Whatever pieces it was sampled in: each byte alone, as a tokenizer would have it, or anything between."""
    talk, rng = chat(template), random.Random(repr(words))
    inner = json.dumps(words, ensure_ascii=False)
    text = f'</think>{call("commit", f"{{{chr(34)}text{chr(34)}: {inner}}}")}'
    text = text if template != PLAIN else text.removeprefix("</think>")
    for _ in range(5):
        cuts = sorted(rng.sample(range(len(text)), rng.randrange(len(text))))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        tokens = [token for piece in around_marks(pieces) for token in piece]
        turn = talk.turn(CHILD, 10_000)
        for token in tokens:
            assert turn.take(token) is None
        action = turn.take(talk._end)
        assert isinstance(action, Action) and action.words == words.strip()
        end = len(turn.tokens) - action.behind
        assert tuple(turn.tokens[end - len(action.argument) : end]) == action.argument
        held = talk.decode(action.argument)
        assert inner[1:-1] in held
        for fewer in (action.argument[1:], action.argument[:-1]):
            assert not action.argument or inner[1:-1] not in talk.decode(fewer)


def around_marks(pieces: list[str]) -> list[list[int]]:
    """The tokens of each piece, marks whole: a piece that cuts a mark in two is joined with the next."""
    talk = chat(PLAIN)
    joined: list[str] = [""]
    text = "".join(pieces)
    inside = {
        place
        for mark in talk._plain.marks
        for start in range(len(text))
        if text.startswith(mark, start)
        for place in range(start + 1, start + len(mark))
    }
    place = 0
    for piece in pieces:
        if place in inside:
            joined[-1] += piece
        else:
            joined.append(piece)
        place += len(piece)
    return [talk._plain.encode_pieces([Piece(text=piece, markup=True)]) for piece in joined]
