"""Cases as text: saved, read again, refused when they are something else, shortened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fuzz.episodes import SETUPS, Episode, drawn
from fuzz.operations import ALWAYS_ON, ARGUMENTS, WEIGHTS, Operation
from fuzz.traces import CORPUS, decode, encode, replay, save, shrunk


def test_an_episode_survives_being_text(tmp_path: Path) -> None:
    """Catches: a field or argument that is not written."""
    episode = drawn(5, operations=80)
    assert decode(encode(episode)) == episode
    path = save(episode, "case", folder=tmp_path)
    assert decode(path.read_text()) == episode
    replay(path)


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [[1]],
        [{"kind": "setup", "schema_version": 2}],
        [{"kind": "setup", "schema_version": 1, "colour": 1}],
        [{"kind": "setup", "schema_version": 1}, {"kind": "explode"}],
        [{"kind": "setup", "schema_version": 1}, {"kind": "drop"}],
        [{"kind": "setup", "schema_version": 1}, {"kind": "drop", "thread": "x"}],
        [{"kind": "setup", "schema_version": 1}, {"kind": "drop", "thread": True}],
        [{"kind": "setup", "schema_version": 1, "pages": 1.5}],
    ],
)
def test_other_text_is_refused(lines: list[object]) -> None:
    """Catches: a file that is taken for a case and does something else than it says."""
    with pytest.raises(ValueError):
        decode("\n".join(json.dumps(line) for line in lines))


def test_a_failing_episode_is_shortened_to_what_matters() -> None:
    """Catches: a shrinker that drops what matters or keeps what does not."""
    episode = Episode(setup=SETUPS[0], operations=drawn(1, operations=60).operations)
    wanted = [operation for operation in episode.operations if operation.kind == "fork"][:2]

    def fails(shorter: Episode) -> bool:
        return all(any(each is operation for each in shorter.operations) for operation in wanted)

    assert list(shrunk(episode, fails).operations) == wanted


def test_every_kind_can_be_drawn() -> None:
    """Catches: a kind of operation that no fuzzer ever does."""
    assert set(WEIGHTS) == set(ARGUMENTS) and set(ARGUMENTS) >= ALWAYS_ON
    seen = {operation.kind for seed in range(40) for operation in drawn(seed, operations=200).operations}
    assert seen == set(ARGUMENTS)
    swarms = [frozenset(operation.kind for operation in drawn(seed, operations=400).operations) for seed in range(8)]
    assert len(set(swarms)) > 4, "the kinds that are on should differ from seed to seed"


def test_saved_cases_are_well_formed() -> None:
    """Catches: a case in the corpus that can no longer be read."""
    for path in CORPUS.glob("*.jsonl"):
        assert decode(path.read_text()).operations, path.name


def test_an_operation_knows_its_arguments() -> None:
    """Catches: a misspelt argument that is silently ignored."""
    with pytest.raises(ValueError):
        Operation(kind="drop", arguments={"treadh": 1})
