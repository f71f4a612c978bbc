"""Several ranks have one run folder: every line is written once, every save by all of them.

Catches: lines, evaluations and figures of loggers that stand there once a rank; a rank that reads what the first one
has not written yet, or ranks that disagree about the best save; a best save that is damaged and used, or ends the run
though another one is whole.
"""

from pathlib import Path

import pytest
import torch
from test_job_run import config
from test_loggers import scalars
from test_saves_damage import flipped
from test_saves_ranks import made, on_ranks

from octopus.core.errors import OctopusError
from octopus.train import saves
from octopus.train.evaluate import Evaluation
from octopus.train.journal import read_journal
from octopus.train.run_folder import RunFolder


def evaluation(correct: int) -> Evaluation:
    return Evaluation(
        questions=("a", "b"),
        parts=(1, 1),
        correct=(correct > 0, correct > 1),
        rewards=(0.0, 0.0),
        outcomes={},
        seconds=0.0,
    )


def run_on_every_rank(folder: Path, rank: int) -> None:
    settings = config(folder / "run", imitation=0, grpo=3, loggers=("tensorboard",))
    run_folder = RunFolder(settings, report=pytest.fail)
    run_folder.begin()
    model, optimizer = made(seed=0)
    for step, correct in enumerate((1, 2, 0)):
        run_folder.write_step(step, {"loss": 0.5 + rank, "stage": "grpo"}, ())
        state = saves.generators()
        run_folder.save(step, model=model, optimizer=optimizer, generators=state, events=())
        run_folder.save(step, model=model, optimizer=optimizer, generators=state, events=())  # done before
        run_folder.write_evaluation(step, "validation", evaluation(correct), weights_step=step)
        run_folder.prune()
    best = run_folder.best()
    assert best.step == 1 and best.world_size == 2
    run_folder.draw()
    run_folder.close()


def test_two_ranks_write_every_line_once(tmp_path: Path) -> None:
    """Row 65 of public bugs: figures that are counted once a process."""
    on_ranks(2, run_on_every_rank, tmp_path)
    run = tmp_path / "run"
    lines = read_journal(run / "metrics.jsonl")
    assert [(line["step"], line["loss"]) for line in lines] == [(0, 0.5), (1, 0.5), (2, 0.5)]
    assert [line["step"] for line in read_journal(run / "evaluations.jsonl")] == [0, 1, 2]
    assert scalars(run, "loss") == [(0, 0.5), (1, 0.5), (2, 0.5)]
    assert saves.saved_steps(run) == [1, 2]


def test_a_damaged_best_save_is_named_and_the_next_best_is_taken(tmp_path: Path) -> None:
    lines: list[str] = []
    run_folder = RunFolder(config(tmp_path, imitation=0, grpo=3), report=lines.append)
    run_folder.begin()
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters())
    for step, correct in enumerate((1, 2)):
        run_folder.save(step, model=model, optimizer=optimizer, generators=saves.generators(), events=())
        run_folder.write_evaluation(step, "validation", evaluation(correct), weights_step=step)
    flipped(tmp_path / "step-000001" / "model.safetensors")
    assert run_folder.best().step == 0
    assert len(lines) == 1 and "step-000001/model.safetensors is not what was written" in lines[0]
    flipped(tmp_path / "step-000000" / "model.safetensors")
    with pytest.raises(OctopusError, match="none of the saves that were evaluated is whole"):
        run_folder.best()
