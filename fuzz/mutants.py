"""Mutants of the core: each is attacked by the core's tests and the smoke fuzz, and ought not to survive."""

from __future__ import annotations

import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from fuzz.equivalents import Equivalent, claim_about
from fuzz.mutation import Mutation, mutated, mutations

ROOT = Path(__file__).parent.parent
CORE = Path("octopus/core")
SPARED_FILES = {"__init__.py", "errors.py", "storage.py", "shortage.py"}
"""No behaviour, tensors, or messages alone."""
SPARED_TESTS = ("test_cost.py", "test_storage.py")
"""Of times, which say little on a busy machine, and of a spared file."""
PLAIN_PYTEST = ("-x", "-q", "-p", "no:cacheprovider", "--noconftest")
ATTACKS = (
    ("-m", "pytest", *PLAIN_PYTEST, "tests/corpus"),
    ("-m", "pytest", *PLAIN_PYTEST, *(f"--ignore=tests/core/{name}" for name in SPARED_TESTS), "tests/core"),
    ("-m", "fuzz", "smoke"),
)
"""Cheapest first: most mutants die in the first second or two."""
MOST_MEMORY_BYTES = 3 << 30
"""An attack that asks for more memory dies of it: a mutant that allocates for ever must not take the machine."""
PATIENCE = 4
"""How many seconds of a clock an attack may take for each second of processor time that it is given."""
COPIED = ("fuzz", "tests")
LINKED = ("pyproject.toml", "docs")


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What became of a mutant, and by which attack: `killed`, `timeout`, `survived` or `equivalent`; see `judged`."""

    path: Path
    mutation: Mutation | None
    verdict: str
    by: str

    def __str__(self) -> str:
        change = "" if self.mutation is None else f":{self.mutation.line}  {self.mutation.what}"
        return f"{self.verdict:9} {self.path.as_posix()}{change}" + (f"  ({self.by})" if self.by else "")


def all_mutants(core: Path = ROOT / CORE) -> list[tuple[Path, Mutation]]:
    """Every mutation of every file of the core whose behaviour the attacks can see."""
    return [
        (CORE / path.name, mutation)
        for path in sorted(core.glob("*.py"))
        if path.name not in SPARED_FILES
        for mutation in mutations(path.read_text())
    ]


def draw_mutants(seed: int, count: int, *, core: Path = ROOT / CORE) -> list[tuple[Path, Mutation]]:
    """So many different mutants of the core. Raises ValueError if it has fewer."""
    everything = all_mutants(core)
    if count > len(everything):
        raise ValueError(f"the core has {len(everything)} mutants, {count} were asked for")
    return random.Random(seed).sample(everything, count)


def attack(original: Path, path: Path, mutation: Mutation | None, *, timeout_s: float) -> Verdict:
    """Runs the attacks on one mutant (None: on the core as it is), in a folder of its own, until one of them fails."""
    with tempfile.TemporaryDirectory(prefix="octopus-mutant-") as folder:
        root = Path(folder) / "mutant"
        shutil.copytree(original, root, symlinks=True)
        if mutation is not None:
            (root / path).write_text(mutated((original / path).read_text(), mutation))
        for attack in ATTACKS:
            verdict = attack_once(root, attack, timeout_s=timeout_s)
            if verdict != "survived":
                return Verdict(path=path, mutation=mutation, verdict=verdict, by=attack[-1])
    return Verdict(path=path, mutation=mutation, verdict="survived", by="")


def attack_once(root: Path, attack: tuple[str, ...], *, timeout_s: float) -> str:
    """The verdict of one attack. It gets so many seconds of processor time, and on a busy machine more of a clock's."""
    command = [sys.executable, "-B", *attack]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        seconds = int(timeout_s)
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (seconds, seconds + 5))
        resource.prlimit(process.pid, resource.RLIMIT_DATA, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
        try:
            status = process.wait(timeout=PATIENCE * timeout_s)
        except subprocess.TimeoutExpired:  # It sleeps: a deadlock.
            process.kill()
            return "timeout"
    return "survived" if status == 0 else "timeout" if status == -signal.SIGXCPU else "killed"


def run(seed: int, count: int, *, jobs: int, timeout_s: float) -> Iterator[Verdict]:
    """The verdict on the core as it is, then those on the mutants in the order of the draw.

    All are made from one copy of the sources, whatever is edited or saved beside them meanwhile.
    """
    with tempfile.TemporaryDirectory(prefix="octopus-mutants-of-") as folder, ThreadPoolExecutor(jobs) as pool:
        original = Path(folder) / "original"
        _lay_out(original)
        drawn = draw_mutants(seed, count, core=original / CORE)
        yield attack(original, CORE, None, timeout_s=timeout_s)
        yield from pool.map(lambda mutant: attack(original, *mutant, timeout_s=timeout_s), drawn)


def judged(verdict: Verdict, claims: list[Equivalent]) -> Verdict:
    """A survivor that is claimed to be equivalent becomes `equivalent`, any other mutant so claimed `refuted`."""
    claim = None if verdict.mutation is None else claim_about(claims, verdict.path, verdict.mutation)
    if claim is None:
        return verdict
    if verdict.verdict == "survived":
        return replace(verdict, verdict="equivalent", by=claim.why)
    return replace(verdict, verdict="refuted", by=f"called equivalent, {verdict.verdict} by {verdict.by}")


def summary(verdicts: list[Verdict]) -> str:
    """Counts, and the share that was killed or shown equivalent."""
    counts = Counter(verdict.verdict for verdict in verdicts)
    good = counts["killed"] + counts["timeout"] + counts["equivalent"]
    share = 100 * good / max(1, len(verdicts))
    return (
        f"{len(verdicts)} mutants: {counts['killed']} killed, {counts['timeout']} timeouts, {counts['equivalent']} "
        f"equivalent, {counts['survived']} survived; {share:.1f} % killed or equivalent"
    )


def _lay_out(root: Path) -> None:
    """Copies of the core and of what attacks it, which saves what it finds beside it; links to everything else."""
    package = root / "octopus"
    package.mkdir(parents=True)
    cruft = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        shutil.copytree(ROOT / name, root / name, ignore=cruft)
    for entry in (ROOT / "octopus").iterdir():
        if entry.name == "core":
            shutil.copytree(entry, package / "core", ignore=cruft)
        elif entry.name != "__pycache__":
            (package / entry.name).symlink_to(entry)
    for name in LINKED:
        (root / name).symlink_to(ROOT / name)
