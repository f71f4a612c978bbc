"""Descriptions by other people: each format means the pairs that its own definition says, told here once more."""

import json
from pathlib import Path

import numpy as np
import pytest

from octopus.verify.inputs import Hints, Unreadable
from octopus.verify.readers import FORMATS, read
from octopus.verify.readers.formats.columns import above, below
from octopus.verify.subject import BICAUSAL, CAUSAL, FULL, INVERSE, DenseMask, Ranges, Subject

RNG = np.random.default_rng(0)
NONE = Hints()


def save(tmp_path: Path, **arrays: object) -> list[str]:
    np.savez(tmp_path / "a.npz", **arrays)
    return [str(tmp_path / "a.npz")]


def subject(tmp_path: Path, hints: Hints = NONE, **arrays: object) -> Subject:
    (found,) = read(save(tmp_path, **arrays), hints=hints)
    return found


def refusal(tmp_path: Path, hints: Hints = NONE, **arrays: object) -> str:
    with pytest.raises(Unreadable) as refused:
        read(save(tmp_path, **arrays), hints=hints)
    return str(refused.value)


def document(tmp_path: Path, value: object) -> list[str]:
    (tmp_path / "a.json").write_text(json.dumps(value))
    return [str(tmp_path / "a.json")]


def dense(rows: np.ndarray, length: int) -> np.ndarray:
    """How often each pair is listed, from the definition of the kinds, pair by pair."""
    times = np.zeros((length, length), dtype=int)
    for q0, q1, k0, k1, kind in rows.tolist():
        for i in range(q0, q1):
            for j in range(k0, k1):
                from_end, from_start = (q1 - 1 - i) <= (k1 - 1 - j), (i - q0) <= (j - k0)
                times[i, j] += {FULL: True, CAUSAL: from_end, INVERSE: from_start, BICAUSAL: from_end and from_start}[
                    kind
                ]
    return times


def seen(found: Subject) -> np.ndarray:
    """The pairs of a subject, each at most once."""
    if isinstance(found.mask, DenseMask):
        return found.mask.seen_HQK[0]
    assert isinstance(found.mask, Ranges)
    times = dense(found.mask.slices_S5, found.length)
    assert times.max(initial=0) <= 1
    return times == 1


def test_the_two_regions_of_a_run_of_columns_are_what_they_say() -> None:
    """Catches an off-by-one at the diagonal, at either end of the run or of the rows."""
    length = 6
    rows, keys = np.mgrid[:length, :length]
    for a in range(length):
        for b in range(a + 1, length + 1):
            for r0 in range(length + 1):
                for r1 in range(length + 1):
                    inside = (keys >= a) & (keys < b) & (rows >= r0) & (rows < r1)
                    for region, wanted in ((below, inside & (rows >= keys)), (above, inside & (rows < keys))):
                        got = dense(np.array(region(a, b, r0, r1)).reshape(-1, 5), length)
                        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(("width", "causal"), [(1, True), (2, True), (2, False), (4, False)])
def test_flash_mask(tmp_path: Path, width: int, causal: bool) -> None:
    """Catches hidden taken for visible, a triangle taken for the other, and ranges that overlap."""
    length = 7
    rows, keys = np.mgrid[:length, :length]
    for _ in range(40):
        indices = np.sort(RNG.integers(0, length + 1, (1, 1, length, width)), axis=3)
        if width == 4:
            indices = indices[..., [2, 3, 0, 1]]
        columns = [indices[0, 0, :, n][None] for n in range(width)]
        if causal:
            hidden = (rows < keys) | ((rows >= columns[0]) & (rows < (columns[1] if width == 2 else length)))
        elif width == 2:
            hidden = ((rows >= keys) & (rows >= columns[0])) | ((rows < keys) & (rows < columns[1]))
        else:
            hidden = ((rows >= keys) & (rows >= columns[0]) & (rows < columns[1])) | (
                (rows < keys) & (rows >= columns[2]) & (rows < columns[3])
            )
        found = subject(tmp_path, startend_row_indices=indices, causal=np.array(causal))
        np.testing.assert_array_equal(seen(found), ~hidden)


