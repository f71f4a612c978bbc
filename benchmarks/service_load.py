"""What 1,000 requests a second on /metrics and /status cost a run that trains.

    python benchmarks/service_load.py --json benchmarks/results/service_load.jsonl

One job is run three times with one seed, so that its steps do the same work each time. Stretches of three kinds take
turns, in each run shifted by one, so that a step is compared with itself:

    alone      nobody asks
    asked      a client asks this run
    elsewhere  a client asks a front of another process, which has nothing to do with this run

What `asked` costs beyond `elsewhere` is the service's; the rest is what any busy process beside a run costs on this
machine. A client is a process of its own, and so is the front that answers it. The run has one thread: of two cores it
keeps one, if nothing else is at work.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from figures import Figures

from octopus.train.job import run_job
from octopus.train.job_config import JobConfig, load_job
from octopus.train.service.answers import Answers
from octopus.train.service.fronting import fronted
from octopus.train.service.observed import Observed

ROOT = Path(__file__).parent.parent
JOB = ROOT / "examples" / "job.toml"
MOST_SLOWER = 0.05
SETTINGS = (
    "grpo.questions=1",
    "grpo.rollouts=4",
    "evaluation.validation_questions=1",
    "evaluation.test_questions=1",
)
GROUPS = 10

Kind = Literal["alone", "asked", "elsewhere"]
KINDS: tuple[Kind, ...] = ("alone", "asked", "elsewhere")
NewClient = Callable[[int], "subprocess.Popen[str]"]


@dataclass(frozen=True, kw_only=True)
class Step:
    """How long a step took, by the clock and of the processor in the thread that trains."""

    kind: Kind
    wall_s: float
    cpu_s: float


class Loaded(Observed):
    """A run whose stretches of time are of three kinds in turn."""

    def __init__(
        self, folder: str, *, new_client: NewClient, ports: Mapping[Kind, int], turn: int, stretch_s: float
    ):
        super().__init__(folder)
        self.steps: dict[int, Step] = {}
        self.said: list[dict[str, float]] = []
        self._new_client, self._ports, self._stretch_s = new_client, ports, stretch_s
        self._turn, self._until_s = turn - 1, 0.0
        self._client: subprocess.Popen[str] | None = None
        self._begun = (0.0, 0.0)

    def step(self, step: int, of: int, figures: Mapping[str, Any]) -> None:
        """A step counts if the client asked all the time, or nobody did."""
        took = (time.perf_counter() - self._begun[0], time.thread_time() - self._begun[1])
        if self._client is None or self._client.poll() is None:
            self.steps[step] = Step(kind=KINDS[self._turn % len(KINDS)], wall_s=took[0], cpu_s=took[1])
        super().step(step, of, figures)

    def between_steps(self, stopping: Callable[[], bool]) -> bool:
        """Begins another stretch once one is over."""
        if time.perf_counter() > self._until_s:
            self.end_stretch()
            self._turn += 1
            kind = KINDS[self._turn % len(KINDS)]
            self._client = None if kind == "alone" else self._new_client(self._ports[kind])
            self._until_s = time.perf_counter() + self._stretch_s
        self._begun = time.perf_counter(), time.thread_time()
        return super().between_steps(stopping)

    def end_stretch(self) -> None:
        """Waits for the client to end, if there is one."""
        if self._client is not None:
            said, _ = self._client.communicate()
            self.said.append(json.loads(said))
            self._client = None


@contextmanager
def elsewhere() -> Iterator[int]:
    """The port of a front whose run is another process."""
    code = f"import sys; sys.path[:0] = {sys.path!r}; import service_load; service_load.be_elsewhere()"
    other = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdin is not None and other.stdout is not None
    yield int(other.stdout.readline())
    other.stdin.close()
    other.wait()


def be_elsewhere() -> None:
    """Has an idle run served until the standard input ends."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        fronted(Answers(Observed("elsewhere")), listener, hosts=["127.0.0.1"], token=None),
    ):
        print(listener.getsockname()[1], flush=True)
        sys.stdin.read()


