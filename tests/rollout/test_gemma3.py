"""Gemma-3 270M: greedy text of forked threads against the unmodified library's, beyond its window of 512 tokens."""

from __future__ import annotations

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
ENDINGS = ("The capital of France is", "Once upon a time there was", "In other words, json.dumps")
AFTER_A_READ = " the city of"


@pytest.mark.slow
@torch.no_grad()
def test_forked_threads_say_what_the_library_says(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Catches: a wrong window or base of one kind of layer, a norm, an embedding scale, a child that sees too much.

    The prompt is longer than the window. Three children continue it; one reads what its sibling was given, laid where
    the same text would stand, and must go on as after the plain text.
    """
    folder = gemma3_folder(tmp_path_factory.mktemp("gemma3"))
    model, tokenizer = load_model(str(folder), dtype=torch.float32, device="cpu", gguf_file=GGUF_FILE)
    prompt = tokenizer(15 * TEXT).input_ids
    assert model.config.sliding_window == 512 < len(prompt) < 700
    *endings, after = (
        tokenizer(text, add_special_tokens=False).input_ids for text in (*ENDINGS, AFTER_A_READ)
    )

    def library_tokens(ids: list[int]) -> list[int]:
        ids_1T = torch.tensor([ids])
        settings = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        return model.generate(ids_1T, attention_mask=torch.ones_like(ids_1T), **settings)[0, len(ids) :].tolist()

    # Before the engine binds its own forwards on the model.
    expected = [library_tokens(prompt + ending) for ending in (*endings, endings[0] + after)]

    engine = Engine(model, tokenizer, pages=96, page_size=16)
    *plain, reader = engine.thread(prompt).fork(len(endings) + 1)
    for child, ending in zip(plain, endings, strict=True):
        child.append(ending)
    assert reader.read_thread(plain[0]) == len(endings[0])
    reader.append(after)
    together = engine.generate([*plain, reader], max_tokens=NEW, stop_tokens=())
    assert [list(generation.tokens) for generation in together] == expected
    assert len({tuple(tokens) for tokens in expected}) == len(expected), "the endings make a difference"
