"""The mutation runner: what it changes, what it leaves alone, and that a mutant can be told from the original."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz.equivalents import LISTING, claim_about, read_equivalents, stale
from fuzz.mutants import Verdict, attack_once, draw_mutants, judged, summary
from fuzz.mutation import mutated, mutations

SOURCE = '''
"""A module."""
__slots__ = ("a",)

def take(free: list[int], count: int = 0) -> list[int]:
    """Takes some."""
    if not 0 < count <= len(free):
        raise ValueError(f"{count + 1} are too many")
    taken = free[-count:]
    free.pop()
    return taken + [min(count, 3)] if free else taken
'''


def test_each_mutation_changes_one_thing() -> None:
    """Catches: a mutation that is none, that breaks the syntax, or that touches messages and annotations."""
    found = mutations(SOURCE)
    original = ast.unparse(ast.parse(SOURCE))
    sources = {mutated(SOURCE, mutation) for mutation in found}
    assert len(sources) == len(found) and original not in sources
    for mutation in found:
        source = mutated(SOURCE, mutation)
        ast.parse(source)
        assert "{count + 1} are too many" in source or mutation.what.startswith("without `raise")
        assert "__slots__ = ('a',)" in source and "-> list[int]" in source
    wanted = {"min -> max", "return None", "0 -> 1", "Add -> Sub", "if -> if not"}
    assert {mutation.what for mutation in found} >= wanted


def test_a_chained_comparison_keeps_its_length() -> None:
    """Catches: `0 < count <= n` rewritten as a comparison with one side only."""
    sources = [mutated(SOURCE, mutation) for mutation in mutations(SOURCE)]
    assert all("< count <= len(free)" in source for source in sources)


def test_a_seed_draws_the_same_mutants_again() -> None:
    """Catches: a draw that cannot be repeated, and one that only knows one file."""
    first, again = draw_mutants(7, 40), draw_mutants(7, 40)
    assert first == again != draw_mutants(8, 40)
    assert len({path for path, _ in first}) > 5


def test_the_summary_counts_timeouts_as_caught() -> None:
    """Catches: shares of the wrong whole."""
    (path, mutation), *_ = draw_mutants(1, 1)
    ends = ("killed", "timeout", "survived", "equivalent")
    verdicts = [Verdict(path=path, mutation=mutation, verdict=end, by="") for end in ends]
    assert summary(verdicts).endswith("75.0 % killed or equivalent")


CLAIM = """
[[equivalent]]
file = "pool.py"
text = "return taken + [min(count, 3)] if free else taken"
what = "min -> max"
why = "nobody asks for so many"
"""


def test_a_claim_follows_its_line_and_names_one_change_of_it() -> None:
    """Catches: a claim that is about another line, another file, another change, or about two of them."""
    claims = read_equivalents(CLAIM)
    for source in (SOURCE, "\n\n" + SOURCE.replace("free.pop()", "free.remove(1)")):
        about = [mutation for mutation in mutations(source) if claim_about(claims, Path("core/pool.py"), mutation)]
        assert [mutation.what for mutation in about] == ["min -> max"]
        assert stale(claims, [(Path("core/pool.py"), mutation) for mutation in mutations(source)]) == []
    changed = [(Path("core/pool.py"), mutation) for mutation in mutations(SOURCE.replace("count, 3", "count, 4"))]
    assert stale(claims, changed) == claims
    assert stale(claims, [(Path("core/step.py"), mutation) for mutation in mutations(SOURCE)]) == claims


def test_equal_changes_of_equal_lines_have_numbers() -> None:
    """Catches: one claim that covers two mutants."""
    twice = mutations("a[0] = 0\na[0] = 0\n")
    zeros = [mutation.nth for mutation in twice if mutation.what == "0 -> 1"]
    assert sorted(zeros) == [1, 2, 3, 4]


def test_a_claim_counts_only_for_a_survivor() -> None:
    """Catches: a wrong claim that hides behind a killed mutant."""
    claims = read_equivalents(CLAIM)
    (mutation,) = [mutation for mutation in mutations(SOURCE) if claim_about(claims, Path("pool.py"), mutation)]
    survivor = Verdict(path=Path("pool.py"), mutation=mutation, verdict="survived", by="")
    assert judged(survivor, claims).verdict == "equivalent"
    assert judged(replace(survivor, verdict="killed"), claims).verdict == "refuted"
    assert judged(survivor, []) == survivor


@pytest.mark.parametrize("wrong", [CLAIM + CLAIM, CLAIM.replace("nobody asks for so many", " "), CLAIM + "colour = 1"])
def test_a_claim_that_says_nothing_is_refused(wrong: str) -> None:
    """Catches: a listing without reasons, with fields that nobody reads, or with the same claim twice."""
    with pytest.raises(ValueError):
        read_equivalents(wrong)


def test_the_listing_can_be_read() -> None:
    """Catches: a listing that fails the hunt at its end instead of here."""
    read_equivalents(LISTING.read_text())


def test_an_attack_gets_only_so_much_memory(tmp_path: Path) -> None:
    """Catches: a mutant that allocates for ever, and takes the machine down with it."""
    assert attack_once(tmp_path, ("-c", "bytearray(8 << 30)"), timeout_s=20) == "killed"
    assert attack_once(tmp_path, ("-c", "bytearray(8 << 20)"), timeout_s=20) == "survived"
