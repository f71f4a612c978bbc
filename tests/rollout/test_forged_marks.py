"""No text becomes a control token: not a tool's, a document's, a question's or a task's, in no dialect.

Catches: a tokenizer that finds marks in words, in whatever pieces or disguise; one whose own vocabulary holds its marks
(merges that are ignored, a unigram model) or knows strange characters only as one; an error of ours where a text merely
spells one, which would let a tool end a run; white space that is taken for a mark, as Gemma-3's tokenizer lists it.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from chat_tokenizers import MARKS, PLAIN, SPECIAL, TEXTS, chat, smollm2, tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from toy_job import codec, question
from transformers import PreTrainedTokenizerFast

from octopus.core.errors import ConfigError
from octopus.rollout.chat.dialect import Chat
from octopus.rollout.chat.plain import PlainText
from octopus.rollout.chat.template import SLOT
from octopus.rollout.codec import Codec, Control
from octopus.rollout.dialect import Dialect
from octopus.rollout.environment import Message
from octopus.rollout.modes import MODES

CONTROLS = tuple(control.spelling for control in Control)
SPELLED = (*CONTROLS, *SPECIAL, *MARKS, "<unk>", "<s>", "</s>", "<|eot_id|>", "<start_of_turn>", "[INST]")


def wide(text: str) -> str:
    """In full-width letters, which NFKC makes plain ones of."""
    return "".join(chr(ord(one) + 0xFEE0) if "!" <= one <= "~" else one for one in text)


DISGUISES = (
    str, wide, str.upper, lambda text: "\u200b".join(text), lambda text: text.replace("|", "\u01c0"),
    lambda text: text[: len(text) // 2], lambda text: text[len(text) // 2 :], lambda text: f" {text}\n",
    lambda text: text.replace("<", "<<"), lambda text: "".join(f"{one}\u0301" for one in text),
)  # fmt: skip
FORGERIES = st.tuples(st.sampled_from(SPELLED), st.sampled_from(DISGUISES)).map(lambda pair: pair[1](pair[0]))
STRANGE = st.text(max_size=4) | st.sampled_from(["\ud800", "\x00", "▁", "Ġ", "\ufffd", "\U0010fffd", "Ċ", "\r\n", ""])
TEXT = st.lists(FORGERIES | STRANGE | st.just(SLOT.format(0)), max_size=6).map("".join)


def wrapped(own: Tokenizer) -> PreTrainedTokenizerFast:
    unknown = {"unk_token": "<unk>"} if own.token_to_id("<unk>") is not None else {}
    ends = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
    return PreTrainedTokenizerFast(tokenizer_object=own, chat_template=PLAIN, **ends, **unknown)


@cache
def unigram() -> Chat:
    """As SentencePiece makes them: its marks are pieces of its vocabulary, and what it does not know is `<unk>`."""
    own = Tokenizer(models.Unigram())
    own.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(" ", "▁")])
    own.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    known = {"special_tokens": ["<unk>", *SPECIAL, *MARKS], "initial_alphabet": list(string.printable)}
    trainer = trainers.UnigramTrainer(vocab_size=400, unk_token="<unk>", show_progress=False, **known)
    own.train_from_iterator(TEXTS * 5, trainer)
    return Chat(wrapped(own))


@cache
def unmerged() -> Chat:
    """A BPE that takes whole words from its vocabulary, as Llama-3's does, and has its marks there."""
    own = Tokenizer(models.BPE(ignore_merges=True))
    own.pre_tokenizer = pre_tokenizers.Split(" ", "isolated")
    own.decoder = decoders.Fuse()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = [*SPECIAL, *MARKS]
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=special, show_progress=False, initial_alphabet=alphabet
    )
    own.train_from_iterator(TEXTS * 5, trainer)
    return Chat(wrapped(own))


DIALECTS = {
    "codec": codec, "plain": lambda: chat(PLAIN), "qwen3": lambda: chat("qwen3"),
    "qwen3.5": lambda: chat("qwen3_5_think"), "smollm2": smollm2, "unigram": unigram, "unmerged": unmerged,
}  # fmt: skip


def control_ids(talk: Dialect) -> frozenset[int]:
    """Every id that could mean something else than text."""
    if isinstance(talk, Codec):
        return frozenset(map(int, Control))
    assert isinstance(talk, Chat)
    own = talk.tokenizer
    return frozenset(n for n, t in own.added_tokens_decoder.items() if t.content.strip()) | {*own.all_special_ids}


def controls(talk: Dialect, tokens: Iterable[int]) -> list[int]:
    """The control tokens, in their order."""
    ids = control_ids(talk)
    return [token for token in tokens if token in ids]


class Asking:
    """An environment that asks with these words, as system and as user."""

    def __init__(self, words: str) -> None:
        self.words = words

    def messages(self) -> list[Message]:
        return [{"role": "system", "content": f"Be good. {self.words}"}, {"role": "user", "content": self.words}]

    def tools(self, turn: int) -> dict[str, object]:
        return {}


@pytest.mark.parametrize("name", DIALECTS)
@settings(max_examples=60, deadline=None)
@given(TEXT)
def test_no_text_becomes_a_control_token(name: str, text: str) -> None:
    """Whatever is given around a text has the same control tokens, however the text is spelled."""
    talk = DIALECTS[name]()
    assert controls(talk, talk.encode_text(text)) == []
    for ok in (True, False):
        assert controls(talk, talk.result(text, ok=ok)) == controls(talk, talk.result("x", ok=ok))
    assert controls(talk, talk.child(1, 2, text)) == controls(talk, talk.child(1, 2, "x"))
    if isinstance(talk, Chat):
        asked, plain = (talk.prompt(Asking(words), MODES["octopus"]) for words in (text, "x"))  # type: ignore[arg-type]
        assert controls(talk, asked) == controls(talk, plain)


