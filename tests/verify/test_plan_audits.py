"""Plans of random graphs: clean as they are, and one wrong thing in them is named."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from random_graphs import lowered, random_episode

from octopus.attention.exports import dense_view
from octopus.attention.plan import Plan
from octopus.verify.audits import STATIC, run
from octopus.verify.case import Case
from octopus.verify.findings import Outcome, Verdict
from octopus.verify.ours import plan_subject
from octopus.verify.pairs import of_dense
from octopus.verify.subject import DenseMask, Subject


def plan_of(seed: int) -> Plan:
    return lowered(random_episode(seed, size=random.Random(seed).randrange(2, 60)))[0]


@pytest.mark.parametrize("seed", range(100))
def test_a_plan_is_what_its_segments_say(seed: int) -> None:
    """Catches: a finding about a right plan, and slices that are read otherwise than the plan's own dense view."""
    plan = plan_of(seed)
    subject = plan_subject(plan)
    report = run(STATIC, [subject])
    assert report.findings == () and report.verdict() is Verdict.PASS
    seen = Case(subject).seen
    assert seen is not None and (seen.edges == of_dense(dense_view(plan)[0]).edges).all()


@pytest.mark.parametrize("seed", range(100))
def test_one_wrong_pair_is_named(seed: int) -> None:
    """Catches: a pair of any kind (path, mount, sibling, future, itself) that is not told from a right one."""
    rng, plan = random.Random(seed), plan_of(seed)
    query, key = rng.randrange(plan.length), rng.randrange(plan.length)
    seen = dense_view(plan)[0]
    seen[query, key] ^= True
    findings = broken(plan, seen)
    codes = {code for code, *pair in findings if pair in ([query, key, None], [None, None, query])}
    assert codes and len(findings) <= 2
    own = codes & {"OCT104", "OCT105"}
    assert (query == key) == bool(own)
    assert query == key or codes == ({"OCT102"} if not seen[query, key] else codes & {"OCT101", "OCT103"})


def broken(plan: Plan, seen: np.ndarray) -> list[tuple[str, int | None, int | None, int | None]]:
    """Code, query, key and row of all findings about a plan with another mask."""
    subject = replace(plan_subject(plan), mask=DenseMask(seen_HQK=seen[None], convention=""))
    report = run(STATIC, [subject])
    assert not [check for check in report.checks if check.outcome is Outcome.INCONCLUSIVE]
    return [(f.code, f.witness.query, f.witness.key, f.witness.row) for f in report.findings if f.witness]


def first_with_a_shift() -> Plan:
    """The first plan in which a mount moves keys."""
    return next(plan for plan in map(plan_of, range(200)) if any(s.shift for s in plan.slices))


def codes_of(subject: Subject) -> set[str]:
    return {finding.code for finding in run(STATIC, [subject]).findings}


def test_a_shift_that_is_lost_or_turned_is_found() -> None:
    """Catches: keys that are seen where they were written, and on the other side of it."""
    plan = first_with_a_shift()
    for change in (lambda shift: 0, lambda shift: -shift):
        slices = tuple(replace(s, shift=change(s.shift)) for s in plan.slices)
        assert codes_of(plan_subject(replace(plan, slices=slices))) == {"OCT204"}


def test_a_slice_that_comes_twice_is_found() -> None:
    """Catches: keys that a merge would count twice."""
    plan = plan_of(3)
    twice = replace(plan, slices=(*plan.slices, plan.slices[0]))
    assert codes_of(plan_subject(twice)) == {"OCT115"}


def test_targets_and_positions_of_the_row_are_found() -> None:
    """Catches: labels shifted by one row, and rows used as positions."""
    plan = next(p for p in map(plan_of, range(200)) if (p.predecessors_T[1:] != np.arange(p.length - 1)).any())
    rows = np.arange(plan.length)
    shifted = replace(plan, predecessors_T=np.where(plan.predecessors_T < 0, -1, rows - 1))
    assert "OCT404" in codes_of(plan_subject(shifted))
    assert "OCT201" in codes_of(plan_subject(replace(plan, positions_T=rows)))


def test_a_token_sampled_right_after_a_mount_is_found() -> None:
    """Catches: a protocol that forgets the delimiter behind what was mounted."""
    plan = first_with_a_shift()
    everything = plan_subject(plan, sampled_T=np.ones(plan.length, dtype=bool))
    nothing = plan_subject(plan, sampled_T=np.zeros(plan.length, dtype=bool))
    assert codes_of(everything) == {"OCT409"} and codes_of(nothing) == set()
