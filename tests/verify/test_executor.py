"""The executor refuses what it would get wrong. That it is right is shown in `exactness`, against the library.

Catches a yardstick that measures something it was not made for.
"""

from types import SimpleNamespace

import pytest
from tiny_models import rope_parameters, tiny_llama

from octopus.verify.executor import execute


def test_another_family_is_refused() -> None:
    with pytest.raises(ValueError, match="gpt2 is not one of llama, qwen3, qwen3_5_text, gemma3_text"):
        execute(SimpleNamespace(config=SimpleNamespace(model_type="gpt2")), [])


def test_another_rotary_embedding_is_refused() -> None:
    model = tiny_llama(rope_parameters=rope_parameters(rope_type="dynamic", factor=2.0))
    with pytest.raises(ValueError, match="rope type dynamic is not supported"):
        execute(model, [])
