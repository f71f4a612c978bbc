"""The final table of a job, made from its run folder alone, so that it can be printed again.

The table holds nothing that depends on the speed of a machine: a run that was killed and resumed has the very same one.
Speed is told apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from octopus.core.errors import ConfigError
from octopus.train.bootstrap import paired_interval
from octopus.train.job_config import load_job
from octopus.train.journal import read_journal

Line = dict[str, Any]
ENDS = 5
"""Steps at each end of the run over which the reward is averaged."""


def final_table(folder: Path) -> str:
    """The results of a finished job.

    Raises:
        ConfigError: The folder holds no job, or one that has not finished.
    """
    config = load_job(folder / "config.toml")
    evaluations = read_journal(folder / "evaluations.jsonl")
    before, after = (_only(evaluations, name, folder) for name in ("before", "after"))
    steps = [line for line in read_journal(folder / "metrics.jsonl") if line["stage"] == "grpo"]
    title = f"mode {config.rollout.mode}, {config.imitation.steps} steps of imitation, {len(steps)} of GRPO"
    return "\n".join(
        [
            title,
            "",
            *_exact_match(before, after, config.run.seed),
            "",
            *_validation(evaluations, after["weights_step"]),
            *(_training(steps) if steps else ()),
        ]
    )


def speed(folder: Path) -> str:
    """How fast the job ran, on the machine that it ran on."""
    metrics = read_journal(folder / "metrics.jsonl")
    sampled, rolled = _sum(metrics, "sampled_tokens"), _sum(metrics, "rollout_seconds")
    packed, trained = _sum(metrics, "packed_tokens"), _sum(metrics, "step_seconds")
    evaluated = _sum(read_journal(folder / "evaluations.jsonl"), "evaluation_seconds")
    rates = [
        f"rollout {sampled / rolled:,.0f} sampled tokens/s" if rolled else "no rollouts",
        f"training {packed / trained:,.0f} packed tokens/s" if trained else "no training",
    ]
    spent = f"{rolled:.0f} s of rollout, {trained:.0f} s of training, {evaluated:.0f} s of evaluation"
    return f"speed: {', '.join(rates)}; {spent}"


def _exact_match(before: Line, after: Line, seed: int) -> Iterator[str]:
    count = len(before["questions"])
    yield f"exact match, greedy, {count} test questions   before    after   difference [95 % interval, paired]"
    everything = range(count)
    yield _compared("all", before, after, "correct", everything, seed)
    for parts in sorted(set(before["parts"]) - {0}):
        chosen = [i for i, own in enumerate(before["parts"]) if own == parts]
        label = f"{parts} part{'s' if parts > 1 else ''} ({len(chosen)})"
        yield _compared(label, before, after, "correct", chosen, seed)
    yield _compared("reward of all, half for parts of an answer", before, after, "rewards", everything, seed)


def _compared(label: str, before: Line, after: Line, key: str, chosen: Sequence[int], seed: int) -> str:
    old, new = ([line[key][i] for i in chosen] for line in (before, after))
    interval = paired_interval(old, new, seed=seed)
    return f"  {label:<42}{sum(old) / len(old):8.3f} {sum(new) / len(new):8.3f}   {interval}"


def _validation(evaluations: Sequence[Line], best: int) -> Iterator[str]:
    seen = [f"{line['step']}: {match_of(line):.3f}" for line in evaluations if line["name"] == "validation"]
    yield f"validation by step      {', '.join(seen)}; best save is step {best}"


def _training(steps: Sequence[Line]) -> Iterator[str]:
    rewards = [line["reward"] for line in steps]
    first, last = rewards[:ENDS], rewards[-ENDS:]
    yield f"reward when sampled     first steps {sum(first) / len(first):.3f}, last steps {sum(last) / len(last):.3f}"
    yield f"episodes                {_counts(steps, 'outcomes')}"
    yield f"primitives              {_counts(steps, 'primitives')}"
    paths, unique = _sum(steps, "path_tokens"), _sum(steps, "unique_tokens")
    yield f"packing ratio           {paths / unique:.2f} ({paths:,} path tokens, {unique:,} unique)"
    held, copied = _sum(steps, "pages_held"), _sum(steps, "pages_copied")
    yield f"KV pages                {held:,} held, {copied:,} if every thread had its own copy"


def match_of(line: Line) -> float:
    """The exact match of an evaluation's line."""
    return sum(line["correct"]) / len(line["correct"])


def _counts(lines: Sequence[Line], key: str) -> str:
    total: Counter[str] = Counter()
    for line in lines:
        total.update(line[key])
    return ", ".join(f"{name} {count:,}" for name, count in total.items())


def _sum(lines: Sequence[Line], key: str) -> Any:
    return sum(line.get(key) or 0 for line in lines)


def _only(evaluations: Sequence[Line], name: str, folder: Path) -> Line:
    for line in evaluations:
        if line["name"] == name:
            return line
    raise ConfigError(f"{folder}: no finished job: its evaluation {name!r} is missing")
