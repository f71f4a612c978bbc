"""Bugs of positions, of rotary settings, and of keys that are cached after rotation."""

import numpy as np

from corpus.case import Bug

TREE = {"parents": [-1, 0, 0]}
KEYS = np.random.default_rng(0).standard_normal((12, 2, 8))
AT = np.arange(12)
CONFIG = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "hidden_size": 32}
HALF = {**CONFIG, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}}
WHOLE = {**CONFIG, "rope_theta": 10000.0}
CACHE = {"k_pre": KEYS, "position_ids": AT}


def rotated(
    keys: np.ndarray, positions: np.ndarray, *, dim: int = 8, theta: float = 1e4, pairs: int | None = None,
    first: int = 0, neighbours: bool = False,
) -> np.ndarray:
    """Keys turned at their positions, dimension by dimension, as Hugging Face does it unless told otherwise.

    `pairs` is the number that frequencies are computed from; `first` the first dimension that turns.
    """
    half, out = dim // 2, keys.copy()
    for pair in range(half):
        angle = positions * theta ** (-pair / (half if pairs is None else pairs))
        a, b = (2 * pair, 2 * pair + 1) if neighbours else (pair, pair + half)
        x, y = keys[..., first + a], keys[..., first + b]
        out[..., first + a] = x * np.cos(angle)[:, None] - y * np.sin(angle)[:, None]
        out[..., first + b] = y * np.cos(angle)[:, None] + x * np.sin(angle)[:, None]
    return out


PARTIAL = rotated(KEYS, AT, dim=4)
FULL = rotated(KEYS, AT)


def often_rotated() -> np.ndarray:
    """A key moved a hundred times by one, each time stored in float16, then read back at position 0."""
    keys = KEYS[:4].astype(np.float16)
    for _ in range(100):
        keys = rotated(keys.astype(np.float64), np.full(4, 1.0)).astype(np.float16)
    return rotated(keys.astype(np.float64), np.arange(4.0) - 100).astype(np.float16)


