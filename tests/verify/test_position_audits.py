"""Each rule of positions and rotation on the smallest case that breaks it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from verify_subjects import MOUNT, PARENTS, POSITIONS, STRETCHES, bare, codes, found, only, ranges, tree

from octopus.verify.audits.rotary import Convention
from octopus.verify.facets import Heads, KeyCache, Resume, Rotary
from octopus.verify.findings import Severity
from octopus.verify.subject import CAUSAL, FULL, Descent, Positions, Subject


def at(*ids: int) -> Positions:
    return Positions(ids_AT=np.array([ids]), dtype="int64")


def test_the_packed_row_as_position_is_found_and_named() -> None:
    """Catches: the most common fault, and its cause."""
    findings = found(tree(positions=at(*range(7))))
    assert {f.code for f in findings} == {"OCT201", "OCT203", "OCT204", "OCT214"}
    first = next(f for f in findings if f.code == "OCT201")
    assert (first.witness.row, first.witness.expected, first.witness.actual) == (3, "2", "3")
    assert "place in the packed row" in str(first.cause)
    histogram = next(f for f in findings if f.code == "OCT204")
    assert "+1 (8 pairs)" in str(histogram.cause)


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([1, 2, 3, 3, 4, 5, 6], "off by +1"),
        ([0, 1, 0, 0, 1, 0, 1], "start again at 0"),
        ([0, 1, 2, 2, 3, 2, 3], "takes no positions"),
    ],
)
def test_well_known_wrong_positions_are_recognised(ids: list[int], words: str) -> None:
    """Catches: a cause that fits and is not named."""
    assert words in str(found(tree(positions=at(*ids)), "OCT201")[0].cause)


def test_a_whole_path_that_is_displaced_keeps_its_distances() -> None:
    """Catches: OCT204 for an offset that rotary attention does not see."""
    descent = Descent(documents_T=np.array([0, 0, 0, 1, 1, 1]))
    subject = Subject(name="x", length=6, descent=descent, positions=at(*range(6)))
    assert codes(subject) == {"OCT201"}


def test_a_step_inside_a_segment_and_a_start_of_a_branch_have_codes_of_their_own() -> None:
    """Catches: a step that is told as a start, and the other way round."""
    inside = only(tree(positions=at(0, 1, 2, 2, 4, 4, 5)), "OCT202", "OCT203")
    assert (inside.code, inside.witness.row, inside.witness.expected) == ("OCT202", 4, "3")
    start = only(tree(positions=at(0, 1, 3, 2, 3, 4, 5)), "OCT202", "OCT203")
    assert (start.code, start.location.segments) == ("OCT203", ("a", "root"))


def test_without_a_descent_positions_may_only_step_by_one_or_start_again() -> None:
    """Catches: a hole and a repeat in position ids of which nothing else is known."""
    alone = Subject(name="x", length=7, positions=at(0, 1, 2, 0, 1, 2, 3))
    assert not found(alone)
    assert only(replace(alone, positions=at(0, 1, 2, 4, 5, 6, 7))).witness.row == 3
    assert only(replace(alone, positions=at(0, 1, 1, 2, 3, 4, 5))).witness.row == 2


def shifted(shifts: list[int]) -> Subject:
    """The tree as slices, the join's mount of b being the last one but one; b stands at 2, 3 and is seen there."""
    mask = ranges(
        (0, 2, 0, 2, CAUSAL),
        (2, 7, 0, 2, FULL),
        (2, 3, 2, 3, CAUSAL),
        (3, 5, 3, 5, CAUSAL),
        (5, 7, 3, 5, FULL),
        (5, 7, 5, 7, CAUSAL),
        shifts=shifts,
    )
    return tree(mask=mask)


