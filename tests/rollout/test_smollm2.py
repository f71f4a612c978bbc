"""A real model: forked, mounted and batched greedy text against the unmodified library's."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import pytest
import torch
from smollm2 import GGUF_FILE, smollm2_folder

from octopus.models.loading import load_model
from octopus.rollout.engine import Engine

PAGE = 16
NEW = 8
TEXT = (
    "The Python standard library module json exposes an API familiar to users of the marshal and pickle modules. "
    "Its function json.dumps serialises an object to a formatted string, and json.loads reads it back. "
)


class Real(NamedTuple):
    unmodified: Any
    engine: Engine


@pytest.fixture(scope="module")
def real() -> Real:
    model, tokenizer = load_model(str(smollm2_folder()), dtype=torch.float32, device="cpu", gguf_file=GGUF_FILE)
    unmodified = copy.deepcopy(model)
    return Real(unmodified, Engine(model, tokenizer, pages=256, page_size=PAGE))


def library_tokens(real: Real, prompt: list[int]) -> list[int]:
    ids = torch.tensor([prompt])
    settings = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    return real.unmodified.generate(ids, attention_mask=torch.ones_like(ids), **settings)[0, len(prompt) :].tolist()


def test_a_forked_thread_says_what_the_library_says_at_every_offset_of_a_page(real: Real) -> None:
    """Catches: a child that reads its parent's page beyond the fork, or begins at the page's start."""
    prompt = real.engine.tokenizer(TEXT).input_ids[: 2 * PAGE]
    suffix = real.engine.tokenizer(" Therefore").input_ids
    root = real.engine.thread()
    children = []
    for length in range(1, 2 * PAGE + 1):
        root.append(prompt[length - 1 : length])
        if length >= PAGE:
            children.append((length, root.fork()[0]))
    for _, child in children:
        child.append(suffix)
    together = real.engine.generate([child for _, child in children], max_tokens=NEW, stop_tokens=())
    assert {length % PAGE for length, _ in children} == set(range(PAGE))
    for (length, _), generation in zip(children, together, strict=True):
        assert list(generation.tokens) == library_tokens(real, prompt[:length] + suffix), f"fork at {length}"
    real.engine.graph.check()


def test_threads_decoded_together_say_what_each_says_alone(real: Real) -> None:
    """Catches: rows of a batch that see each other, or positions that are shared."""
    texts = ["The capital of France is", "def add(a, b):\n    return", "Once upon a time", "1, 2, 3, 4,"]
    together = real.engine.generate([real.engine.thread(text) for text in texts], max_tokens=NEW, stop_tokens=())
    alone = [real.engine.generate([real.engine.thread(text)], max_tokens=NEW, stop_tokens=())[0] for text in texts]
    assert [g.tokens for g in together] == [g.tokens for g in alone]
    for text, generation in zip(texts, together, strict=True):
        assert list(generation.tokens) == library_tokens(real, real.engine.tokenizer(text).input_ids)


def test_reading_ones_own_continuation_split_in_two_equals_the_plain_text(real: Real) -> None:
    """Catches: a mount that is off by one position.

    A source that continues the root, read back by it with shift 0, leaves the root where the plain text would.
    """
    tokens = real.engine.tokenizer(TEXT).input_ids[:30]
    root = real.engine.thread(tokens[:12])
    (source,) = root.fork()
    source.append(tokens[12:26])
    assert root.read_thread(source) == 14
    root.append(tokens[26:])
    generation = real.engine.generate([root], max_tokens=NEW, stop_tokens=())[0]
    assert list(generation.tokens) == library_tokens(real, tokens)
