"""Random graphs through the audits of dumps: clean ones pass, one wrong pair is found and named.

Catches an audit that is exact only on the shapes that its author thought of: here are mounts of mounts, rewinds, empty
segments, forks in the middle.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from random_graphs import lowered, random_episode

from octopus.attention.exports import dense_view
from octopus.attention.plan import Plan
from octopus.verify.audits import STATIC, run
from octopus.verify.findings import Verdict
from octopus.verify.ours import plan_subject
from octopus.verify.selftest.episodes import oracle_subject
from octopus.verify.subject import DenseMask, Positions, Ranges, Subject

CHUNKS, GRAPHS_PER_CHUNK = 4, 125
SIZES = (8, 22, 40, 22, 60, 22, 8, 100)


def seeds(chunk: int) -> range:
    return range(chunk * GRAPHS_PER_CHUNK, (chunk + 1) * GRAPHS_PER_CHUNK)


def subjects(seed: int) -> tuple[Plan, Subject, Subject]:
    """A plan; it against its own segments, and against the oracle."""
    episode = random_episode(seed, size=SIZES[seed % len(SIZES)])
    plan, rows_I = lowered(episode)
    told = plan_subject(plan, name=f"seed {seed}")
    truth = oracle_subject(told.name, episode.oracle.tokens, rows_I)
    return plan, told, replace(truth, mask=told.mask, positions=told.positions)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_clean_graphs_have_no_findings(chunk: int) -> None:
    for seed in seeds(chunk):
        for subject in subjects(seed)[1:]:
            report = run(STATIC, [subject])
            assert report.findings == (), seed
            assert report.verdict() is Verdict.PASS, seed


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_one_wrong_pair_is_found_and_named(chunk: int) -> None:
    codes = set()
    for seed in seeds(chunk):
        plan, _, truth = subjects(seed)
        rng, seen = random.Random(seed), dense_view(plan)[0]
        query, key = rng.choice(
            [pair for pair in np.argwhere(np.ones_like(seen)).tolist() if pair[0] != pair[1]]
        )
        seen[query, key] = not seen[query, key]
        report = run(
            STATIC, [replace(truth, mask=DenseMask(seen_HQK=seen[None], convention="True = visible"))]
        )
        found = [finding for finding in report.findings if finding.code in ("OCT101", "OCT102", "OCT103")]
        assert len(found) == 1, (seed, report.findings)
        assert (found[0].witness.query, found[0].witness.key, found[0].count) == (query, key, 1), seed
        codes.add(found[0].code)
    assert codes == {"OCT101", "OCT102", "OCT103"}


@pytest.mark.parametrize("chunk", range(2))
def test_one_wrong_position_is_found_and_named(chunk: int) -> None:
    for seed in seeds(chunk):
        plan, _, truth = subjects(seed)
        row = random.Random(seed).randrange(plan.length)
        positions_T = plan.positions_T.copy()
        positions_T[row] += 1
        changed = Positions(ids_AT=positions_T[None], dtype="int64")
        report = run(STATIC, [replace(truth, positions=changed)])
        assert [f.witness.row for f in report.findings if f.code == "OCT201"] == [row], seed


def test_a_leaked_slice_is_found_in_a_dump_of_ranges() -> None:
    plan, told, _ = subjects(3)
    hidden = np.argwhere(~dense_view(plan)[0])
    query, key = (int(row) for row in hidden[-1])
    slices_S5 = np.vstack([told.mask.slices_S5, [query, query + 1, key, key + 1, 0]])
    report = run(STATIC, [replace(told, mask=Ranges(slices_S5=slices_S5))])
    assert {(f.witness.query, f.witness.key) for f in report.findings if f.code in ("OCT101", "OCT103")} == {
        (query, key)
    }