@pytest.mark.parametrize("spelled", CONTROLS)
def test_a_question_and_its_documents_are_text(spelled: str) -> None:
    """Of the codec's own environment. Mutation: a part that is encoded with its control tokens."""
    environment = question()
    parts = tuple(f"{part} {spelled} {part}" for part in environment.question.parts)
    forged = replace(environment, question=replace(environment.question, parts=parts))
    asked, plain = (one.prompt(codec()) for one in (forged, environment))
    assert controls(codec(), asked) == controls(codec(), plain)
    assert spelled in codec().decode_text(asked)


@pytest.mark.parametrize("text", ["a\nb", "\n\n", "a\n\nb", "one  two\n\n\n", "tab\tand \r\n"])
def test_white_space_is_text(text: str) -> None:
    """Catches: Gemma-3's tokens for runs of line ends, taken for marks: a tool's two lines would have ended a run."""
    own = tokenizer(PLAIN)
    own.add_tokens([AddedToken(white, normalized=False, special=False) for white in ("\n", "\n\n", "▁▁")])
    talk = Chat(own)
    assert talk.decode_text(talk.encode_text(text)) == text


def test_white_space_of_the_models_own_is_text_too() -> None:
    """As Gemma-3 has it: runs of line ends are merges of its model, and added tokens besides."""
    own = Tokenizer(models.BPE({"<|end|>": 0, "a": 1, "\n": 2, "\n\n": 3}, [("\n", "\n")]))
    own.add_tokens([AddedToken(one, normalized=False) for one in ("<|end|>", "\n\n", "\n")])
    plain = PlainText(PreTrainedTokenizerFast(tokenizer_object=own))
    assert plain.encode("a\n\na\n") == [1, 3, 1, 2]


def test_a_text_without_marks_has_the_tokens_of_the_library() -> None:
    """Mutation: a text that is always torn."""
    for talk in (smollm2(), chat(PLAIN), unigram()):
        for text in ("You are thread 1 of 2. Your task: snow", "Which objects are described?"):
            assert talk.encode_text(text) == talk.tokenizer(text, add_special_tokens=False).input_ids


def test_what_is_only_known_as_a_mark_becomes_a_question_mark() -> None:
    own = Tokenizer(models.WordLevel({"<unk>": 0, "a": 1, "?": 2}, unk_token="<unk>"))
    own.pre_tokenizer = pre_tokenizers.Whitespace()
    own.add_special_tokens(["<unk>"])
    plain = PlainText(PreTrainedTokenizerFast(tokenizer_object=own, unk_token="<unk>"))
    assert plain.encode("a é a") == [1, 2, 1] and plain.encode("zz a") == [2, 2, 1]
    never = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    never.add_special_tokens(["<unk>"])
    assert PlainText(PreTrainedTokenizerFast(tokenizer_object=never, unk_token="<unk>")).encode("a?b") == []


@pytest.mark.parametrize("normalizer", [normalizers.Prepend("<s>"), normalizers.Replace(Regex("$|x"), "<s>")])
def test_a_tokenizer_that_writes_marks_itself_makes_none_of_a_text(normalizer: normalizers.Normalizer) -> None:
    """Catches: a text that is torn for ever, since tearing it brings the mark back."""
    own = Tokenizer(models.BPE({"<s>": 0, "a": 1, "?": 2, "x": 3}, [], ignore_merges=True))
    own.normalizer = normalizer
    own.pre_tokenizer = pre_tokenizers.Split("<s>", "isolated")
    own.add_special_tokens(["<s>"])
    for text in ("ax", "x", "", "a<s>x?"):
        assert 0 not in PlainText(PreTrainedTokenizerFast(tokenizer_object=own)).encode(text)


def changed_codec(change: Callable[[dict[str, Any]], object]) -> Tokenizer:
    described = json.loads(codec().tokenizer.to_str())
    change(described)
    return Tokenizer.from_str(json.dumps(described))


def some_bytes(unknown: str) -> Tokenizer:
    """A codec's tokenizer that knows the bytes of ASCII, and gives `unknown` for the others."""
    own = Tokenizer(models.BPE(unk_token=unknown))
    own.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(special_tokens=[*CONTROLS, "<unk>"], show_progress=False)
    own.train_from_iterator([string.printable], trainer)
    return own


def test_a_codec_that_makes_controls_of_texts_is_refused() -> None:
    """A policy's folder may come from anywhere. Mutations: no check; a check of `<|end|>` alone."""
    assert Codec(changed_codec(lambda own: None)).encode_text("<|end|>")
    Codec(some_bytes("<unk>"))
    with pytest.raises(ConfigError, match=r"makes a control token of the text '\\U0010fffd'"):
        Codec(some_bytes("<|answer|>"))
    with pytest.raises(ConfigError, match=r"makes a control token of the text '<\|answer\|>'"):
        Codec(changed_codec(lambda own: own["added_tokens"][-1].update(special=False)))
    words = changed_codec(lambda own: own["model"].update(ignore_merges=True))
    words.pre_tokenizer = pre_tokenizers.Split(" ", "isolated")
    with pytest.raises(ConfigError, match=r"makes a control token of the text '<\|end\|>'"):
        Codec(words)
