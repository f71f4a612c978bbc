"""Rotary types as the library has them: the same scores, as rotations that compose exactly.

Several tests are small forms of public bugs; what each would catch is said there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from exact_library import ExactLibrary
from tiny_models import rope_parameters, tiny_gemma3, tiny_llama, tiny_qwen3, tiny_qwen35
from torch import Tensor
from transformers import Qwen2_5_VLTextConfig
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLRotaryEmbedding
from transformers.models.qwen3_5.modeling_qwen3_5 import apply_rotary_pos_emb as apply_partial

from octopus.attention.rope import Rope
from octopus.models.rotary import Rotary, rotaries_of

Q, K, HEAD = 3, 2, 32
FAR = (0, 1, 257, 1000, 15_962, 199_999)
TYPES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "linear": {"factor": 4.0},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256,
    },
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 512},
    "yarn-own-factor": {"factor": 4.0, "original_max_position_embeddings": 512, "attention_factor": 0.7},
    "yarn-mscale": {
        "factor": 40.0,
        "original_max_position_embeddings": 128,
        "mscale": 1.0,
        "mscale_all_dim": 0.7,
        "beta_fast": 16.0,
        "truncate": False,
    },
}
PARTIAL = {"partial_rotary_factor": 0.25, "mrope_section": [2, 1, 1]}


def parameters(kind: str, **more: Any) -> dict[str, Any]:
    return rope_parameters(rope_type=kind.split("-")[0], **TYPES[kind], **more)


def whole(build: Callable, kind: str) -> Any:
    return build(rope_parameters=parameters(kind))


def partly(build: Callable, kind: str) -> Any:
    return build(rope_parameters=parameters(kind, **PARTIAL))


def mixed(build: Callable, kind: str) -> Any:
    """The type in the full layers, another base and the default type in the sliding ones."""
    sets = {"full_attention": parameters(kind), "sliding_attention": rope_parameters(rope_theta=30.0)}
    return build(rope_parameters=sets)


MODELS = pytest.mark.parametrize(
    ("make", "build"),
    [(whole, tiny_llama), (whole, tiny_qwen3), (partly, tiny_qwen35), (mixed, tiny_gemma3)],
    ids=["llama", "qwen3", "qwen3.5", "gemma3"],
)
KINDS = pytest.mark.parametrize("kind", TYPES)


def queries_and_keys() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    q_HTD, k_GTD = (
        torch.randn(heads, len(FAR), HEAD, dtype=torch.float64, generator=generator) for heads in (Q, K)
    )
    return q_HTD, k_GTD


def scores(q_HTD: Tensor, k_GTD: Tensor) -> Tensor:
    return torch.einsum("htd,gsd->hgts", q_HTD, k_GTD)


def of_the_library(model: Any, layer: int, q_HTD: Tensor, k_GTD: Tensor) -> tuple[Tensor, Tensor]:
    """The library's rotation of both sides, attention factors included, in float64."""
    module, positions_1T = model.model.rotary_emb, torch.tensor([FAR])
    kinds = getattr(model.config, "layer_types", None)
    by_kind = hasattr(module, "layer_types")
    with ExactLibrary():
        cos, sin = module(q_HTD, positions_1T, *([kinds[layer]] if by_kind else []))
        apply = apply_partial if cos.shape[-1] < HEAD else apply_rotary_pos_emb
        q_1HTD, k_1GTD = apply(q_HTD[None], k_GTD[None], cos, sin)
    return q_1HTD[0], k_1GTD[0]


@KINDS
@MODELS
def test_scores_are_the_librarys(make: Callable, build: Callable, kind: str) -> None:
    """Catches: an attention factor that is dropped, applied once or four times, or to dimensions that do not turn.

    Also one layer type's base or factor used for another, and frequencies made from the head dimension under a partial
    rotary factor. Rotated queries and keys are compared by their scores, not tables of cosines.
    """
    model = make(build, kind)
    q_HTD, k_GTD = queries_and_keys()
    for layer, rotary in enumerate(rotaries_of(model)):
        turned = (rotary.rope.rotate(x, torch.tensor(FAR)) for x in (rotary.weighted(q_HTD), k_GTD))
        expected = scores(*of_the_library(model, layer, q_HTD, k_GTD))
        torch.testing.assert_close(scores(*turned), expected, rtol=0, atol=1e-10)


@KINDS
@MODELS
def test_rotations_compose_at_any_distance(make: Callable, build: Callable, kind: str) -> None:
    """Catches: a factor inside the rotation, rounded angles, a shift that turns other dimensions than a position does.

    Rotating to p and then by s is rotating to p + s, and a query moved back by s scores like its keys moved ahead, to
    1e-12 up to position 200,000, for shifts of either sign.
    """
    q_HTD, k_GTD = queries_and_keys()
    positions_T = torch.tensor(FAR)
    for rotary in set(rotaries_of(make(build, kind))):
        rope, q_HTD = rotary.rope, rotary.weighted(q_HTD)
        for shift in (1, 4_096, -1, -777, -199_999):
            shifted = rope.rotate(rope.rotate(k_GTD, positions_T), torch.tensor(shift).expand(len(FAR)))
            torch.testing.assert_close(shifted, rope.rotate(k_GTD, positions_T + shift), rtol=0, atol=1e-12)
            moved_keys = scores(rope.rotate(q_HTD, positions_T), rope.rotate(k_GTD, positions_T + shift))
            moved_queries = scores(rope.rotate(q_HTD, positions_T - shift), rope.rotate(k_GTD, positions_T))
            torch.testing.assert_close(moved_queries, moved_keys, rtol=1e-12, atol=1e-11)


