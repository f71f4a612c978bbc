"""Our own traces and episodes, and conversion: what is read back means the same as what was written."""

import json
from pathlib import Path

import numpy as np
import pytest
from random_graphs import random_episode

from octopus.core.graph import Graph
from octopus.core.trace import Trace
from octopus.rollout.episode import Episode, SampledToken
from octopus.rollout.records import RolloutRecord, as_json
from octopus.verify.audits import STATIC, run
from octopus.verify.case import Case
from octopus.verify.command.main import main
from octopus.verify.findings import Verdict
from octopus.verify.inputs import Hints, Unreadable
from octopus.verify.pairs import Pairs
from octopus.verify.readers import read
from octopus.verify.subject import Subject

NONE = Hints()


def matrix(pairs: Pairs | None) -> np.ndarray:
    assert pairs is not None
    seen = np.zeros((pairs.length, pairs.length), dtype=bool)
    for q, k0, k1 in zip(*pairs.runs(), strict=True):
        seen[q, k0:k1] = True
    return seen


def record(episode: Episode) -> RolloutRecord:
    return RolloutRecord(
        episode=episode, mode="octopus", seed=0, outcome="answered", answer=None, gold=(), documents=(), events=()
    )


def lines(folder: Path, *values: object) -> str:
    file = folder / "episodes.jsonl"
    file.write_text("".join(json.dumps(value) + "\n" for value in values))
    return str(file)


@pytest.mark.parametrize("seed", range(12))
def test_episodes_mean_what_the_oracle_says(tmp_path: Path, seed: int) -> None:
    """Catches mounts of empty segments that are lost, forks at the wrong token, and rows out of order."""
    made = random_episode(seed, size=60)
    segments = tuple(made.graph.segments)
    places = [(segment, offset) for segment in segments for offset in range(len(segment.tokens))]
    sampled = [SampledToken(segment=s, offset=o, log_probability=None, live=True) for s, o in places]
    episode = Episode(name="one", segments=segments, waits=(), sampled=tuple(sampled), reward=0.0)
    (subject,) = read([lines(tmp_path, as_json(record(episode)))], hints=NONE)
    starts, row = {}, 0
    for segment in segments:
        starts[segment] = row
        row += len(segment.tokens)
    rows = {token: starts[segment] + offset for (segment, offset), token in made.ids.items()}
    case = Case(subject)
    allowed = matrix(case.allowed)
    assert subject.length == len(rows) and subject.name == "one" and subject.positions is not None
    wanted = np.zeros_like(allowed)
    for token, place in rows.items():
        oracle = made.oracle.tokens[token]
        wanted[place, [rows[seen] for seen, _ in oracle.visible]] = True
        assert subject.positions.ids_AT[0, place] == oracle.position
    np.testing.assert_array_equal(allowed, wanted)
    assert subject.loss is not None
    targets = dict(zip(subject.loss.token_rows_N.tolist(), subject.loss.predictor_rows_N.tolist(), strict=True))
    assert targets == {
        rows[token]: rows[oracle.predecessor]
        for token, oracle in enumerate(made.oracle.tokens)
        if token in rows and oracle.predecessor is not None
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schema_version", 2),
        ("segments", [{"parent": [3, 0], "position": 0, "tokens": [], "mounts": []}]),
        ("segments", [{"parent": None, "position": -1, "tokens": [], "mounts": []}]),
        ("segments", [{"parent": None, "position": 0, "tokens": 7, "mounts": []}]),
        ("segments", [{"parent": None, "position": 0, "tokens": [], "mounts": [[[0, 0, 9, 0]]]}]),
        ("segments", [{"parent": None, "position": 0, "tokens": [], "mounts": [[0, 0, 9, 0]]}]),
        ("sampled", [[0, 5, None, True]]),
        ("sampled", [[9, 0, None, True]]),
        ("sampled", 3),
    ],
)
def test_an_episode_that_contradicts_itself_is_refused(tmp_path: Path, key: str, value: object) -> None:
    """Catches an index that is used before it is checked."""
    segment = {"parent": None, "position": 0, "tokens": [1], "mounts": []}
    good = {"schema_version": 1, "name": "x", "segments": [segment]}
    read([lines(tmp_path, good)], hints=NONE)
    with pytest.raises(Unreadable):
        read([lines(tmp_path, {**good, key: value})], hints=NONE)