def test_the_shift_of_a_slice_must_be_that_of_its_mount() -> None:
    """Catches: a mount that is not shifted, one of the wrong sign, and a path that is shifted."""
    assert not found(shifted([0] * 6))
    path = found(shifted([0, 1, 0, 0, 0, 0]))
    assert [(f.code, f.location.segments) for f in path] == [("OCT204", (n, "root")) for n in ("a", "b", "join")]
    mounted = only(shifted([0, 0, 0, 0, 3, 0]))
    assert (mounted.code, mounted.witness.query, mounted.witness.key) == ("OCT204", 5, 3)
    two = replace(MOUNT, k0=2, k1=3, shift=2)
    descent = Descent(parents_T=np.array(PARENTS), mounts=(MOUNT, two), stretches=STRETCHES)
    ids = at(0, 1, 2, 2, 3, 5, 6)
    slices = [(5, 7, 2, 3, FULL), (5, 7, 3, 5, FULL)]
    subject = Subject(name="x", length=7, descent=descent, positions=ids, mask=ranges(*slices, shifts=[2, 0]))
    assert not found(subject, "OCT204")
    for wrong, words in ((0, "not shifted"), (-2, "wrong sign")):
        mask = ranges(*slices, shifts=[wrong, 0])
        assert words in str(only(replace(subject, mask=mask), "OCT204").cause)


def test_views_of_append_mounts_have_neither_holes_nor_doubles() -> None:
    """Catches: a shift that copies the source's holes, and one that lays two tokens on one position."""
    for shift, words in ((0, None), (1, "none of them is at position 2"), (-1, "two of them are at position 1")):
        descent = Descent(parents_T=np.array(PARENTS), mounts=(replace(MOUNT, shift=shift),), stretches=STRETCHES)
        findings = found(tree(descent=descent), "OCT214")
        assert (words is None and not findings) or words in findings[0].message
    original = Descent(parents_T=np.array(PARENTS), mounts=(replace(MOUNT, shift=1, placement="original"),))
    assert not found(tree(descent=original), "OCT214")


def test_a_cache_goes_on_at_its_depth_not_at_its_length() -> None:
    """Catches: the next position taken from the number of rows that were kept."""
    kept = np.array([0, 1, 2, 6, 7])
    finding = only(Subject(name="x", length=5, resume=Resume(kept_positions_N=kept, next_position=5)))
    assert (finding.code, finding.witness.expected) == ("OCT208", "8") and "kept rows" in str(finding.cause)
    assert not found(Subject(name="x", length=5, resume=Resume(kept_positions_N=kept, next_position=8)))


@pytest.mark.parametrize(
    ("ids", "padding", "clean"),
    [
        ([[0, 1, 2]] * 3, 0, True),
        ([[0, 1, 2]] * 2, 0, False),
        ([[0, 1, 2], [5, 6, 7], [0, 1, 2]], 0, False),
        ([[1, 1, 0, 1]] * 3, 2, True),
        ([[0, 1, 2, 3]] * 3, 2, False),
    ],
)
def test_positions_of_several_axes(ids: list[list[int]], padding: int, clean: bool) -> None:
    """Catches: two axes, batch rows taken for axes, and padding on the other side than the tokens."""
    length = len(ids[0])
    positions = Positions(ids_AT=np.array(ids), dtype="int64")
    subject = Subject(name="x", length=length, positions=positions, padding_T=np.arange(length) < padding)
    assert codes(subject, "OCT209") == (set() if clean else {"OCT209"})


def test_positions_beyond_range_and_precision() -> None:
    """Catches: bfloat16 positions above 256, frequencies in 16 bits, and positions the model was not made for."""
    heads = Heads(query=4, key_value=2, dim=8, max_positions=5)
    beyond = only(tree(heads=heads, positions=at(*POSITIONS)), "OCT207")
    assert (beyond.witness.row, beyond.count) == (6, 1)
    low = Positions(ids_AT=np.array([POSITIONS]), dtype="bfloat16")
    assert only(tree(positions=low), "OCT207").severity is Severity.WARNING
    far = Subject(name="x", length=400, positions=Positions(ids_AT=np.arange(400)[None], dtype="bfloat16"))
    assert only(far, "OCT207").severity is Severity.ERROR
    frequencies = Positions(ids_AT=np.array([POSITIONS]), dtype="int64", inverse_frequency_dtype="float16")
    assert "frequencies" in only(tree(positions=frequencies), "OCT207").message
    assert "at position -1" in only(tree(positions=at(-1, *POSITIONS[1:])), "OCT207").message