def test_cudnn_endpoints_and_pairs(tmp_path: Path) -> None:
    """Catches growing intervals that are cut at the wrong row, and the first interval forgotten."""
    length = 9
    for n in range(60):
        pairs = np.zeros((length, 2, 2), dtype=np.int64)
        for row in range(length):
            cuts = np.sort(RNG.choice(length + 1, 4, replace=False))
            pairs[row] = cuts.reshape(2, 2) if n % 2 else [[0, min(row + 1, 4)], [4, max(4, row + 1)]]
        wanted = np.zeros((length, length), dtype=bool)
        for row, intervals in enumerate(pairs):
            for start, stop in intervals:
                wanted[row, start:stop] = True
        np.testing.assert_array_equal(seen(subject(tmp_path, interval_endpoints=pairs)), wanted)
        pairs[:, 0, 0] = 0
        wanted = np.zeros((length, length), dtype=bool)
        for row, intervals in enumerate(pairs):
            for start, stop in intervals:
                wanted[row, start:stop] = True
        native = pairs.reshape(length, 4)[:, 1:].T[None]
        np.testing.assert_array_equal(seen(subject(tmp_path, cudnn_endpoints=native)), wanted)


def test_a_causal_row_as_endpoints_is_one_slice(tmp_path: Path) -> None:
    """Catches an expansion row by row, which would be quadratic for long rows."""
    ends = np.arange(1, 100_001)[None, None]
    found = subject(tmp_path, cudnn_endpoints=ends)
    assert isinstance(found.mask, Ranges)
    assert found.mask.slices_S5.tolist() == [[0, 100_000, 0, 100_000, CAUSAL]]


def test_magi_slices_are_passed_on(tmp_path: Path) -> None:
    """Catches swapped columns."""
    found = subject(tmp_path, q_ranges=[[0, 4], [4, 6]], k_ranges=[[0, 4], [0, 2]], attn_type_map=[1, 0])
    assert isinstance(found.mask, Ranges) and found.length == 6
    assert found.mask.slices_S5.tolist() == [[0, 4, 0, 4, CAUSAL], [4, 6, 0, 2, FULL]]
    assert "attn_type_map" in refusal(tmp_path, q_ranges=[[0, 4]], k_ranges=[[0, 4]])
    assert "before it begins" in refusal(tmp_path, q_ranges=[[4, 0]], k_ranges=[[0, 4]], attn_type_map=[1])


LOWER = np.tri(5, dtype=bool)


@pytest.mark.parametrize(
    ("mask", "told", "convention"),
    [
        (LOWER, None, "bool, True = visible"),
        (~LOWER, None, "bool, True = hidden"),
        (LOWER.astype(np.int64), None, "bool, True = visible"),
        (LOWER.astype(np.float32), None, "bool, True = visible"),
        (~LOWER, "drop", "bool, True = hidden"),
        (np.where(LOWER, 0, -np.inf), None, "additive, 0 = visible"),
        (np.where(LOWER, 0, np.finfo(np.float16).min).astype(np.float16), None, "additive, 0 = visible"),
        (np.where(LOWER, 0, -1e4).astype(np.float32), None, "additive, 0 = visible"),
    ],
)
def test_a_mask_means_the_same_in_every_convention(tmp_path: Path, mask, told, convention: str) -> None:
    """Catches True taken for its contrary, and an additive value taken for a flag."""
    for shape in ((5, 5), (1, 5, 5), (1, 1, 5, 5)):
        found = subject(tmp_path, Hints(convention=told), mask=mask.reshape(shape))
        assert isinstance(found.mask, DenseMask) and found.mask.convention == convention
        assert (found.mask.values_HQK is None) == convention.startswith("bool")
        assert any(convention in note for note in found.notes)
        np.testing.assert_array_equal(seen(found), LOWER)


def test_what_a_mask_means_is_asked_for_where_it_cannot_be_told(tmp_path: Path) -> None:
    """Catches guessing."""
    half = np.array([[1, 0], [1, 0]], dtype=bool)
    assert "--mask-convention" in refusal(tmp_path, mask=half)
    assert seen(subject(tmp_path, Hints(convention="drop"), mask=half)).tolist() == [[False, True]] * 2
    assert "--mask-convention" in refusal(tmp_path, Hints(convention="keep"), mask=np.array([[0.0, -1.0], [0.0, 0.0]]))


def test_batches_heads_and_decoding_rows(tmp_path: Path) -> None:
    """Catches batch and heads in each other's place, and queries that are taken for the first rows."""
    mask = np.tile(LOWER, (3, 2, 1, 1))
    mask[1, 1, 4, 0] = False
    found = read(save(tmp_path, mask=mask[:, :, 3:]), hints=NONE)
    assert [one.name for one in found] == ["batch0", "batch1", "batch2"]
    assert [one.query_start for one in found] == [3] * 3
    assert [one.mask.seen_HQK.shape for one in found] == [(2, 2, 5)] * 3  # type: ignore[union-attr]
    assert not found[1].mask.seen_HQK[1, 1, 0]  # type: ignore[union-attr]
    assert "do not fit" in refusal(tmp_path, mask=mask[:, :, :, :3])