def test_a_trace_is_passed_on_line_by_line(tmp_path: Path) -> None:
    """Catches a header that is lost, and lines counted from 0."""
    graph = Graph(trace=(trace := Trace()))
    root = graph.thread()
    graph.append(root, [1, 2, 3])
    (child,) = graph.fork(root, 1)
    graph.append(child, [4])
    file = tmp_path / "trace.jsonl"
    file.write_text("".join(line + "\n" for line in trace.json_lines()))
    (subject,) = read([str(file)], hints=NONE)
    assert subject.events is not None and subject.events.events[0]["kind"] == "header"
    assert subject.events.lines == tuple(range(1, len(trace.events) + 2))
    assert run(STATIC, [subject]).verdict() is Verdict.PASS
    file.write_text('{"a": 1}\n')
    with pytest.raises(Unreadable, match="neither events"):
        read([str(file)], hints=NONE)


def same(one: Subject, other: Subject) -> None:
    np.testing.assert_array_equal(matrix(Case(one).seen), matrix(Case(other).seen))
    np.testing.assert_array_equal(matrix(Case(one).allowed), matrix(Case(other).allowed))


@pytest.mark.parametrize("ending", [".npz", ".safetensors"])
@pytest.mark.parametrize("form", [None, "dense", "slices"])
def test_what_is_converted_is_read_back_the_same(tmp_path: Path, ending: str, form: str | None) -> None:
    """Catches an array that is written under a name that nobody reads, and a mask that changes its form and content."""
    seen = np.tri(7, dtype=bool)
    seen[5:, 3:5] = False
    segments = [{"id": "r", "start": 0, "length": 3}, {"id": "a", "parent": "r", "start": 3, "length": 2}]
    segments.append({"id": "b", "parent": "r", "start": 5, "length": 2})
    (tmp_path / "t.json").write_text(json.dumps({"segments": segments, "mounts": [[6, 3, 4, 2]]}))
    inputs = {"mask": seen, "position_ids": np.arange(7), "attention_mask": np.ones((1, 7), dtype=int)}
    np.savez(tmp_path / "a.npz", **inputs, loss_tokens=[3, 5], loss_predictors=[2, 2])
    given = [str(tmp_path / "t.json"), str(tmp_path / "a.npz")]
    out = str(tmp_path / f"out{ending}")
    assert main(["convert", *given, out, *([] if form is None else ["--mask", form])]) == 0
    (before,), (after,) = read(given, hints=NONE), read([out], hints=NONE)
    same(before, after)
    assert after.positions is not None and after.positions.ids_AT.tolist() == [list(range(7))]
    assert after.loss is not None and after.loss.predictor_rows_N.tolist() == [2, 2]
    assert after.padding_T is not None and not after.padding_T.any()
    assert after.descent is not None and [m.shift for m in after.descent.mounts] == [2]


def test_other_peoples_ranges_become_a_dense_mask(tmp_path: Path) -> None:
    """Catches a conversion that needs the dense form to begin with."""
    np.savez(tmp_path / "a.npz", startend_row_indices=np.array([5, 5, 3, 5, 5]).reshape(1, 1, 5, 1))
    out = str(tmp_path / "out.npz")
    assert main(["convert", str(tmp_path / "a.npz"), out, "--mask", "dense"]) == 0
    wanted = np.tri(5, dtype=bool)
    wanted[3:, 2] = False
    with np.load(out) as written:
        np.testing.assert_array_equal(written["mask"], wanted)


def test_what_cannot_be_converted_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a traceback, and a dense mask beyond the limit."""
    np.savez(tmp_path / "a.npz", cudnn_endpoints=np.arange(1, 20_001)[None, None])
    given, out = str(tmp_path / "a.npz"), str(tmp_path / "out.npz")
    for options in ([given, out, "--mask", "dense"], [given, out, "--row", "3"], [given, str(tmp_path / "out.txt")]):
        assert main(["convert", *options]) == 2
    assert "--max-bytes" in capsys.readouterr().err
