"""Each mask rule on the smallest case that breaks it, and a clean tree that breaks none."""

from dataclasses import replace

import numpy as np
import pytest
from verify_subjects import PARENTS, bare, codes, dense, flipped, found, only, ranges, tree

from octopus.verify.audits import STATIC, run
from octopus.verify.facets import BlockTable
from octopus.verify.findings import Severity, Verdict
from octopus.verify.groups import MOST, OTHERS
from octopus.verify.subject import (
    CAUSAL,
    FULL,
    Boundaries,
    Declared,
    Descent,
    Mount,
    Subject,
)

CAUSAL_7 = np.tri(7, dtype=bool)


def test_the_right_tree_has_no_findings() -> None:
    """Catches: an audit that cries for nothing."""
    report = run(STATIC, [tree()])
    assert report.findings == () and report.verdict() is Verdict.PASS
    assert {c.audit for c in report.checks if c.outcome.value == "clean"} >= {"leaks", "holes", "depth", "time"}


@pytest.mark.parametrize(
    ("code", "query", "key"),
    [
        ("OCT101", 3, 2),  # b sees a
        ("OCT101", 6, 2),  # the join sees a, which it does not mount
        ("OCT103", 1, 2),  # the root sees its child
        ("OCT103", 3, 4),
        ("OCT102", 4, 0),
        ("OCT102", 6, 3),  # the mount is not seen
        ("OCT105", 6, 6),
    ],
)
def test_one_wrong_pair_is_named(code: str, query: int, key: int) -> None:
    """Catches: a pair that is told under another code, or whose witness is not the pair."""
    finding = only(flipped(tree(), query, key))
    assert (finding.code, finding.count) == (code, 1)
    assert finding.witness is not None and (finding.witness.query, finding.witness.key) == (query, key)


def test_wrong_pairs_are_counted_by_segments_and_explained() -> None:
    """Catches: one finding for each pair, a wrong count, and the plain causal triangle that is not recognised."""
    findings = found(tree(mask=dense(CAUSAL_7)), "OCT1")
    assert [(f.code, f.location.segments, f.count) for f in findings] == [
        ("OCT101", ("b", "a"), 2),
        ("OCT101", ("join", "a"), 2),
    ]
    assert all("plain causal triangle" in str(finding.cause) for finding in findings)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (np.ones((7, 7), dtype=bool), "everything is visible"),
        (np.eye(7, dtype=bool) | np.eye(7, k=-1, dtype=bool) & (np.arange(7) % 2 == 1)[:, None], None),
    ],
)
def test_causes_are_named_only_where_they_fit(seen: np.ndarray, words: str | None) -> None:
    """Catches: a cause that is claimed for every mask."""
    causes = {finding.cause for finding in found(tree(mask=dense(seen)), "OCT1")}
    assert causes == {None} if words is None else all(words in str(cause) for cause in causes)


def test_a_tree_without_its_mounts_is_recognised() -> None:
    """Catches: the cause that a reader of mounts needs most."""
    seen = tree().mask.seen_HQK[0].copy()
    seen[5:, 3:5] = False
    assert "mounts are missing" in str(only(tree(mask=dense(seen)), "OCT1").cause)


def test_blind_rows_are_errors_unless_they_are_padding() -> None:
    """Catches: a padding row that fails a build, and a real one that does not."""
    seen = CAUSAL_7.copy()
    seen[0] = seen[5:] = False
    padding = np.arange(7) >= 5
    findings = found(bare(seen, padding_T=padding), "OCT104")
    assert [(f.severity, f.witness.row, f.count) for f in findings] == [
        (Severity.ERROR, 0, 1),
        (Severity.WARNING, 5, 2),
    ]


def test_padding_that_real_rows_see_is_found() -> None:
    """Catches: padding on the left of a causal mask, which the triangle alone does not hide."""
    padding = np.arange(7) < 2
    finding = only(bare(CAUSAL_7, padding_T=padding), "OCT109")
    assert (finding.witness.query, finding.witness.key, finding.count) == (2, 0, 10)
    hidden = CAUSAL_7 & ~padding[None, :] | np.eye(7, dtype=bool)
    assert not found(bare(hidden, padding_T=padding), "OCT10")


def test_a_declared_window_excuses_what_it_hides_and_nothing_else() -> None:
    """Catches: a window that is off by one, in both directions."""
    for width, code in ((4, "OCT116"), (3, None), (2, "OCT102")):
        seen = CAUSAL_7 & ~np.tri(7, k=-width, dtype=bool)
        subject = bare(seen, descent=Descent(parents_T=np.arange(-1, 6)), declared=Declared(window=3))
        assert codes(subject, "OCT1") == ({code} if code else set())


