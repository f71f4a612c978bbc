"""What is given to a model is what its chat template writes, and a conversation only ever grows.

Catches: a begin-of-text token lost or doubled; tools that a template does not show; thinking that is taken out of what
was said; a template that writes the past anew and is not refused; words of a user or a tool that become control tokens;
a border at which text is encoded otherwise than the tokenizer does it.
"""

from typing import Any

import chat_tokenizers
import pytest
from chat_tokenizers import BEGINS, FORGETS, LATER, MARKS, PLAIN, SPECIAL, chat, smollm2, tokenizer

from octopus.core.errors import ConfigError
from octopus.rollout.chat.dialect import Chat
from octopus.rollout.chat.plain import Piece, PlainText
from octopus.rollout.chat.schemas import CHAT_TOOLS, schemas
from octopus.rollout.environment import Message

REAL = ("qwen2_5", "qwen3", "qwen3_5_think", "qwen3_5_nothink")
TOOLS = schemas(CHAT_TOOLS)
BEGUN: list[Message] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "white snow, and cold hill?"},
]


def dialect(name: str) -> Chat:
    return smollm2() if name == "smollm2" else chat(name)


def tokens_of(talk: Chat, messages: list[Message], tools: list[dict[str, Any]]) -> list[int]:
    """What the library makes of it."""
    encoded = talk.tokenizer.apply_chat_template(
        messages, tools=tools or None, add_generation_prompt=True, tokenize=True, return_dict=True
    )
    return list(encoded["input_ids"])


@pytest.mark.parametrize("name", [*REAL, PLAIN, BEGINS])
def test_a_prompt_has_the_tokens_of_the_library(name: str) -> None:
    talk = dialect(name)
    given = talk.template.prompt(BEGUN, TOOLS)
    assert given == tokens_of(talk, BEGUN, TOOLS)
    assert given.count(0) == (name == BEGINS)  # the tokenizer itself would begin every text with it
    assert "get_document" in talk.decode(given)


def test_a_template_without_tools_gets_them_in_the_system_message() -> None:
    """SmolLM2's knows of none; its own system message goes where ours comes."""
    talk = smollm2()
    given = talk.decode(talk.template.prompt(BEGUN, TOOLS))
    assert given.startswith("<|im_start|>system\nBe brief.\n\nYou may call these functions:\n{")
    assert all(f'"name": "{tool.name}"' in given for tool in CHAT_TOOLS.values())
    assert talk.template.prompt(BEGUN, []) == tokens_of(talk, BEGUN, [])
    assert "You may call" in talk.decode(talk.template.prompt(BEGUN[1:], TOOLS))


@pytest.mark.parametrize("name", [*REAL, PLAIN, BEGINS, "smollm2"])
def test_a_conversation_grows_as_the_template_writes_it(name: str) -> None:
    """Every encoding is a prefix of the next one, thinking included, and nothing said is encoded again."""
    talk = dialect(name)
    think = "" if name == "qwen3_5_nothink" else "Now I think of snow.\n</think>\n\n"
    head = {"qwen3_5_think": "<think>\n", "qwen3_5_nothink": "<think>\n\n</think>\n\n"}.get(name, "")
    begin = "" if head or not think else "<think>\n"
    messages, given = list(BEGUN), talk.template.prompt(BEGUN, [])
    for turn in range(3):
        said = f'{begin}{think}<tool_call>\n{{"name": "rewind", "arguments": {{"turns": {turn}}}}}\n</tool_call>'
        answer = f"answer {turn}\nof two lines"
        sampled = talk._plain.encode_pieces([Piece(text=f"{said}<|im_end|>", markup=True)])
        before, given = given, [*given, *sampled, *talk.result(answer, ok=True)]
        messages += [{"role": "assistant", "content": head + said}, {"role": "tool", "content": answer}]
        assert given == tokens_of(talk, messages, [])
        assert given[: len(before)] == before
    assert talk.decode(given).count("Now I think of snow.") == (3 if think else 0)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (FORGETS, r"writes a turn of a conversation differently .*turns with thinking.*only ever adds"),
        (LATER, r"writes the beginning of a conversation differently once it goes on"),
        (None, "has no chat template"),
        (PLAIN.replace("{{ m.content }}", ""), "leaves out what a model or a tool says"),
        (PLAIN.replace("<|im_end|>\n{% endfor", "\n{% endfor"), "not a mark"),
        ("{% if messages[-1].role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}" + PLAIN, "no tools"),
    ],
)
def test_a_template_that_cannot_be_continued_is_refused(template: str | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Chat(tokenizer(template))


def test_a_message_that_the_template_leaves_out_is_named() -> None:
    silent = PLAIN.replace("{{ m.content }}", "{% if not loop.first %}{{ m.content }}{% endif %}")
    talk = Chat(tokenizer(PLAIN))
    talk.tokenizer.chat_template = silent
    with pytest.raises(ConfigError, match="leaves out what message 0 says"):
        talk.template.prompt(BEGUN, [])


@pytest.mark.parametrize("name", ["qwen3", "smollm2"])
def test_words_forge_no_mark(name: str) -> None:
    """Catches a tokenizer that finds `<|im_end|>` or `<tool_call>` in what a tool or a user said."""
    talk = dialect(name)
    marks = set(talk.tokenizer.added_tokens_decoder)
    forged = " ".join([*SPECIAL, *MARKS, *(token.content for token in talk.tokenizer.added_tokens_decoder.values())])
    tokens = talk.encode_text(forged)
    assert not marks.intersection(tokens) and talk.decode(tokens) == forged
    answer, harmless = talk.result(forged, ok=True), talk.result("harmless", ok=True)
    assert [t for t in answer if t in marks] == [t for t in harmless if t in marks]
    assert forged in talk.decode(answer)
    asked = talk.template.prompt([{"role": "user", "content": forged}], TOOLS)
    fine = talk.template.prompt([{"role": "user", "content": "harmless"}], TOOLS)
    assert [t for t in asked if t in marks] == [t for t in fine if t in marks]


def test_lone_surrogates_and_every_byte_can_be_given() -> None:
    talk = chat(PLAIN)
    assert talk.decode(talk.encode_text("a\ud800b")) == "a?b"
    everything = "".join(map(chr, range(1, 0x250))) + "✓🐙"
    assert talk.decode(talk.encode_text(everything)) == everything


def test_a_tokenizer_that_swallows_spaces_beside_marks_is_refused() -> None:
    greedy = tokenizer(PLAIN)
    greedy.add_tokens([chat_tokenizers.AddedToken("<|im_start|>", rstrip=False, lstrip=True, special=True)])
    with pytest.raises(ConfigError, match="takes spaces away beside its marks"):
        Chat(greedy)


def test_a_slow_tokenizer_is_refused() -> None:
    class Slow:
        is_fast = False

    with pytest.raises(ConfigError, match=r"expected a tokenizer with a tokenizer\.json"):
        PlainText(Slow())  # type: ignore[arg-type]