BUGS = (
    Bug(
        name="the row number as position",
        reports=("mlxcel #1214",),
        code="OCT201",
        shared=TREE,
        wrong={"position_ids": [0, 1, 2]},
        right={"position_ids": [0, 1, 1]},
    ),
    Bug(
        name="siblings at different positions",
        reports=("TensorRT-LLM #12962", "TensorRT-LLM #13081"),
        code="OCT203",
        shared=TREE,
        wrong={"position_ids": [0, 1, 2]},
        right={"position_ids": [0, 1, 1]},
    ),
    Bug(
        name="documents isolated, positions not reset",
        reports=("LlamaFactory #7318",),
        code="OCT201",
        shared={"document_ids": [0, 0, 0, 1, 1]},
        wrong={"position_ids": [0, 1, 2, 3, 4]},
        right={"position_ids": [0, 1, 2, 0, 1]},
    ),
    Bug(
        name="positions not padded with the tokens",
        reports=("LlamaFactory #10736", "LlamaFactory #10737"),
        code="OCT001",
        shared={"attention_mask": [[1, 1, 1, 1, 1, 0, 0, 0]]},
        wrong={"position_ids": [[0, 1, 2, 3, 4]]},
        right={"position_ids": [[0, 1, 2, 3, 4, 1, 1, 1]]},
    ),
    Bug(
        name="every decoded token at position 0",
        reports=("moeut #6",),
        code="OCT202",
        shared={"parents": np.arange(-1, 5)},
        wrong={"position_ids": [0, 1, 2, 0, 0, 0]},
        right={"position_ids": np.arange(6)},
    ),
    Bug(
        name="draft positions raised before the forward",
        reports=("sglang #25015",),
        code="OCT202",
        shared={"parents": np.arange(-1, 5)},
        wrong={"position_ids": [0, 1, 2, 4, 5, 6]},
        right={"position_ids": np.arange(6)},
    ),
    Bug(
        name="the rope delta is lost after prefill",
        reports=("mlx-vlm #1527", "mlx-vlm #1619", "mlx-vlm #1983", "vllm #10403"),
        code="OCT204",
        shared={"parents": np.arange(-1, 5)},
        wrong={"position_ids": [0, 1, 2, 1, 2, 3]},
        right={"position_ids": np.arange(6)},
    ),
    Bug(
        name="positions in bfloat16",
        reports=("transformers #29285", "gpt-neox #1003", "transformers #25681", "candle #3520",
                 "modalities #462", "sglang-jax #1473"),
        code="OCT207",
        wrong={"position_ids": np.float32([254, 255, 256, 257])},
        right={"position_ids": np.array([254, 255, 256, 257])},
        stored={"position_ids": "bfloat16"},
    ),
    Bug(
        name="inverse frequencies in bfloat16",
        reports=("transformers #29496", "gpt-neox #1003"),
        code="OCT207",
        shared={"parents": np.arange(-1, 3), "position_ids": np.arange(4)},
        wrong={"inv_freq": np.float32([1.0, 0.1])},
        right={"inv_freq": np.float64([1.0, 0.1])},
        stored={"inv_freq": "bfloat16"},
    ),
    Bug(
        name="positions beyond what the model was made for",
        reports=("transformers #25104", "vllm #5093"),
        code="OCT207",
        shared={"position_ids": np.arange(9)},
        wrong={"config": {**CONFIG, "max_position_embeddings": 8}},
        right={"config": {**CONFIG, "max_position_embeddings": 9}},
    ),
    Bug(
        name="keys rotated one position too far",
        reports=("moeut #6",),
        code="OCT205",
        shared={**CACHE, "config": WHOLE},
        wrong={"k_rot": rotated(KEYS, AT + 1)},
        right={"k_rot": FULL},
    ),
    Bug(
        name="keys cached before rotation",
        reports=("gpt-neox #363",),
        code="OCT205",
        shared={**CACHE, "config": WHOLE},
        wrong={"k_rot": KEYS},
        right={"k_rot": FULL},
    ),
    Bug(
        name="keys rotated in place again and again",
        reports=("llama.cpp #4097",),
        code="OCT205",
        shared={"k_pre": KEYS[:4], "position_ids": AT[:4], "config": WHOLE},
        wrong={"k_rot": often_rotated()},
        right={"k_rot": rotated(KEYS[:4], AT[:4]).astype(np.float16)},
    ),
    Bug(
        name="a shift over the whole head instead of its rotary part",
        reports=("llama.cpp #4889", "llama.cpp #4156", "maxtext #4616", "maxtext #4615", "vllm #43770"),
        code="OCT206",
        shared={**CACHE, "config": HALF},
        wrong={"k_rot": FULL},
        right={"k_rot": PARTIAL},
    ),
    Bug(
        name="the partial factor applied twice",
        reports=("vllm #30384",),
        code="OCT206",
        shared={**CACHE, "config": HALF},
        wrong={"k_rot": rotated(KEYS, AT, dim=2)},
        right={"k_rot": PARTIAL},
    ),
    Bug(
        name="frequencies from the head dimension",
        reports=("pie #602", "pie #603", "cascadia #74"),
        code="OCT205",
        shared={**CACHE, "config": HALF},
        wrong={"k_rot": rotated(KEYS, AT, dim=4, pairs=4)},
        right={"k_rot": PARTIAL},
    ),
    Bug(
        name="the last dimensions rotated instead of the first",
        reports=("Hogwild! inference, rotate_by_offset",),
        code="OCT205",
        shared={**CACHE, "config": HALF},
        wrong={"k_rot": rotated(KEYS, AT, dim=4, first=4)},
        right={"k_rot": PARTIAL},
    ),
    Bug(
        name="neighbours paired instead of halves",
        reports=(),
        code="OCT206",
        shared={**CACHE, "config": WHOLE},
        wrong={"k_rot": rotated(KEYS, AT, neighbours=True)},
        right={"k_rot": FULL},
    ),
    Bug(
        name="one base for layers that have two",
        reports=("LMCache #4666", "LMCache #242", "vllm #41185"),
        code="OCT206",
        shared={**CACHE, "config": {**CONFIG, "rope_theta": 1000000.0}, "layer": 3},
        wrong={"k_rot": FULL},
        right={"k_rot": rotated(KEYS, AT, theta=1e6)},
    ),
    Bug(
        name="resumes at the number of kept tokens",
        reports=("VeloxQuant-MLX #171", "VeloxQuant-MLX #389", "flash-linear-attention #766"),
        code="OCT208",
        shared={"kept_positions": [0, 1, 6, 7]},
        wrong={"next_position": 4},
        right={"next_position": 8},
    ),
    Bug(
        name="multi-axis positions padded on the other side",
        reports=("verl #3653", "verl #4243", "LlamaFactory #10783"),
        code="OCT209",
        shared={"attention_mask": [[0, 0, 1, 1, 1]]},
        wrong={"position_ids": np.tile([0, 1, 2, 0, 0], (3, 1, 1))},
        right={"position_ids": np.tile([0, 0, 0, 1, 2], (3, 1, 1))},
    ),
)  # fmt: skip