def test_queries_of_a_decoding_dump_are_the_last_rows() -> None:
    """Catches: a causal triangle at the top left, where queries are fewer than keys."""
    descent = Descent(parents_T=np.arange(-1, 4))
    right = Subject(name="x", length=5, query_start=3, mask=dense(np.tri(2, 5, k=3, dtype=bool)), descent=descent)
    assert not found(right)
    wrong = replace(right, mask=dense(np.tri(2, 5, dtype=bool)))
    assert codes(wrong) == {"OCT102", "OCT105"}
    assert "top left" in str(found(wrong, "OCT102")[0].cause)


@pytest.mark.parametrize(
    ("value", "cause"), [(-10000.0, "old convention"), (1.0, "bool mask"), (float("nan"), "multiplied"), (0.5, None)]
)
def test_additive_values_must_show_or_hide(value: float, cause: str | None) -> None:
    """Catches: a value in between that passes, and NaN that compares as nothing."""
    values = np.where(CAUSAL_7, 0, -np.inf).astype(np.float32)[None]
    clean = dense(CAUSAL_7, values)
    assert not found(bare(CAUSAL_7, mask=clean), "OCT106")
    values = values.copy()
    values[0, 1, 3] = value
    finding = only(bare(CAUSAL_7, mask=dense(CAUSAL_7, values)), "OCT106")
    assert (finding.witness.query, finding.witness.key) == (1, 3)
    assert cause is None or cause in str(finding.cause)


def test_the_smallest_number_added_twice_is_noticed() -> None:
    """Catches: the mix of -inf and finfo.min, which only addition makes."""
    lowest = np.finfo(np.float32).min
    values = np.where(CAUSAL_7, 0, lowest).astype(np.float32)[None]
    assert not found(bare(CAUSAL_7, mask=dense(CAUSAL_7, values)), "OCT106")
    values[0, 0, 6] = -np.inf
    assert only(bare(CAUSAL_7, mask=dense(CAUSAL_7, values)), "OCT106").severity is Severity.WARNING


def test_heads_may_differ_only_if_declared() -> None:
    """Catches: a mask that was broadcast over the wrong axis."""
    heads = np.stack([CAUSAL_7, CAUSAL_7, CAUSAL_7])
    assert not found(bare(CAUSAL_7, mask=dense(heads)), "OCT108")
    heads[2, 4, 1] = False
    finding = only(bare(CAUSAL_7, mask=dense(heads)), "OCT108")
    assert (finding.location.head, finding.witness.query, finding.witness.key) == (2, 4, 1)
    assert not found(bare(CAUSAL_7, mask=dense(heads), declared=Declared(varies_by_head=True)), "OCT108")


