"""Bugs of grouped-query attention: which head is whose."""

from corpus.case import Bug

SIZES = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 8}

BUGS = (
    Bug(
        name="heads tiled instead of repeated",
        reports=("onnx #7274", "axlearn #842", "jax-js #180"),
        code="OCT302",
        shared=SIZES,
        wrong={"used_heads": [0, 1, 0, 1]},
        right={"used_heads": [0, 0, 1, 1]},
    ),
    Bug(
        name="all query heads on the first head",
        reports=("ONNXim #34",),
        code="OCT302",
        shared={"num_heads": 8, "num_kv_heads": 8, "head_dim": 8},
        wrong={"used_heads": [0, 0, 0, 0, 0, 0, 0, 0]},
        right={"used_heads": [0, 1, 2, 3, 4, 5, 6, 7]},
    ),
    Bug(
        name="a ratio that does not divide",
        reports=("ONNXim #34",),
        code="OCT301",
        shared={},
        wrong={"config": {"num_attention_heads": 28, "num_key_value_heads": 8, "head_dim": 128}},
        right={"config": {"num_attention_heads": 28, "num_key_value_heads": 4, "head_dim": 128}},
    ),
    Bug(
        name="the sequence repeated instead of the heads",
        reports=("prime-rl #2681",),
        code="OCT303",
        shared={**SIZES, "parents": [-1, 0, 1]},
        wrong={"expanded_shape": [1, 2, 6, 8]},
        right={"expanded_shape": [1, 4, 3, 8]},
    ),
    Bug(
        name="the backward splits the heads differently",
        reports=("native-sparse-attention-triton #27", "triton #4469"),
        code="OCT304",
        shared={"num_heads": 6, "num_kv_heads": 2, "head_dim": 8},
        wrong={"head_gradient": [[1.0, 0], [0, 1.0], [1.0, 0], [0, 1.0], [1.0, 0], [0, 1.0]]},
        right={"head_gradient": [[1.0, 0], [1.0, 0], [1.0, 0], [0, 1.0], [0, 1.0], [0, 1.0]]},
    ),
    Bug(
        name="ranks that hold another rank's heads",
        reports=(),
        code="OCT305",
        shared={**SIZES, "tensor_parallel": 4},
        wrong={"rank_heads": [[0], [1], [0], [1]]},
        right={"rank_heads": [[0], [0], [1], [1]]},
    ),
)
