"""SmolLM2 with its real weights answers through its own chat template.

Catches: a prompt that the model does not understand; a message that is not ended; figures that the trainer lacks.
"""

import pytest
import torch
from smollm2 import GGUF_FILE, smollm2_folder

from octopus.rollout.agents import AgentLimits
from octopus.rollout.chat.dialect import Chat
from octopus.rollout.engine import Engine
from octopus.rollout.environment import Task
from octopus.rollout.loop import Rollouts
from octopus.rollout.modes import MODES
from octopus.train.config import StepConfig
from octopus.train.data.asked import AskedRow
from octopus.train.data.rewards import Rewards
from octopus.train.data.rows import rows_of
from octopus.train.packing import evenly, pack_rated
from octopus.train.passes import pack_log_probabilities


def knows(completions: list[list[dict[str, str]]], **columns: object) -> list[float]:
    return [float("Paris" in said[0]["content"]) for said in completions]


@pytest.mark.slow
def test_a_question_is_answered() -> None:
    engine = Engine.from_pretrained(str(smollm2_folder()), gguf_file=GGUF_FILE, dtype=torch.float32, pages=64)
    talk = Chat(engine.tokenizer)
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is the capital of France?"}]
    row = AskedRow(row=rows_of([{"prompt": asked}])[0], rewards=Rewards([knows]))
    limits = AgentLimits(turn_tokens=64, thread_tokens=128)
    rollouts = Rollouts(engine, talk, MODES["single"], temperature=0.0, limits=limits)
    ((record,),) = rollouts.run([Task(name="capital", environment=row)])
    assert record.outcome == "answered" and record.episode.reward == 1.0, record
    packed = pack_rated([evenly(record.episode, 1.0)])
    with torch.no_grad():
        trained = pack_log_probabilities(engine.backbone, packed, step=StepConfig())
    assert trained.tolist() == pytest.approx(list(packed.sampled_log_probabilities_N), abs=1e-3)