def test_a_factor_of_one_layer_type_stays_there() -> None:
    """Catches: YaRN's factor of the full layers reaching the sliding ones, or the other way round."""
    rotaries = rotaries_of(mixed(tiny_gemma3, "yarn-own-factor"))
    assert [rotary.attention_factor for rotary in rotaries] == [1.0, 0.7, 1.0, 0.7]
    assert rotaries[0] is rotaries[2]
    sliding, full = (float(rotary.rope.inverse_frequencies_R[-1]) for rotary in rotaries[:2])
    assert sliding == pytest.approx(30.0 ** (-15 / 16), rel=1e-6)
    assert full < 0.5 * 100.0 ** (-15 / 16)


def test_a_shift_leaves_what_does_not_turn() -> None:
    """Catches: a partial rotary factor that is dropped where sections of multimodal positions are declared."""
    (rotary, *_) = rotaries_of(partly(tiny_qwen35, "yarn"))
    q_HTD, _ = queries_and_keys()
    assert rotary.rope.rotary_dim == 8
    turned_HTD = rotary.rope.rotate(rotary.weighted(q_HTD), torch.tensor(FAR) + 5)
    assert torch.equal(turned_HTD[..., 8:], q_HTD[..., 8:])
    assert (turned_HTD[..., :8] != q_HTD[..., :8]).all()


def test_the_factor_is_rounded_once_in_bfloat16() -> None:
    """Catches: a weight that is itself rounded to bfloat16 before it multiplies the query."""
    (rotary, *_) = rotaries_of(whole(tiny_qwen3, "yarn"))
    q_HTD = queries_and_keys()[0].bfloat16()
    exact_HTD = q_HTD.double() * rotary.attention_factor**2
    assert rotary.attention_factor == pytest.approx(1.1386, abs=1e-4)
    assert torch.equal(rotary.weighted(q_HTD), exact_HTD.bfloat16())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_frequencies_do_not_hang_on_the_dtype_of_the_model(dtype: torch.dtype) -> None:
    """Catches: frequencies taken from buffers that `model.to` has rounded, so that far positions turn wrongly."""
    for build in (tiny_llama, tiny_qwen3, tiny_qwen35, tiny_gemma3):
        for rounded, exact in zip(rotaries_of(build(dtype=dtype)), rotaries_of(build()), strict=True):
            assert torch.equal(rounded.rope.inverse_frequencies_R, exact.rope.inverse_frequencies_R)


def streams(*offsets: int) -> Tensor:
    """Positions `[3, 1, T]` of time, height and width."""
    return torch.stack([torch.tensor([FAR]) + offset for offset in offsets])


def test_interleaved_multimodal_positions_of_a_text_are_plain_ones() -> None:
    """Catches: sections cut or interleaved wrongly; of an image the streams differ and so does the rotation."""
    model = partly(tiny_qwen35, "default")
    (rotary, *_), (q_HTD, k_GTD) = rotaries_of(model), queries_and_keys()
    plain = rotary.rope.rotate(q_HTD, torch.tensor(FAR))

    def turned(positions_31T: Tensor) -> Tensor:
        with ExactLibrary():
            cos, sin = model.model.rotary_emb(q_HTD, positions_31T)
            return apply_partial(q_HTD[None], k_GTD[None], cos, sin)[0][0]

    torch.testing.assert_close(turned(streams(0, 0, 0)), plain, rtol=0, atol=1e-12)
    assert (turned(streams(0, 3, 7)) - plain).abs().max() > 0.1


def test_sectioned_multimodal_positions_of_a_text_are_plain_ones() -> None:
    """Catches: the same for the older layout, in which each stream has a run of neighbouring frequencies."""
    config = Qwen2_5_VLTextConfig(
        hidden_size=4 * HEAD, num_attention_heads=4, rope_parameters=rope_parameters(mrope_section=[8, 4, 4])
    )
    module = Qwen2_5_VLRotaryEmbedding(config)
    rope = Rope(inverse_frequencies_R=module.inv_freq.double())
    q_HTD, k_GTD = queries_and_keys()
    plain = rope.rotate(q_HTD, torch.tensor(FAR))

    def turned(positions_31T: Tensor) -> Tensor:
        with ExactLibrary():
            cos, sin = module(q_HTD, positions_31T)
            return apply_rotary_pos_emb(q_HTD[None], k_GTD[None], cos, sin)[0][0]

    torch.testing.assert_close(turned(streams(0, 0, 0)), plain, rtol=0, atol=1e-12)
    assert (turned(streams(0, 3, 7)) - plain).abs().max() > 0.1


def test_a_factor_of_one_costs_nothing() -> None:
    """Catches: a copy, or a rounding, of every query of a model that has no attention factor."""
    rope = Rope(inverse_frequencies_R=torch.ones(2, dtype=torch.float64))
    q_HTD = torch.randn(1, 2, 4)
    assert Rotary(rope=rope, attention_factor=1.0).weighted(q_HTD) is q_HTD
