"""Bugs of packed rows: documents that see each other, boundaries, labels and gradients across them."""

import numpy as np

from corpus.case import Bug, causal, changed, documents
from octopus.verify.inputs import Hints

TWO = {"document_ids": [0, 0, 0, 1, 1, 1]}
CUTS = {"cu_seqlens": [0, 3, 6]}
GRADIENT = np.array([[0.1], [0.2], [0.3], [0.0], [0.0], [0.0]])
BOTH = {"dL0_dE": GRADIENT, "loss0_rows": [0, 1, 2], "loss1_rows": [3, 4, 5]}
SAMPLED = np.float32([[-1.0, -2.0]])
SECOND = np.array([[0.0], [0.0], [0.0], [0.3], [0.2], [0.1]])

BUGS = (
    Bug(
        name="a mask of ones switches packed detection off",
        reports=("transformers #46634", "axolotl #3796", "Megatron-LM #2357"),
        code="OCT101",
        shared=TWO,
        wrong={"mask": causal(6)},
        right={"mask": documents(3, 3)},
    ),
    Bug(
        name="positions start again and nothing else",
        reports=("nanoVLM #204", "WrinkleFree #53", "trl #3526"),
        code="OCT101",
        shared={**CUTS, "position_ids": [0, 1, 2, 0, 1, 2]},
        wrong={"mask": causal(6)},
        right={"mask": documents(3, 3)},
    ),
    Bug(
        name="the mask is not read at all",
        reports=("maxtext #878",),
        code="OCT101",
        shared=CUTS,
        wrong={"cudnn_endpoints": [[[6, 6, 6, 6, 6, 6]]]},
        right={"cudnn_endpoints": [[[0, 0, 0, 0, 0, 0], [0, 0, 0, 3, 3, 3], [1, 2, 3, 4, 5, 6]]]},
    ),
    Bug(
        name="a segment of length zero",
        reports=("Megatron-LM #5298",),
        code="OCT113",
        shared={"position_ids": [0, 1, 2, 0, 1]},
        wrong={"cu_seqlens": [0, 3, 3, 5]},
        right={"cu_seqlens": [0, 3, 5]},
    ),
    Bug(
        name="three axes of positions counted as three sequences",
        reports=("transformers #44643", "Qwen3.8 #104"),
        code="OCT113",
        shared={"position_ids": np.tile(np.arange(4), (3, 1, 1))},
        wrong={"cu_seqlens": [0, 4, 8, 12]},
        right={"cu_seqlens": [0, 4]},
    ),
    Bug(
        name="lengths overwritten by those of a mask of ones",
        reports=("flash-linear-attention #838", "flash-linear-attention #1086"),
        code="OCT113",
        shared={"cu_seqlens_q": [0, 3, 6]},
        wrong={"cu_seqlens_k": [0, 6]},
        right={"cu_seqlens_k": [0, 3, 6]},
    ),
    Bug(
        name="padding at the end taken for a document",
        reports=(),
        code="OCT113",
        shared={"position_ids": [0, 1, 2, 0, 1, 0, 0, 0]},
        wrong={"cu_seqlens": [0, 3, 5]},
        right={"cu_seqlens": [0, 3, 5, 6, 7, 8]},
    ),
    Bug(
        name="labels rolled across the boundary",
        reports=("verl #6475",),
        code="OCT404",
        shared=CUTS,
        wrong={"rolled_labels": [[1, 2, 3, 4, 5, -100]]},
        right={"rolled_labels": [[1, 2, -100, 4, 5, -100]]},
    ),
    Bug(
        name="the first token of a document is trained",
        reports=(),
        code="OCT404",
        shared=CUTS,
        wrong={"labels": [[-100, 2, 3, 4, 5, 6]]},
        right={"labels": [[-100, 2, 3, -100, 5, 6]]},
    ),
    Bug(
        name="a branch scored from its sibling's last token",
        reports=(),
        code="OCT404",
        shared={"parents": [-1, 0, 1, 1, 3]},
        wrong={"loss_tokens": [2, 3, 4], "loss_predictors": [1, 2, 3]},
        right={"loss_tokens": [2, 3, 4], "loss_predictors": [1, 1, 3]},
    ),
    Bug(
        name="documents contaminate each other through a convolution",
        reports=("Automodel #2131", "slime #1686", "torchtitan #3892", "ms-swift #9618",
                 "transformers #46093", "flash-linear-attention #1184"),
        code="OCT401",
        shared={**CUTS, **BOTH},
        wrong={"dL1_dE": changed(SECOND, (2,), value=1e-6)},
        right={"dL1_dE": SECOND},
    ),
    Bug(
        name="a key shift that crosses a document start",
        reports=("marin #5795",),
        code="OCT401",
        shared={**CUTS, **BOTH, "mask": documents(3, 3)},
        wrong={"dL1_dE": changed(SECOND, (2,), value=0.4)},
        right={"dL1_dE": SECOND},
    ),
    Bug(
        name="the shared prefix is detached",
        reports=(),
        code="OCT402",
        shared={"parents": [-1, 0, 1, 1], "dL0_dE": [[0.1], [0.2], [0.3], [0.0]], "loss0_rows": [2], "loss1_rows": [3]},
        wrong={"dL1_dE": [[0.0], [0.0], [0.0], [0.3]]},
        right={"dL1_dE": [[0.1], [0.1], [0.0], [0.3]]},
    ),
    Bug(
        name="old and new log-probabilities from different backends",
        reports=("verl #6689", "verl #6401"),
        code="OCT408",
        shared={"input_ids": [[5, 6, 7, 8]], "response_mask": [[1, 1]], "rollout_log_probs": SAMPLED},
        wrong={"old_log_probs": np.float32([[-1.0, -1.9]])},
        right={"old_log_probs": SAMPLED},
    ),
    Bug(
        name="a mean over each document instead of all tokens",
        reports=(),
        code="OCT405",
        shared={**CUTS, "loss_tokens": [1, 2, 4], "loss_predictors": [0, 1, 3], "declared_denominator": 3.0},
        wrong={"denominator": 2.0},
        right={"denominator": 3.0},
    ),
    Bug(
        name="document numbers in the mask that nobody reads",
        reports=(),
        code="OCT101",
        shared={"attention_mask": [[1, 1, 1, 2, 2, 2]]},
        wrong={"mask": causal(6)},
        right={"mask": documents(3, 3)},
        hints=Hints(convention="keep"),
    ),
)  # fmt: skip
