"""The example job on held-out questions, with its baselines.

    python benchmarks/job.py --folder runs/full --json benchmarks/results/job.jsonl

From the same policy, on the same questions, greedy: as it comes (`warm`); after GRPO with real rollouts (`grpo`); after
imitation for as long as GRPO took (`imitation`); as it comes, in the modes `single` and `text`. Beside them stand the
two scripts that imitation mixes, the patient and the impatient one, and chance: naming documents blindly. GRPO and
imitation run with several seeds; the first is the default one. Two processes of one thread each share the work.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from octopus.retrieval.corpus import Corpus
from octopus.retrieval.questions import Split, questions
from octopus.rollout.environment import DescribedObjects
from octopus.rollout.scripted import play_script
from octopus.train.bootstrap import paired_interval
from octopus.train.evaluate import evaluate
from octopus.train.job import run_job
from octopus.train.job_config import JobConfig, load_job
from octopus.train.journal import read_journal
from octopus.train.players import new_engine, new_rollouts
from octopus.train.policy import load_policy, policy_folder
from octopus.train.stages import Imitation, new_optimizer
from octopus.train.tasks import LibraryTasks

CONFIG = Path(__file__).parent.parent / "examples" / "job.toml"
CHECKS = 4
"""How often imitation is evaluated on validation questions on the way; the best of them counts, as in a job."""

Correct = list[int]
"""For each question whether it was answered exactly right, 0 or 1."""


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="run folders; what is there is deleted")
    parser.add_argument("--json", type=Path, required=True, help="result lines")
    parser.add_argument("--questions", type=int, default=1_000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    shutil.rmtree(options.folder, ignore_errors=True)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    configs = [configured(options.folder, seed, options.questions) for seed in range(options.seeds)]
    started = time.perf_counter()
    with ProcessPoolExecutor(
        2, mp_context=get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        reinforced = [
            _told(f"grpo, seed {config.run.seed}", pool.submit(reinforce, config)) for config in configs
        ]
        modes = {mode: _told(mode, pool.submit(played, configs[0], mode)) for mode in ("single", "text")}
        seconds = [future.result()[2] for future in reinforced]
        imitated = [
            _told(f"imitation, seed {config.run.seed}", pool.submit(imitate, config, spent))
            for config, spent in zip(configs, seconds, strict=True)
        ]
        outcomes = [(*grpo.result(), *more.result()) for grpo, more in zip(reinforced, imitated, strict=True)]
        others = {mode: future.result() for mode, future in modes.items()}
    others |= {
        "script-patient": scripted(configs[0], patient=True),
        "script-impatient": scripted(configs[0], patient=False),
    }
    lines = list(results(outcomes, others, chance(configs[0]), options.questions))
    options.json.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    print(
        f"\nall of it took {(time.perf_counter() - started) / 60:.0f} min; result lines are in {options.json}"
    )


def configured(folder: Path, seed: int, count: int) -> JobConfig:
    """The example with a seed, on so many test questions."""
    overrides = (
        f"run.folder={folder / f'grpo-{seed}'}",
        f"run.seed={seed}",
        f"evaluation.test_questions={count}",
    )
    return load_job(CONFIG, overrides=overrides)


def reinforce(config: JobConfig) -> tuple[Correct, Correct, float]:
    """Runs the job; returns the test results before and after, and the seconds that rollouts and training took."""
    run_job(config, report=_log(config))
    folder = Path(config.run.folder)
    by_name = {line["name"]: line["correct"] for line in read_journal(folder / "evaluations.jsonl")}
    metrics = read_journal(folder / "metrics.jsonl")
    seconds = sum(line["rollout_seconds"] + line["step_seconds"] for line in metrics)
    return by_name["before"], by_name["after"], seconds


def imitate(config: JobConfig, seconds: float) -> tuple[Correct, int]:
    """Imitates for so long, evaluation left aside; returns the test results of the best check, and its steps."""
    torch.manual_seed(config.run.seed)
    model, codec = load_policy(policy_folder(config.model.name), dtype=torch.float32, device="cpu")
    engine, tasks, report = new_engine(model, codec, config.rollout), LibraryTasks(config), _log(config)
    greedy = new_rollouts(engine, codec, config.rollout, temperature=0.0)
    stage = Imitation(config, backbone=engine.backbone, codec=codec, tasks=tasks)
    optimizer = new_optimizer(model, stage.optimizer)

    def score(split: Split) -> Correct:
        engine.advance_weights()
        return list(map(int, evaluate(greedy, tasks.held_out(split)).correct))

    best, weights, steps = sum(score("validation")), copy.deepcopy(model.state_dict()), 0
    spent, step = 0.0, 0
    for check in range(1, CHECKS + 1):
        while spent < seconds * check / CHECKS:
            begun = time.perf_counter()
            step += 1
            stage.step(step, optimizer)
            spent += time.perf_counter() - begun
        found = sum(score("validation"))
        report(
            f"imitation: step {step}, {spent:.0f} s, {found} validation questions right, {best} in the best so far"
        )
        if found >= best:
            best, weights, steps = found, copy.deepcopy(model.state_dict()), step
    model.load_state_dict(weights)
    return score("test"), steps


def played(config: JobConfig, mode: str) -> Correct:
    """The test results of the policy as it comes, in another mode."""
    rollout = load_job(CONFIG, overrides=(f"rollout.mode={mode}",)).rollout
    model, codec = load_policy(policy_folder(config.model.name), dtype=torch.float32, device="cpu")
    greedy = new_rollouts(new_engine(model, codec, rollout), codec, rollout, temperature=0.0)
    return list(map(int, evaluate(greedy, LibraryTasks(config).held_out("test")).correct))


def scripted(config: JobConfig, *, patient: bool) -> Correct:
    """The test results of a script."""
    _, codec = load_policy(policy_folder(config.model.name), dtype=torch.float32, device="cpu")
    return [
        int(play_script(task.name, task.environment, codec, "octopus", patient=patient).correct)
        for task in LibraryTasks(config).held_out("test")
        if isinstance(task.environment, DescribedObjects)
    ]


def chance(config: JobConfig) -> float:
    """Exact match of naming as many documents as there are parts, each drawn blindly."""
    asked = questions(
        "test", config.evaluation.test_questions, seed=config.evaluation.seed, parts=config.task.parts
    )
    size = len(Corpus.load())
    return sum(size ** -len(question.parts) for question in asked) / len(asked)


def results(
    outcomes: Sequence[tuple[Correct, Correct, float, Correct, int]],
    others: dict[str, Correct],
    blind: float,
    count: int,
) -> Any:
    """Prints a table and yields the result lines."""
    case = f"job/heldout-{count}"
    warm = outcomes[0][0]
    print(f"\n{case}, exact match, greedy; rise over the warm policy with its paired 95 % interval")

    def line(variant: str, value: float, note: str = "", **more: Any) -> dict[str, Any]:
        print(f"  {variant:<18}{value:8.4f}   {note}")
        return {
            "benchmark": "job", "case": case, "variant": variant, "metric": "exact_match", "value": round(value, 4),
            "unit": "share", **more, "device": f"{platform.machine()} CPU, 2 processes of 1 thread",
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
            "date": datetime.now(UTC).date().isoformat(), "command": f"python {' '.join(sys.argv)}",
        }  # fmt: skip

    yield line("chance", blind)
    for name, correct in ({"warm": warm} | others).items():
        yield line(name, sum(correct) / count)
    for seed, (before, after, seconds, imitated, steps) in enumerate(outcomes):
        for variant, correct, note in (
            ("grpo", after, f"{seconds:.0f} s of rollouts and training"),
            ("imitation", imitated, f"{seconds:.0f} s; best at step {steps}"),
        ):
            rise = paired_interval(before, correct, seed=seed)
            interval = {
                "rise": round(rise.difference, 4),
                "rise_low": round(rise.low, 4),
                "rise_high": round(rise.high, 4),
            }
            yield line(variant, sum(correct) / count, f"{rise}   seed {seed}, {note}", seed=seed, **interval)


def _told(name: str, future: Future[Any]) -> Future[Any]:
    began = time.perf_counter()
    future.add_done_callback(lambda _: _say(f"{name}: done after {time.perf_counter() - began:.0f} s"))
    return future


def _log(config: JobConfig) -> Callable[[str], None]:
    return lambda text: _say(f"[seed {config.run.seed}] {text}")


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