def block_table(seen: np.ndarray, size: int) -> BlockTable:
    """The right table of a mask, written out block by block."""
    count = -(-len(seen) // size)
    padded = np.zeros((count * size, count * size), dtype=bool)
    padded[: len(seen), : len(seen)] = seen
    inside = np.zeros_like(padded)
    inside[: len(seen), : len(seen)] = True
    tables = {"partial": np.zeros((count, count), int), "full": np.zeros((count, count), int)}
    counts = {"partial": np.zeros(count, int), "full": np.zeros(count, int)}
    for row, column in np.ndindex(count, count):
        cut = np.s_[row * size : (row + 1) * size, column * size : (column + 1) * size]
        kind = "full" if padded[cut][inside[cut]].all() else "partial" if padded[cut].any() else None
        if kind:
            tables[kind][row, counts[kind][row]] = column
            counts[kind][row] += 1
    return BlockTable(
        block_q=size,
        block_k=size,
        partial_count_R=counts["partial"],
        partial_RC=tables["partial"],
        full_count_R=counts["full"],
        full_RC=tables["full"],
    )


def test_block_tables_are_held_against_the_mask() -> None:
    """Catches: full blocks that hide a pair, blocks left out, indices out of order, and a table of another length."""
    table = block_table(CAUSAL_7, 2)
    assert not found(bare(CAUSAL_7, blocks=table), "OCT107")
    seen = CAUSAL_7.copy()
    seen[5, 1] = False
    finding = only(bare(seen, blocks=table), "OCT107")
    assert (finding.witness.query, finding.witness.key) == (5, 1)
    seen = CAUSAL_7.copy()
    seen[1, 6] = True
    finding = only(bare(seen, blocks=table), "OCT107")
    assert (finding.witness.query, finding.witness.key) == (1, 6)
    swapped = replace(table, full_RC=table.full_RC[:, ::-1])
    assert "ascending" in only(bare(CAUSAL_7, blocks=replace(swapped, full_count_R=np.full(4, 2))), "OCT107").message
    assert "beyond" in only(bare(CAUSAL_7, blocks=replace(table, partial_RC=table.partial_RC + 2)), "OCT107").message
    assert "made for 8 queries" in only(bare(CAUSAL_7[:3, :3], blocks=table), "OCT107").message
    twice = replace(table, full_count_R=table.partial_count_R, full_RC=table.partial_RC)
    assert "as full and as partial" in only(bare(CAUSAL_7, blocks=twice), "OCT107").message


def test_a_block_table_alone_is_held_against_the_descent() -> None:
    """Catches: a table without element mask that is not judged at all."""
    descent = Descent(parents_T=np.array(PARENTS))
    subject = Subject(name="x", length=7, descent=descent, blocks=block_table(CAUSAL_7, 1))
    assert {(f.witness.query, f.witness.key) for f in found(subject, "OCT107")} == {(3, 2), (5, 2), (5, 3)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (np.s_[2, 0], "does not see that itself"),
        (np.s_[1, 4], "see each other"),
    ],
)
def test_a_mask_without_descent_must_be_a_partial_order(change: tuple[int, int], words: str) -> None:
    """Catches: a lost pair that only transitivity shows, and two rows that see each other."""
    clean = np.zeros((7, 7), dtype=bool)
    clean[:3, :3] = np.tri(3, dtype=bool)
    clean[3:, 3:] = np.tri(4, dtype=bool)
    assert codes(bare(clean)) == {"OCT003"}
    mask = np.tri(7, dtype=bool)
    mask[change] ^= True
    assert any(words in finding.message for finding in found(bare(mask), "OCT110"))


def test_rows_of_a_chain_vouch_for_those_before_them() -> None:
    """Catches: the shortcut over chains, where a missing pair sits in the middle of one."""
    mask = np.tri(7, dtype=bool)
    mask[5:, 2] = False
    finding = only(bare(mask), "OCT110")
    assert finding.witness.key == 2 and finding.witness.query == 5


def test_undeclared_windows_and_shifts_are_recognised() -> None:
    """Catches: a window that is only called broken, and the triangle that shows the next row."""
    window = CAUSAL_7 & ~np.tri(7, k=-2, dtype=bool)
    assert "last 2 rows only" in str(found(bare(window), "OCT110")[0].cause)
    assert not found(bare(window, declared=Declared(window=2)), "OCT110")
    shifted = found(bare(np.tri(7, k=1, dtype=bool)), "OCT110")
    assert "shifted by one" in str(shifted[0].cause)


def test_influence_over_others_is_found_and_its_way_is_told() -> None:
    """Catches: a check of direct pairs only. The join mounts b, which saw the root."""
    secret = ranges((5, 7, 0, 1, FULL))
    seen = tree().mask.seen_HQK[0].copy()
    seen[5:, 0] = False
    subject = tree(mask=dense(seen), declared=Declared(forbidden=secret))
    finding = only(subject, "OCT111")
    assert (finding.witness.query, finding.witness.key, finding.count) == (5, 0, 2)
    assert "sees" in finding.message and finding.witness.actual == "2 hops"
    assert not found(tree(declared=Declared(forbidden=ranges((2, 3, 3, 7, FULL)))), "OCT111")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([0, 3, 6], "end at 6"),
        ([0, 3, 3, 7], "do not rise"),
        ([1, 3, 7], "start at 1"),
        ([0, 21], "end at 21"),
        ([0], "at least two"),
    ],
)
def test_cumulative_lengths(given: list[int], words: str) -> None:
    """Catches: each way in which cu_seqlens go wrong; the last is three axes flattened into one."""
    findings = found(Subject(name="x", length=7, boundaries=Boundaries(queries_N=np.array(given))), "OCT113")
    assert words in findings[0].message
    assert given != [0, 21] or "3 times" in str(findings[0].cause)


def test_right_cumulative_lengths_say_what_the_mask_should_be() -> None:
    """Catches: documents that see each other although only cu_seqlens tell of them."""
    boundaries = Boundaries(queries_N=np.array([0, 3, 7]))
    finding = only(bare(CAUSAL_7, boundaries=boundaries))
    assert (finding.code, finding.witness.query, finding.witness.key) == ("OCT101", 3, 0)
    longer = replace(boundaries, keys_N=np.array([0, 2, 7]))
    assert "more queries than keys" in only(Subject(name="x", length=7, boundaries=longer), "OCT113").message
    padded = Subject(name="x", length=7, boundaries=boundaries, padding_T=np.arange(7) == 6)
    assert only(padded, "OCT113").severity is Severity.WARNING