HALVES = Convention(dim=8, theta=10_000.0, interleaved=False)


def keys(convention: Convention, offset: int = 0, *, dtype: type = np.float32, name: str = "float32") -> Subject:
    """A cache of 12 keys of 8 dims whose declared rotation is that of HALVES, rotated in another way."""
    before = np.random.default_rng(0).standard_normal((12, 2, 8))
    ids = np.arange(100, 112)
    after = convention.rotate(before, ids + offset).astype(dtype)
    return Subject(
        name="x",
        length=12,
        positions=Positions(ids_AT=ids[None], dtype="int64"),
        heads=Heads(query=4, key_value=2, dim=8, rotary=Rotary(dim=8, theta=10_000.0, interleaved=False)),
        keys=KeyCache(before_TGD=before.astype(dtype), after_TGD=after, dtype=name, layer=3),
    )


def test_right_keys_fit_in_their_own_precision() -> None:
    """Catches: a tolerance that a right cache exceeds; half of bfloat16's bits are cut off by hand."""
    assert not found(keys(HALVES))
    subject = keys(HALVES)
    cut = (subject.keys.after_TGD.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    assert not found(replace(subject, keys=replace(subject.keys, after_TGD=cut, dtype="bfloat16")))
    assert found(replace(subject, keys=replace(subject.keys, after_TGD=cut)))


def test_keys_rotated_in_bfloat16_throughout_fit() -> None:
    """Catches: a tolerance of one rounding, where a library rounds cosines, products and sums."""
    before = torch.randn(12, 2, 128, generator=torch.Generator().manual_seed(1)).bfloat16()
    angles = torch.arange(100, 112)[:, None, None] * 100.0 ** -(torch.arange(64) / 64)
    cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
    first, second = before.split(64, dim=-1)
    after = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    rotary = Rotary(dim=128, theta=100.0, interleaved=False)
    subject = replace(
        keys(HALVES),
        heads=Heads(query=4, key_value=2, dim=128, rotary=rotary),
        keys=KeyCache(
            before_TGD=before.float().numpy(), after_TGD=after.float().numpy(), dtype="bfloat16", layer=0
        ),
    )
    assert not found(subject)
    off = (after.float() - before.float().abs().max() * 2**-6).numpy()
    assert found(replace(subject, keys=replace(subject.keys, after_TGD=off)))


@pytest.mark.parametrize("offset", [1, -1, 40])
def test_the_offset_of_cached_keys_is_recovered(offset: int) -> None:
    """Catches: an offset that is found with the wrong sign, or not at all."""
    finding = only(keys(HALVES, offset))
    assert finding.code == "OCT205" and f"{offset:+d} more" in finding.message and finding.location.layer == 3


@pytest.mark.parametrize(
    ("convention", "words"),
    [
        (replace(HALVES, interleaved=True), "neighbouring"),
        (replace(HALVES, theta=500_000.0), "base 500000"),
        (replace(HALVES, dim=4), "4 rotary dimensions"),
        (replace(HALVES, factor=4.0), "divided by 4"),
    ],
)
def test_another_convention_is_named(convention: Convention, words: str) -> None:
    """Catches: keys of another convention that are called displaced."""
    finding = only(keys(convention))
    assert finding.code == "OCT206" and words in str(finding.cause)


def test_the_rotation_is_the_one_that_libraries_use() -> None:
    """Catches: a rotation that turns the wrong way: distances would fit, offsets would change their sign."""
    turned = HALVES.rotate(np.eye(8)[:1, None], np.array([1]))[0, 0]
    assert turned[0] == pytest.approx(np.cos(1)) and turned[4] == pytest.approx(np.sin(1))


def test_keys_that_are_not_rotated_are_called_so() -> None:
    """Catches: a cache of unrotated keys."""
    subject = keys(HALVES)
    bad = replace(subject.keys, after_TGD=subject.keys.before_TGD)
    assert "not rotated" in str(only(replace(subject, keys=bad)).cause)
    assert bare(np.eye(2, dtype=bool)).keys is None
