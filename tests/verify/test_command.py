"""The command: exit codes, settings, baselines, and that a small dump costs no heavy import."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from trace_events import family, traced, with_event
from verify_subjects import MOUNT, PARENTS, POSITIONS, matrix

from octopus.verify.command import audit as audit_command
from octopus.verify.command.main import main
from octopus.verify.oracle import seen_by
from octopus.verify.rules import rules

RIGHT = matrix(seen_by(PARENTS))
WRONG = np.tri(7, dtype=bool)


def call(line: str) -> int:
    return main(line.split())


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("right.npz", mask=RIGHT, parents=np.array(PARENTS))
    np.savez("wrong.npz", mask=WRONG, parents=np.array(PARENTS))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("mask right.npz", 0),
        ("mask wrong.npz", 1),
        ("mask missing.npz", 2),
        ("rope right.npz", 3),
        ("heads right.npz", 3),
        ("trace right.npz", 3),
        ("mask wrong.npz --exit-zero", 0),
        ("mask wrong.npz --ignore OCT101", 0),
        ("mask wrong.npz --select OCT102", 0),
        ("mask wrong.npz --select OCT2", 2),
        ("mask wrong.npz --select OCT9x", 2),
        ("mask wrong.npz --config none.toml", 2),
        ("explain OCT101", 0),
        ("explain OCT999", 2),
        ("rules --format json", 0),
        ("explain-pair wrong.npz 3 2", 0),
        ("explain-pair wrong.npz 3 99", 2),
    ],
)
def test_exit_codes(arguments: str, code: int) -> None:
    """Catches: a run that checked nothing and exits with 0, and usage errors that look like findings."""
    assert call(arguments) == code


def test_usage_errors_exit_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches: argparse's own exit that is another number."""
    for arguments in ([], ["mask"], ["mask", "right.npz", "--format", "yaml"], ["unknown"]):
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        assert exit_.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_a_fault_of_the_auditor_is_not_taken_for_a_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches: a crash that exits with 1, as findings do."""

    def broken(*_: object) -> int:
        raise KeyError("row")

    monkeypatch.setattr(audit_command, "publish", broken)
    assert main(["mask", "right.npz"]) == 101
    assert "OCT901" in capsys.readouterr().err


def test_an_unwritable_report_is_the_users_to_mend(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches: a traceback for a folder that does not exist."""
    assert main(["mask", "wrong.npz", "--output", "no/such/folder.txt"]) == 2
    assert "no/such/folder.txt" in capsys.readouterr().err


def test_a_baseline_hides_what_it_lists_and_nothing_new() -> None:
    """Catches: a baseline by row numbers, and one that hides other findings of the same rule."""
    assert call("mask wrong.npz --write-baseline known.json") == 1
    assert call("mask wrong.npz --baseline known.json") == 0
    worse = WRONG.copy()
    worse[2, 6] = True
    np.savez("wrong.npz", mask=worse, parents=np.array(PARENTS))
    assert call("mask wrong.npz --baseline known.json") == 1
    Path("known.json").write_text('{"schema_version": 9, "findings": []}')
    assert call("mask wrong.npz --baseline known.json") == 2


@pytest.mark.parametrize(
    ("table", "code"),
    [
        ('ignore = ["OCT101"]', 0),
        ('select = ["OCT102"]', 0),
        ('fail-level = "info"', 1),
        ('baseline = "known.json"', 2),
        ("max-findings = true", 2),
        ('fail_level = "error"', 2),
        ('colour = "always"', 2),
        ('fail-level = "severe"', 2),
        ("broken", 2),
    ],
)
def test_settings_of_the_project(table: str, code: int) -> None:
    """Catches: keys that are not known and pass, and settings that the command line cannot put aside."""
    Path("pyproject.toml").write_text(f"[tool.octopus.verify]\n{table}\n")
    assert main(["mask", "wrong.npz"]) == code
    assert main(["mask", "wrong.npz", "--isolated"]) == 1


def test_a_report_can_be_written_to_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches: output that goes to both places, or in another format than asked for."""
    call("mask wrong.npz --format json --output report.json")
    assert capsys.readouterr().out == ""
    report = json.loads(Path("report.json").read_text())
    assert (report["verdict"], report["command"], report["schema_version"]) == ("findings", "mask", 1)
    assert report["findings"][0]["location"]["source"] == "wrong.npz"


def test_why_a_pair_is_visible(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches: an explanation that takes a mount for a path, or knows of no way through others."""
    seen = matrix(seen_by(PARENTS, [(MOUNT.at, MOUNT.k0, MOUNT.k1)]))
    seen[5:, 0] = False
    np.savez("hop.npz", mask=seen, parents=np.array(PARENTS), position_ids=np.array(POSITIONS))
    assert call("explain-pair hop.npz 6 0") == 0
    told = capsys.readouterr().out
    for words in ("does not see row 0", "through others", "on its path", "positions 5 and 0"):
        assert words in told


