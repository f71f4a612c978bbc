"""Texts as tokens.

Catches: a text that becomes a control token, in whatever spelling; a tokenizer that normalises, trims or loses bytes; a
name that has other tokens where it is shown than where it is repeated; a file that loads as another codec.
"""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from toy_job import DOCUMENTS, codec

from octopus.core.errors import ConfigError
from octopus.rollout.codec import Codec, Control, framed
from octopus.rollout.environment import NAME_END

SPELLINGS = [control.spelling for control in Control]
TEXTS = st.one_of(
    st.text(),
    st.lists(st.one_of(st.sampled_from(SPELLINGS), st.text(max_size=3))).map("".join),
)


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_every_text_comes_back_and_is_text(text: str) -> None:
    tokens = codec().encode_text(text)
    assert all(len(Control) <= token < codec().vocabulary for token in tokens)
    assert codec().decode_text(tokens) == codec().decode(tokens) == text


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "".join(SPELLINGS) * 3, "\x00", " ", "<|end|" + "|>"])
def test_awkward_texts_are_text(text: str) -> None:
    tokens = codec().encode_text(text)
    assert min(tokens) >= len(Control)
    assert codec().decode_text(tokens) == text.encode("utf-8", "replace").decode()


def test_control_tokens_come_first_and_are_spelled_out_for_people_only() -> None:
    assert [codec().tokenizer.token_to_id(spelling) for spelling in SPELLINGS] == list(range(len(Control)))
    tokens = framed(Control.SEARCH, codec().encode_text("snow"))
    assert codec().decode(tokens) == "<|search|>snow<|end|>" and codec().decode_text(tokens) == "snow"


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1, max_size=12))
def test_a_name_has_the_same_tokens_wherever_it_is_shown(name: str) -> None:
    alone = codec().encode_text(name)
    for text in (f"{name}{NAME_END}white snow", f"snow{NAME_END}white\n{name}"):
        tokens = codec().encode_text(text)
        assert alone in [tokens[start : start + len(alone)] for start in range(len(tokens))]


def test_a_query_has_the_tokens_of_the_part_behind_its_number() -> None:
    assert codec().encode_text("12 snow white")[-len(codec().encode_text(" snow white")) :] == codec().encode_text(
        " snow white"
    )


def test_a_saved_codec_is_the_same(tmp_path: Path) -> None:
    codec().save(tmp_path / "tokenizer.json")
    loaded = Codec.load(tmp_path / "tokenizer.json")
    text = "snow<|end|> fällt 雪"
    assert loaded.encode_text(text) == codec().encode_text(text)
    assert loaded.vocabulary == codec().vocabulary


def test_training_gives_the_vocabulary_that_was_asked_for_and_the_same_one_again() -> None:
    texts = [f"{document.name} {document.text}" for document in DOCUMENTS]
    one, other = (Codec.train(texts, vocabulary=300) for _ in range(2))
    assert one.vocabulary == 300 and one.tokenizer.to_str() == other.tokenizer.to_str()


def test_the_transformers_wrapper_makes_text_of_text_too() -> None:
    text = "snow <|end|> x"
    assert codec().transformers()(text, add_special_tokens=False).input_ids == codec().encode_text(text)


def test_another_tokenizer_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"must have <\|end\|> as token 0"):
        Codec(Tokenizer(models.BPE()))
