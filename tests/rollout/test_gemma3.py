"""Gemma-3 270M: greedy text of forked threads against the unmodified library's, beyond its window of 512 tokens."""

from __future__ import annotations

import copy

import pytest
import torch
from gemma3 import GGUF_FILE, gemma3_folder

from octopus.models.loading import load_model
from octopus.rollout.engine import Engine

NEW = 8
TEXT = (
    "The Python standard library module json exposes an API familiar to users of the marshal and pickle modules. "
    "Its function json.dumps serialises an object to a formatted string, and json.loads reads it back. "
)
QUESTIONS = ("The capital of France is", "Once upon a time there was", "In other words, json.dumps")


@pytest.mark.slow
def test_forked_threads_say_what_the_library_says(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Catches: a wrong window or base of one kind of layer, a norm, an embedding scale, a child that sees too much.

    The prompt is longer than the window. One child continues it; one reads what its sibling has written, laid where the
    same text would stand, and must go on as after the plain text.
    """
    folder = gemma3_folder(tmp_path_factory.mktemp("gemma3"))
    model, tokenizer = load_model(str(folder), dtype=torch.float32, device="cpu", gguf_file=GGUF_FILE)
    unmodified = copy.deepcopy(model)
    assert model.config.sliding_window == 512

    def library_tokens(prompt: list[int]) -> list[int]:
        ids = torch.tensor([prompt])
        settings = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        return unmodified.generate(ids, attention_mask=torch.ones_like(ids), **settings)[0, len(prompt) :].tolist()

    engine = Engine(model, tokenizer, pages=96, page_size=16)
    prompt = tokenizer(12 * TEXT).input_ids
    assert 530 < len(prompt) < 700
    questions = [tokenizer(question, add_special_tokens=False).input_ids for question in QUESTIONS]
    root = engine.thread(prompt)
    children = root.fork(len(questions) + 1)
    *plain, reader = children
    for child, question in zip(plain, questions, strict=True):
        child.append(question)
    assert reader.read_thread(plain[0]) == len(questions[0])
    last = tokenizer(" the city of", add_special_tokens=False).input_ids
    reader.append(last)
    together = engine.generate(children, max_tokens=NEW, stop_tokens=())
    endings = [*questions, questions[0] + last]
    for generation, ending in zip(together, endings, strict=True):
        assert list(generation.tokens) == library_tokens(prompt + ending)