def test_a_trace_file_is_replayed_and_its_rows_are_audited(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches: a trace that is only parsed."""
    right = traced(family)
    Path("right.jsonl").write_text("".join(json.dumps(event) + "\n" for event in right))
    assert main(["trace", "right.jsonl"]) == 0
    wrong = [dict(event) for event in with_event(right, 6, "cancel", thread=2)]
    for order, event in enumerate(wrong):
        event.update({"order": order} if order else {"events": len(wrong) - 1})
    Path("wrong.jsonl").write_text("".join(json.dumps(event) + "\n" for event in wrong))
    assert main(["trace", "wrong.jsonl"]) == 1
    assert "OCT611" in capsys.readouterr().out


def test_every_rule_can_be_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches: a rule whose text is missing, and a list that leaves one out."""
    assert main(["rules"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == sorted(rules()) and len(listed) > 70
    for code in listed:
        assert main(["explain", code]) == 0
        told = capsys.readouterr().out
        assert all(word in told for word in (code, "What:", "Why:", "Fix:"))


def child(*arguments: str) -> tuple[subprocess.CompletedProcess[str], float]:
    """A run in a process of its own, and the processor time that it took; the best of three is no accident's."""
    best = float("inf")
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return done, best


def test_a_small_dump_is_audited_within_400_ms_start_included() -> None:
    """Catches: torch, networkx or transformers imported by a command that needs numpy only."""
    done, seconds = child("-m", "octopus.verify.command.main", "mask", "wrong.npz")
    assert done.returncode == 1 and "OCT101" in done.stdout
    assert seconds < 0.4
    imports = "import sys; from octopus.verify.command.main import main"
    loaded = child("-c", f"{imports}; main(['all', 'wrong.npz']); print(sorted(sys.modules))")[0].stdout
    assert not [name for name in ("torch", "networkx", "transformers", "safetensors") if f"'{name}'" in loaded]


LARGE = r"""
import re, time
from pathlib import Path
from octopus.verify.command.main import main
start = time.process_time()
code = main(["all", "large.npz", "--format", "json", "--output", "report.json"])
# ru_maxrss would be that of the process which started this one, if that is larger.
peak_kib = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
print(code, time.process_time() - start, int(peak_kib[1]) / 2**20)
"""


@pytest.mark.parametrize("extra", [[], [[100_000, 100_001, 50_000, 50_001]]])
def test_131072_tokens_as_ranges_within_5_s_and_1_gib(extra: list[list[int]]) -> None:
    """Catches: anything of the size of the square; one leaked pair among four billion is still named."""
    parents, slices, positions = large_tree(root=32_768, branches=24, length=4096)
    table = np.array(slices + [[*pair, 0] for pair in extra])
    np.savez(
        "large.npz",
        q_ranges=table[:, :2],
        k_ranges=table[:, 2:4],
        attn_type_map=table[:, 4],
        parents=parents,
        position_ids=positions,
    )
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=False)
    code, seconds, gib = map(float, done.stdout.split())
    findings = json.loads(Path("report.json").read_text())["findings"]
    assert [(f["code"], f["witness"]["query"], f["witness"]["key"]) for f in findings] == [
        ("OCT101", 100_000, 50_000) for _ in extra
    ]
    assert code == len(extra) and seconds < 5 and gib < 1


def tree_of_single_rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """131,072 rows, each below a random earlier one: parents, depths, and `[N, 2]` (row, row that it sees)."""
    rng, length = np.random.default_rng(0), 131_072
    parents = np.append(-1, rng.integers(0, np.arange(1, length)))
    rows = above = np.arange(length)
    pairs, depths = [], np.full(length, -1)
    while len(rows):
        pairs.append(np.stack([rows, above], axis=1))
        depths[rows] += 1
        rows, above = rows[parents[above] >= 0], parents[above][parents[above] >= 0]
    return parents, depths, np.concatenate(pairs).astype(np.int32)


@pytest.mark.parametrize("wrong", [False, True])
def test_131072_segments_of_one_row_take_no_longer(wrong: bool) -> None:
    """Catches: a step of Python for each pair of segments: 1.6 million here, and a finding for each."""
    parents, depths, pairs = tree_of_single_rows()
    ranges = {"q_ranges": pairs[:, :1] + [0, 1], "k_ranges": pairs[:, 1:] + [0, 1]}
    if wrong:  # A plain causal triangle: 1.6 million ranges of wrong pairs.
        ranges = {name: np.array([[0, len(parents)]]) for name in ranges}
    kinds = np.full(len(ranges["q_ranges"]), int(wrong), dtype=np.int32)
    ranges = {name: table.astype(np.int32) for name, table in ranges.items()}
    np.savez("large.npz", **ranges, attn_type_map=kinds, parents=parents, position_ids=depths)
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=False)
    code, seconds, gib = map(float, done.stdout.split())
    findings = json.loads(Path("report.json").read_text())["findings"]
    assert {f["code"] for f in findings} == ({"OCT101"} if wrong else set())
    assert code == wrong and seconds < 5 and gib < 1


def large_tree(*, root: int, branches: int, length: int) -> tuple[np.ndarray, list[list[int]], np.ndarray]:
    """A root and branches below it: parents, slices with their kinds, positions."""
    total = root + branches * length
    parents, positions = np.arange(-1, total - 1), np.arange(total)
    slices = [[0, root, 0, root, 1]]
    for start in range(root, total, length):
        parents[start] = root - 1
        positions[start : start + length] = np.arange(root, root + length)
        slices += [[start, start + length, 0, root, 0], [start, start + length, start, start + length, 1]]
    return parents, slices, positions