def run(config: JobConfig, *, rate: float, stretch_s: float, turn: int) -> Loaded:
    """A run of the job, which begins with a stretch of this kind."""

    def new_client(port: int) -> subprocess.Popen[str]:
        command = [sys.executable, str(ROOT / "benchmarks/service_client.py"), "127.0.0.1", f"{port}"]
        command += ["--rate", f"{rate}", "--seconds", f"{stretch_s}"]
        client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert client.stdout is not None and client.stdout.readline() == "begun\n"
        return client

    with socket.create_server(("127.0.0.1", 0)) as listener, elsewhere() as other:
        ports: dict[Kind, int] = {"asked": listener.getsockname()[1], "elsewhere": other}
        at = {"turn": turn, "stretch_s": stretch_s}
        observed = Loaded(config.run.folder, new_client=new_client, ports=ports, **at)  # type: ignore[arg-type]
        with fronted(Answers(observed), listener, hosts=["127.0.0.1"], token=None):
            run_job(config, watch=observed, report=lambda _: None)
            observed.end_stretch()
    return observed


def same_steps(runs: Sequence[Loaded]) -> list[dict[Kind, Step]]:
    """Of each step that was taken in stretches of all kinds: how long it took in each."""
    numbers = set.intersection(*(set(found.steps) for found in runs))
    steps = [{found.steps[number].kind: found.steps[number] for found in runs} for number in sorted(numbers)]
    return [step for step in steps if len(step) == len(KINDS)]


def slower(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    """By which share the first of each pair is more, in all, and the standard error of that (jackknife over groups)."""

    def share(kept: list[tuple[float, float]]) -> float:
        return sum(one for one, _ in kept) / sum(other for _, other in kept) - 1

    parts = [
        share([pair for place, pair in enumerate(pairs) if place % GROUPS != group])
        for group in range(GROUPS)
    ]
    spread = sum((part - statistics.fmean(parts)) ** 2 for part in parts)
    return share(pairs), ((GROUPS - 1) / GROUPS * spread) ** 0.5


def tell(figures: Figures, case: str, runs: Sequence[Loaded]) -> None:
    """Prints what was measured."""
    clients = [said for found in runs for said in found.said]
    figures.say(
        case, "requests_per_s", min(said["requests_per_s"] for said in clients), "1/s", note="slowest stretch"
    )
    figures.say(case, "p50_ms", statistics.median(said["p50_ms"] for said in clients), "ms")
    figures.say(case, "p99_ms", max(said["p99_ms"] for said in clients), "ms", note="slowest stretch")
    figures.say(case, "not_200", sum(said["not_200"] for said in clients), "requests")
    steps = same_steps(runs)
    for kind in KINDS:
        took = statistics.fmean(step[kind].wall_s for step in steps)
        figures.say(case, "step_s", took, "s", variant=kind, note=f"mean of {len(steps)} steps")
    for kind, than in (("asked", "alone"), ("elsewhere", "alone"), ("asked", "elsewhere")):
        for metric in ("wall_s", "cpu_s"):
            share, error = slower(
                [(getattr(step[kind], metric), getattr(step[than], metric)) for step in steps]
            )
            variant = f"{kind} beside {than}"
            figures.say(
                case, f"slower {metric}", share, "1", variant=variant, note=f"standard error {error:.4f}"
            )
            if variant == "asked beside alone" and metric == "wall_s":
                name = f"a step is at most {MOST_SLOWER:.0%} slower"
                figures.gate(case, name, share <= MOST_SLOWER, f"{share:.4f}, standard error {error:.4f}")


def main() -> int:
    """Runs them, and prints the figures; 1 if a step is slowed by more than a twentieth."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=float, default=1000.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=30.0, help="of a stretch")
    parser.add_argument("--steps", type=int, default=180)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(len(KINDS)):
            overrides = [*SETTINGS, f"run.folder={folder}/{turn}", f"grpo.steps={options.steps}"]
            overrides += [f"evaluation.every_steps={options.steps}", f"run.save_every_steps={options.steps}"]
            config = load_job(JOB, overrides=overrides)
            runs.append(run(config, rate=options.rate, stretch_s=options.seconds, turn=turn))
    figures = Figures("service_load", "cpu", " ".join(["python", *sys.argv]), options.json)
    tell(figures, f"{options.rate:.0f} requests/s", runs)
    return bool(figures.red)


if __name__ == "__main__":
    sys.exit(main())
