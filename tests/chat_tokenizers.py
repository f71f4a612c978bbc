"""Tokenizers with chat templates: SmolLM2's own, and a small one that takes any template.

The templates of Qwen3 and Qwen3.5 are read where TRL keeps copies of them.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

from smollm2 import GGUF_FILE, smollm2_folder
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from octopus.rollout.chat.dialect import Chat

TEXTS = [
    "snow.fall : white snow falls on the cold hill",
    "Which objects are described? Answer with their names in this order, separated by commas.",
    "user assistant system tool thread 1: You are thread 1 of 2. Your task: error think",
    '{"name": "fork", "arguments": {"tasks": ["snow", "fire"]}} search query commit text answer thread',
]
MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

PLAIN = (
    "{% if tools %}<|im_start|>system\nTools: {{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""The least that a template can do."""
FORGETS = PLAIN.replace("{{ m.content }}", "{{ m.content.split('</think>')[-1] }}")
"""Takes the thinking out of what was said."""
LATER = PLAIN.replace("{% for m", "{{ messages | length }}{% for m")
"""Says at the beginning what comes later."""
BEGINS = "{{ bos_token }}" + PLAIN
"""Writes the token that begins every text."""


def real_template(name: str) -> str:
    """A template of a real model: `qwen3`, `qwen3_5_think`."""
    spec = importlib.util.find_spec("trl")
    assert spec is not None and spec.submodule_search_locations, "pip install --no-deps trl"
    return (Path(spec.submodule_search_locations[0]) / "chat_templates" / f"{name}.jinja").read_text()


@cache
def _trained() -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 5, trainer)
    tokenizer.add_tokens([AddedToken(mark, normalized=False) for mark in MARKS])
    # As of models that begin every text with a token: added by the tokenizer unless it is told not to.
    begun = processors.TemplateProcessing(single="<|endoftext|> $A", special_tokens=[(SPECIAL[0], 0)])
    tokenizer.post_processor = begun
    return tokenizer.to_str()


def tokenizer(template: str | None, **settings: Any) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer of about 600 tokens that adds `<|endoftext|>` at the beginning of a text."""
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_trained()),
        bos_token="<|endoftext|>",
        eos_token="<|im_end|>",
        chat_template=template,
        **settings,
    )


@cache
def chat(template: str) -> Chat:
    """The dialect of the small tokenizer with a template, or with that of a real model."""
    return Chat(tokenizer(template if "{" in template else real_template(template)))


@cache
def smollm2() -> Chat:
    """SmolLM2's own tokenizer and template."""
    return Chat(AutoTokenizer.from_pretrained(str(smollm2_folder()), gguf_file=GGUF_FILE))