def test_an_attention_mask_is_padding_flags_or_document_numbers_or_a_matrix(tmp_path: Path) -> None:
    """Catches a [batch, tokens] flag read as a square mask."""
    found = read(save(tmp_path, attention_mask=[[0, 1, 1], [1, 1, 1]]), hints=NONE)
    assert [one.padding_T.tolist() for one in found] == [[True, False, False], [False] * 3]  # type: ignore[union-attr]
    one = subject(tmp_path, attention_mask=[[1, 1, 2, 2, 0]])
    assert one.descent is not None and one.descent.documents_T is not None and one.padding_T is not None
    assert one.descent.documents_T.tolist() == [1, 1, 2, 2, 0] and one.padding_T.tolist() == [False] * 4 + [True]
    assert subject(tmp_path, attention_mask=np.where(LOWER, 0.0, -np.inf)).mask is not None
    assert subject(tmp_path, key_padding_mask=[[True, False]]).padding_T.tolist() == [True, False]  # type: ignore[union-attr]


@pytest.mark.parametrize("shape", [(3, 2, 5), (2, 3, 5)])
def test_multi_axis_positions_in_both_layouts(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """Catches axes taken for batch rows."""
    ids = np.arange(30).reshape(3, 2, 5)
    stored = ids if shape == (3, 2, 5) else ids.swapaxes(0, 1)
    found = read(save(tmp_path, position_ids=stored), hints=NONE)
    for row, one in enumerate(found):
        assert one.positions is not None
        np.testing.assert_array_equal(one.positions.ids_AT, ids[:, row])


def test_every_form_of_descent(tmp_path: Path) -> None:
    """Catches a column out of place, and two descriptions of which one is silently dropped."""
    for arrays, form in (
        ({"parents": [-1, 0, 1, 1]}, "parents_T"),
        ({"tin": [0, 1, 2, 4], "tout": [8, 7, 3, 5]}, "intervals_T2"),
        ({"document_ids": [0, 0, 1, 1]}, "documents_T"),
        ({"segments": [[0, -1, 0, 2, -1], [1, 0, 2, 2, 1]]}, "segments"),
        ({"parents": [-1, 0], "lengths": [2, 2], "fork_lengths": [-1, 1]}, "segments"),
    ):
        found = subject(tmp_path, **arrays)
        assert found.length == 4 and found.descent is not None
        forms = ("parents_T", "intervals_T2", "documents_T", "segments")
        assert [name for name in forms if getattr(found.descent, name) is not None] == [form]
    rows: list[dict[str, object]] = [{"id": "root", "start": 0, "length": 2}]
    rows.append({"id": "b", "parent": "root", "start": 2, "length": 1, "fork_length": 1})
    (found,) = read(document(tmp_path, {"segments": rows, "mounts": [[2, 1, 2, 4]], "times": [0, 1, 2]}), hints=NONE)
    assert found.descent is not None and found.descent.segments is not None
    assert [(s.id, s.parent, s.start, s.length, s.fork_length) for s in found.descent.segments] == [
        ("root", None, 0, 2, None),
        ("b", "root", 2, 1, 1),
    ]
    assert [(m.at, m.k0, m.k1, m.shift) for m in found.descent.mounts] == [(2, 1, 2, 4)]
    assert "give one" in refusal(tmp_path, parents=[-1], document_ids=[0])


def test_loss_terms_of_every_form_name_the_predictor(tmp_path: Path) -> None:
    """Catches a shift by one, and the roll that wraps round."""
    def terms(**arrays: object) -> list[tuple[int, int]]:
        loss = subject(tmp_path, **arrays).loss
        assert loss is not None
        return list(zip(loss.token_rows_N.tolist(), loss.predictor_rows_N.tolist(), strict=True))

    assert terms(loss_tokens=[3], loss_predictors=[1]) == [(3, 1)]
    assert terms(input_ids=[[1, 2, 3, 4]], response_mask=[[1, 0]]) == [(2, 1)]
    assert terms(labels=[[-100, -100, 7, 8]]) == [(2, 1), (3, 2)]
    assert terms(rolled_labels=[[-100, 7, 8, 9]]) == [(2, 1), (3, 2), (0, 3)]
    batch = {"input_ids": [[1, 2, 3]], "response_mask": [[0, 1]]}
    loss = subject(tmp_path, **batch, old_log_probs=[[0.0, -1.0]], rollout_log_probs=[[9.0, -1.5]]).loss
    assert loss is not None and loss.log_ratio_N is not None and loss.log_ratio_N.tolist() == [0.5]


def test_a_configuration_is_copied_field_by_field(tmp_path: Path) -> None:
    """Catches a field that chooses code, a factor that is dropped, and a window that is switched off."""
    config = {
        "architectures": ["X"], "auto_map": {"AutoConfig": "evil.Config"}, "_target_": "os.system",
        "text_config": {
            "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256, "hidden_size": 2560,
            "max_position_embeddings": 4096, "sliding_window": 512, "use_sliding_window": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
        },
    }  # fmt: skip
    (found,) = read(document(tmp_path, config), hints=NONE)
    heads = found.heads
    assert heads is not None and heads.rotary is not None
    assert (heads.query, heads.key_value, heads.dim, heads.hidden, heads.max_positions) == (16, 4, 256, 2560, 4096)
    assert (heads.rotary.dim, heads.rotary.theta, heads.window) == (64, 1e7, None)
    config["text_config"]["num_attention_heads"] = "16"  # type: ignore[index]
    with pytest.raises(Unreadable, match="num_attention_heads should be"):
        read(document(tmp_path, config), hints=NONE)


def test_keys_gradients_and_caches(tmp_path: Path) -> None:
    """Catches heads and tokens in each other's place, and a gradient whose exact zero is lost."""
    keys = RNG.random((1, 2, 5, 4)).astype(np.float32)
    found = subject(tmp_path, k_pre=keys, k_rot=keys, rope_theta=1e4, layer=3)
    assert found.keys is not None and found.keys.before_TGD.shape == (5, 2, 4) and found.keys.layer == 3
    assert found.heads is not None and (found.heads.key_value, found.heads.dim) == (2, 4)
    gradient = np.array([[0.0, 0.0], [0.0, -1e-30]])
    found = subject(tmp_path, dL0_dE=gradient, loss0_rows=[1])
    assert found.gradients is not None and found.gradients.norms_BT.tolist() == [[0.0, 1e-30]]
    found = subject(tmp_path, kept_positions=[0, 1, 5], next_position=3)
    assert found.resume is not None and found.resume.next_position == 3


def test_a_block_mask(tmp_path: Path) -> None:
    """Catches full and partial blocks in each other's place."""
    found = subject(
        tmp_path, kv_num_blocks=[[[1, 1]]], kv_indices=[[[[0, 1], [1, 0]]]], full_kv_num_blocks=[[[0, 1]]],
        full_kv_indices=[[[[0, 1], [0, 1]]]], BLOCK_SIZE=[2, 4], seq_lengths=[4, 8],
    )  # fmt: skip
    assert found.blocks is not None and found.length == 8
    assert (found.blocks.block_q, found.blocks.block_k) == (2, 4)
    assert found.blocks.partial_RC.tolist() == [[0, 1], [1, 0]]
    assert found.blocks.full_count_R is not None and found.blocks.full_count_R.tolist() == [0, 1]


def test_files_are_put_together_by_batch_row(tmp_path: Path) -> None:
    """Catches a part that is given to every row, rows that do not agree, and a field that is given twice."""
    found = read(save(tmp_path, position_ids=[[0, 1], [5, 6]], parents=[-1, 0]), hints=NONE)
    assert [one.positions.ids_AT.tolist() for one in found] == [[[0, 1]], [[5, 6]]]  # type: ignore[union-attr]
    assert all(one.descent is not None for one in found)
    assert "batch rows" in refusal(tmp_path, position_ids=np.zeros((2, 4)), parents=np.zeros((3, 4)))
    both = {"mask": LOWER, "cudnn_endpoints": np.arange(1, 6)[None, None]}
    assert "--format-in" in refusal(tmp_path, **both)
    assert isinstance(subject(tmp_path, Hints(format="endpoints"), **both).mask, Ranges)
    assert "is no format" in refusal(tmp_path, Hints(format="x"), mask=LOWER)
    assert len(set(FORMATS)) == len(FORMATS)


def test_what_was_not_used_is_said_and_nothing_known_is_refused(tmp_path: Path) -> None:
    """Catches an array that is ignored without a word, and a lone mask that needs a name."""
    assert any("weights" in note for note in subject(tmp_path, parents=[-1], weights=[1]).notes)
    assert "nothing known" in refusal(tmp_path, weights=[1])
    np.save(tmp_path / "anything.npy", LOWER)
    (found,) = read([str(tmp_path / "anything.npy")], hints=NONE)
    np.testing.assert_array_equal(seen(found), LOWER)
