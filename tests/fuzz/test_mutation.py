"""The mutation runner: what it changes, what it leaves alone, and that a mutant can be told from the original."""

from __future__ import annotations

import ast

from fuzz.mutants import Verdict, draw_mutants, summary
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
    ends = ("killed", "timeout", "survived", "killed")
    verdicts = [Verdict(path=path, mutation=mutation, verdict=end, by="") for end in ends]
    assert summary(verdicts).endswith("75.0 % caught")
