"""TRL 1.16.0's tree rows: who sees whom, positions and targets in its own dump, and isolation in a model that runs it.

Catches an auditor that knows only our own trees: here a trie forks one token before its samples differ, keys are
gathered path by path, and one hidden state serves several samples.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from trl_rows import packing_module

from octopus.verify.audits import STATIC, run
from octopus.verify.facets import LossTerms
from octopus.verify.findings import Report
from octopus.verify.functional.audits import isolation_stages
from octopus.verify.functional.stack import Stack
from octopus.verify.functional.trial import Trial
from octopus.verify.selftest.models import tiny_llama
from octopus.verify.subject import DenseMask, Descent, Positions, Subject
from octopus.verify.tolerance import relative_l2

SAMPLES = ([3, 1, 4, 1, 5, 9, 2], [3, 1, 4, 1, 5, 8, 8, 7], [3, 1, 4, 6, 2], [3, 1, 4, 1, 5, 9, 2, 6])
PROMPT = 2


@pytest.fixture(scope="module")
def packing():
    return packing_module()


def rows_of(packing) -> dict[str, torch.Tensor]:
    row = packing.TreeRow()
    for tokens in SAMPLES:
        mask = torch.tensor([0] * PROMPT + [1] * (len(tokens) - PROMPT))
        row.add(
            {
                "input_ids": torch.tensor(tokens),
                "completion_mask": mask,
                "old_log_probs": torch.zeros(len(tokens)),
                "advantage": 1.0,
                "group_id": 0,
            }
        )
    return row.pack()


def trie() -> tuple[list[int], list[int], list[list[int]]]:
    """Tokens and parent rows by TRL's documented rule, from the samples alone, and the row of each sample's tokens.

    A node is a token and the next one; rows are in depth-first order, children in the order they came.
    """
    children: dict[tuple, list[tuple]] = {}
    for tokens in SAMPLES:
        for i in range(len(tokens)):
            path = tuple(
                zip(tokens[: i + 1], [*tokens[1 : i + 1], *(tokens[i + 1 : i + 2] or [None])], strict=True)
            )
            if path not in children.setdefault(path[:-1], []):
                children[path[:-1]].append(path)
    order, stack = [], list(reversed(children[()]))
    while stack:
        order.append(stack.pop())
        stack += reversed(children.get(order[-1], []))
    row_of = {path: row for row, path in enumerate(order)}
    rows = [
        [
            row_of[tuple(zip(s[: i + 1], [*s[1 : i + 1], *(s[i + 1 : i + 2] or [None])], strict=True))]
            for i in range(len(s))
        ]
        for s in SAMPLES
    ]
    return [path[-1][0] for path in order], [row_of.get(path[:-1], -1) for path in order], rows


def subject_of(packed: dict[str, torch.Tensor]) -> Subject:
    """Its own dump: the mask that its gathered keys amount to, its positions and its loss terms."""
    tokens, parents, rows = trie()
    assert packed["input_ids"].tolist() == tokens
    cu_q, cu_k, index = (
        packed[f"tree_{name}"].tolist() for name in ("cu_seqlens_q", "cu_seqlens_k", "kv_index")
    )
    seen = np.zeros((len(tokens), len(tokens)), dtype=bool)
    for segment in range(len(cu_q) - 1):
        keys = index[cu_k[segment] : cu_k[segment + 1]]
        for row in range(cu_q[segment], cu_q[segment + 1]):
            seen[row, keys[: len(keys) - (cu_q[segment + 1] - row) + 1]] = True
    trained = [(sample, i) for sample, nodes in enumerate(rows) for i in range(PROMPT, len(nodes))]
    return Subject(
        name="trl",
        length=len(tokens),
        descent=Descent(parents_T=np.array(parents)),
        mask=DenseMask(seen_HQK=seen[None], convention="gathered keys"),
        positions=Positions(ids_AT=packed["position_ids"].numpy()[None], dtype="int64"),
        loss=LossTerms(
            token_rows_N=np.array([rows[sample][i] for sample, i in trained]),
            predictor_rows_N=packed["token_index"].numpy(),
            weights_N=np.ones(len(trained)),
        ),
    )


def codes(report: Report) -> set[str]:
    return {finding.code for finding in report.findings}


def test_its_dump_is_clean_but_for_tokens_that_count_for_several_samples(packing) -> None:
    subject = subject_of(rows_of(packing))
    assert codes(run(STATIC, [subject], ignore=["OCT404"])) == set()
    once = replace(subject, declared=replace(subject.declared, loss_weights=True))
    assert codes(run(STATIC, [once])) == set()


def test_planted_faults_in_its_dump_are_found(packing) -> None:
    packed = rows_of(packing)
    swapped = packed | {"tree_kv_index": packed["tree_kv_index"].flip(0)}
    assert codes(run(STATIC, [subject_of(swapped)])) & {"OCT101", "OCT103"}
    by_row = packed | {"position_ids": torch.arange(len(packed["input_ids"]))}
    assert "OCT201" in codes(run(STATIC, [subject_of(by_row)]))
    late = packed | {"token_index": packed["token_index"] + 1}
    assert "OCT404" in codes(run(STATIC, [subject_of(late)]))


def trial_of(packing, packed: dict[str, torch.Tensor], dtype: torch.dtype) -> Trial:
    """A Llama that runs the row through TRL's own attention function."""
    packing.register_tree_attention()
    model = tiny_llama(dtype)
    model.config._attn_implementation = packing.TREE_ATTENTION
    longest = packed["tree_max_seqlens"].tolist()
    settings = {name: packed[name] for name in ("tree_kv_index", "tree_cu_seqlens_q", "tree_cu_seqlens_k")}

    def run_row(tokens_T):
        return model(
            input_ids=tokens_T[None],
            position_ids=packed["position_ids"][None],
            use_cache=False,
            tree_max_seqlen_q=longest[0],
            tree_max_seqlen_k=longest[1],
            **settings,
        ).logits[0]

    _, parents, _ = trie()
    subject = Subject(name="trl", length=len(parents), descent=Descent(parents_T=np.array(parents)))
    stack = Stack(name="trl", model=model, run=run_row, tokens_T=packed["input_ids"])
    return Trial(stack=stack, subject=subject)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_a_model_that_runs_it_is_isolated(packing, dtype: torch.dtype) -> None:
    for stage in isolation_stages(trial_of(packing, rows_of(packing), dtype)):
        assert stage.report().findings == (), stage.name


def test_a_leak_in_the_gathered_keys_is_found_in_the_running_model(packing) -> None:
    packed = rows_of(packing)
    index, last = packed["tree_kv_index"].clone(), int(packed["tree_cu_seqlens_k"][-1])
    index[last - 2] = 7  # a row of another sample in place of the last path's own
    trial = trial_of(packing, packed | {"tree_kv_index": index}, torch.bfloat16)
    found = {finding.code for stage in isolation_stages(trial) for finding in stage.report().findings}
    assert {"OCT101", "OCT102", "OCT505"} <= found


def test_its_row_equals_its_samples_alone(packing) -> None:
    packed, model = rows_of(packing), tiny_llama(torch.float64)
    trial = trial_of(packing, packed, torch.float64)
    with torch.no_grad():
        logits_TV = trial.stack.run(trial.stack.tokens_T)
        for sample, rows in zip(SAMPLES, trie()[2], strict=True):
            alone = model(input_ids=torch.tensor([sample]), use_cache=False).logits[0]
            assert relative_l2(logits_TV[rows], alone) < 1e-6  # the library's norms are float32 even here
