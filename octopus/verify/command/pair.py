"""`explain-pair`: why one row sees another, or not."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from octopus.core.errors import ConfigError
from octopus.verify.case import Case
from octopus.verify.chains import Chains
from octopus.verify.command.settings import hints_of, read_settings
from octopus.verify.lineage import Lineage
from octopus.verify.runs import UNKNOWN


def explain_pair(options: argparse.Namespace) -> int:
    """Prints, for each subject, whether the pair is visible, whether it may be, by which way, and at which distance.

    Raises:
        ConfigError: the rows do not exist in any subject.
    """
    from octopus.verify.command.audit import expanded
    from octopus.verify.command.settings import Settings
    from octopus.verify.readers import read

    settings = Settings() if options.isolated else read_settings(options.config)
    subjects = expanded(read(options.files, hints=hints_of(options, settings)))
    cases = [Case(s) for s in subjects if 0 <= options.query < s.length and 0 <= options.key < s.length]
    if not cases:
        lengths = ", ".join(str(subject.length) for subject in subjects)
        raise ConfigError(f"rows {options.query} and {options.key} do not exist; the lengths are {lengths}")
    for case in cases:
        print(f"{case.subject.name}:")
        for line in pair_lines(case, options.query, options.key):
            print(f"  {line}")
    return 0


def pair_lines(case: Case, query: int, key: int) -> Iterator[str]:
    """Sentences about one pair."""
    reader, source = case.names.say(query), case.names.say(key)
    if case.seen is not None:
        visible = bool(case.seen.holds(query, key))
        yield f"{reader} {'sees' if visible else 'does not see'} {source}"
        if not visible:
            yield _influence(case, query, key)
    lineage = case.lineage
    if lineage is None or case.expected is None or case.allowed is None:
        yield "who descends from whom is not declared, so nothing says whether it should"
        return
    yield _reason(case, lineage, query, key)
    if bool(case.allowed.holds(query, key)) and not bool(case.expected.holds(query, key)):
        yield f"the declared window of {case.subject.declared.window} hides it"
    if case.subject.positions is not None:
        ids_T = case.subject.positions.ids_AT[0]
        expected = lineage.positions_T[[query, key]]
        right = "" if UNKNOWN in expected else f"; expected {expected[0]} and {expected[1]}"
        yield f"positions {ids_T[query]} and {ids_T[key]}{right}"


def _reason(case: Case, lineage: Lineage, query: int, key: int) -> str:
    rows = np.array([query]), np.array([key])
    if lineage.on_path(rows[1], rows[0])[0]:
        steps = int(lineage.depths_T[query] - lineage.depths_T[key])
        return f"it may: row {key} is on its path, {steps} tokens before it"
    run = lineage.runs[lineage.run_of_T[query]]
    for piece in lineage.outside(run):
        if piece.mounted and piece.k0 <= key < piece.k1:
            at = "" if piece.at == UNKNOWN else f", seen at position {piece.at + key - piece.k0}"
            return f"it may: rows [{piece.k0}, {piece.k1}) are mounted on its path{at}"
    if lineage.on_path(rows[0], rows[1])[0]:
        return f"it must not: row {key} comes after it on the same path"
    return f"it must not: row {key} is on another branch, and not mounted on its path"


def _influence(case: Case, query: int, key: int) -> str:
    seen = case.seen
    way = [] if seen is None else Chains(seen).hops(query, key)
    if not way:
        return "nothing of it reaches the row through others"
    return "it reaches the row through others: " + " sees ".join(map(case.names.say, way))