def test_malformed_descent_stops_what_would_lean_on_it() -> None:
    """Catches: leaks that are reported against a descent that is none."""
    subject = tree(descent=Descent(parents_T=np.array([-1, 0, 1, 1, 3, 6, 5])))
    assert codes(subject, "OCT1") == {"OCT112"}


@pytest.mark.parametrize(
    ("mounts", "times"),
    [
        ((Mount(at=5, k0=3, k1=5), Mount(at=3, k0=5, k1=6)), None),  # a circle
        ((Mount(at=5, k0=3, k1=5),), [0, 1, 2, 3, 9, 5, 6]),  # written later
        ((), [5, 1, 2, 3, 4, 5, 6]),  # a parent after its child
    ],
)
def test_mounts_that_run_against_time(mounts: tuple[Mount, ...], times: list[int] | None) -> None:
    """Catches: a circle through mounts, and tokens that did not exist yet."""
    parents = np.array([-1, 0, 1, 1, 3, 1, 5]) if times != [5, 1, 2, 3, 4, 5, 6] else np.array([-1, -1, 0, 0, 3, 0, 5])
    descent = Descent(parents_T=parents, mounts=mounts, times_T=None if times is None else np.array(times))
    assert codes(Subject(name="x", length=7, descent=descent), "OCT1") == {"OCT114"}


def test_a_pair_that_is_listed_twice_is_found() -> None:
    """Catches: overlapping slices, which a dense mask cannot show."""
    slices = [(0, 7, 0, 7, CAUSAL)]
    assert not found(Subject(name="x", length=7, mask=ranges(*slices)), "OCT115")
    finding = only(Subject(name="x", length=7, mask=ranges(*slices, (4, 6, 2, 3, FULL))), "OCT115")
    assert (finding.witness.query, finding.witness.key, finding.count) == (4, 2, 2)


def test_arrays_that_contradict_each_other_stop_everything_else() -> None:
    """Catches: a crash, or findings about rows that do not exist."""
    report = run(STATIC, [tree(mask=dense(np.tri(6, dtype=bool)))])
    assert {finding.code for finding in report.findings} == {"OCT001"}
    assert run(STATIC, [tree(mask=ranges((0, 7, 0, 9, FULL)))]).findings[0].code == "OCT001"


def test_fields_out_of_range_are_said_to_be() -> None:
    """Catches: a window of 0, which would hide everything and excuse it."""
    assert codes(tree(declared=Declared(window=0)), "OCT0") == {"OCT002"}
    assert codes(tree(declared=Declared(bidirectional=((3, 9),))), "OCT002") == {"OCT002"}


def test_bidirectional_ranges_are_excused_where_declared() -> None:
    """Catches: a prefix that is meant to see itself both ways."""
    seen = CAUSAL_7.copy()
    seen[:3, :3] = True
    subject = bare(seen, descent=Descent(parents_T=np.arange(-1, 6)))
    assert codes(subject) == {"OCT103"}
    assert not found(replace(subject, declared=Declared(bidirectional=((0, 3),))))


def test_nothing_checked_is_never_a_pass() -> None:
    """Catches: a run that found nothing because it looked at nothing."""
    assert run(STATIC, [Subject(name="x", length=7)]).verdict() is Verdict.INCONCLUSIVE
    alone = Subject(name="x", length=7, descent=Descent(parents_T=np.arange(-1, 6)))
    assert run(STATIC, [alone]).verdict() is Verdict.INCONCLUSIVE


def test_very_many_segments_are_told_as_many_and_the_rest_counted() -> None:
    """Catches: a finding for each of a million pairs of segments, and pairs beyond the limit that are not counted."""
    documents = Descent(documents_T=np.arange(60))
    findings = found(Subject(name="x", length=60, mask=ranges((0, 60, 0, 60, CAUSAL)), descent=documents), "OCT101")
    assert len(findings) == MOST + 1 and sum(finding.count for finding in findings) == 60 * 59 // 2
    assert (OTHERS, OTHERS) in [finding.location.segments for finding in findings]
    assert [(f.witness.query, f.witness.key) for f in findings[:3]] == [(1, 0), (2, 0), (2, 1)]
