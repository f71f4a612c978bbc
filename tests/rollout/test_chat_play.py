"""Episodes of a chat model, in every mode, from a script of messages and from an engine.

Catches: sampled ids that are encoded again; a child that is not told its task; a root that sees more of a child than it
committed, or nothing of it; a wait that is never answered; a rewind that leaves something.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from chat_tokenizers import PLAIN, chat, smollm2
from test_chat_turn import around_marks
from tiny_models import tiny_qwen35
from toy_job import question

from octopus.core.ancestry import path_tokens
from octopus.core.cursor import Cursor
from octopus.core.graph import Graph
from octopus.core.thread import Thread
from octopus.rollout.agents import Agent, AgentLimits, State
from octopus.rollout.chat.dialect import Chat
from octopus.rollout.chat.plain import Piece
from octopus.rollout.engine import Engine
from octopus.rollout.environment import Task
from octopus.rollout.loop import Rollouts
from octopus.rollout.modes import MODES
from octopus.rollout.play import Play
from octopus.rollout.records import RolloutRecord, record_of
from octopus.rollout.sampling import Draw
from octopus.train.config import StepConfig
from octopus.train.packing import evenly, pack_rated
from octopus.train.passes import pack_log_probabilities

Script = Mapping[tuple[int, ...], Sequence[str]]


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


FORKING: Script = {
    (0,): ["<think>\nTwo.\n</think>\n\n" + call("fork", tasks=["find the snow", "find the fire"]), "snow.fall, Oven_2"],
    (0, 0): [call("search", query="white snow"), call("commit", text="snow.fall")],
    (0, 1): [call("search", query="red fire"), "Oven_2"],
}


def tokens(talk: Chat, text: str) -> list[int]:
    return talk._plain.encode_pieces([Piece(text=f"{text}<|im_end|>", markup=True)])


def play(script: Script, mode: str, talk: Chat | None = None, **limits: Any) -> Play:
    """Plays the messages on a graph that only records."""
    talk = talk or chat(PLAIN)
    graph, left = Graph(), {path: list(messages) for path, messages in script.items()}
    root = graph.thread()
    graph.append(root, talk.prompt(question(), MODES[mode]))
    allowed = AgentLimits(**{"turn_tokens": 500, "thread_tokens": 5000} | limits)
    played = Play(graph, root, environment=question(), codec=talk, mode=MODES[mode], limits=allowed)
    while played.outcome is None:
        for agent in list(played.those(State.READY)):
            for token in tokens(talk, left[agent.path].pop(0)):
                if agent.state is State.READY:
                    played.take(agent, token, None)
        for agent in list(played.those(State.CALLING)):
            assert agent.request is not None
            tool, _, words = agent.request
            played.settle(agent, tool.call_now(words))
        for agent in list(played.those(State.COMMITTING)):
            played.commit(agent)
    return played


def line(agent: Agent) -> str:
    """What an agent's line holds, without what it mounts."""
    return chat(PLAIN).decode(path_tokens(agent.thread.cursor))


def shown(agent: Agent) -> list[str]:
    """What each of its mounts shows."""
    segment, mounts = agent.thread.cursor.segment, []
    while segment is not None:
        parts = [part for mount in segment.mounts for part in mount.parts]
        mounts += [chat(PLAIN).decode(part.segment.tokens[part.start : part.stop]) for part in parts]
        segment = None if segment.parent is None else segment.parent.segment
    return mounts[::-1]


def test_a_fork_hands_over_kv() -> None:
    played = play(FORKING, "octopus")
    root, snow, fire = played.agents
    assert played.outcome == "answered" and played.answer == "snow.fall, Oven_2"
    called, said = shown(root)
    assert "snow.fall" in called and len(called) < 15 and said == "Oven_2"  # of a call, the tokens of its argument
    read = "<|im_start|>tool\nthread 1: \nthread 2: <|im_end|>\n<|im_start|>assistant\nsnow.fall, Oven_2"
    told = "<|im_start|>tool\nYou are thread 2 of 2. Your task: find the fire<|im_end|>\n<|im_start|>assistant\n"
    assert read in line(root) and told in line(fire)
    assert "<think>\nTwo." in line(snow)  # a child knows all that the root knew
    assert "<|im_start|>tool\nsnow.fall : white snow falls on the cold hill<|im_end|>" in line(snow)
    record = record_of(played, "chat")
    assert [branch.committed for branch in record.episode.branches] == ["snow.fall", "Oven_2"]
    assert [branch.documents for branch in record.episode.branches] == [("a",), ("b",)]


def test_a_fork_hands_over_text() -> None:
    """The root's line reads in text mode as it reads with mounts; a child is given the prompt and the call again."""
    played = play(FORKING, "text")
    root, snow, _ = played.agents
    assert "thread 1: snow.fall" in line(root) and "\nthread 2: Oven_2" in line(root)
    assert line(snow).count("Which objects are described?") == 1
    assert "<think>\nTwo." in line(snow) and "You are thread 1 of 2" in line(snow)
    assert all(not segment.mounts for segment in record_of(played, "chat").episode.segments)


def test_a_single_agent_is_offered_no_threads() -> None:
    played = play({(0,): [call("fork", tasks=["a"]), call("search", query="sea"), "sea"]}, "single")
    text = line(played.agents[0])
    assert '"read_thread"' not in text and '"rewind"' in text and '"get_document"' not in text
    assert "tool\nerror: there is no tool fork; there are search, get_document, rewind, answer" in text
    assert played.agents[0].events[0].kind == "mistake" and played.answer == "sea"


def test_siblings_wait_for_each_other_and_read() -> None:
    script = dict(FORKING)
    script[(0, 1)] = [
        call("wait_threads", threads=[2]),
        call("wait_threads", threads=[7]),
        call("wait_threads", threads=[1, 1]),
        call("read_thread", thread=1),
        call("commit", text="read"),
    ]
    played = play(script, "octopus")
    fire = played.agents[2]
    text = line(fire)
    assert "tool\nerror: one of those threads waits for this one<|im_end|>" in text
    assert "tool\nerror: there are threads 1 to 2 to wait for<|im_end|>" in text
    assert "tool\nthread 1 committed<|im_end|>" in text and "tool\nthread 1: <|im_end|>" in text
    assert "snow.fall" in shown(fire)[-1]


def test_a_child_that_failed_is_told_of() -> None:
    script = dict(FORKING)
    script[(0, 1)] = ["<|im_start|>"]
    played = play(script, "octopus")
    assert "\nthread 2 has failed<|im_end|>\n" in line(played.agents[0])
    assert len(shown(played.agents[0])) == 1


def test_a_rewind_leaves_nothing() -> None:
    played = play({(0,): [call("search", query="sea"), call("rewind", turns=1), "sea"]}, "single")
    assert line(played.agents[0]).endswith("<|im_start|>assistant\nsea<|im_end|>")
    assert "quiet sea" not in line(played.agents[0])
    assert [token.live for token in record_of(played, "x").episode.sampled].count(True) == len(
        tokens(chat(PLAIN), "sea")
    )


def test_smollm2_plays() -> None:
    played = play(FORKING, "octopus", smollm2())
    assert played.answer == "snow.fall, Oven_2"


class Typist(Engine):
    """Samples the given tokens, by the agent's place in its episode; log-probabilities are the model's."""

    script: dict[tuple[int, ...], list[int]]

    def _choose(
        self, hidden_NC: torch.Tensor, records: Sequence[Thread], draws: Sequence[Draw], temperature: float
    ) -> tuple[list[int], list[float]]:
        chosen = [self.script[draw.path][draw.made] for draw in draws]
        log_probabilities_NV = self.backbone.logits(hidden_NC).log_softmax(-1)
        return chosen, log_probabilities_NV[range(len(chosen)), chosen].tolist()


@pytest.mark.parametrize("mode", ["octopus", "text"])
def test_what_an_engine_samples_is_what_is_trained(mode: str) -> None:
    """No id is encoded again, though the tokenizer would write the text otherwise; the trainer has the same figures.

    Rows 13 and 14 of public bugs. Nor is the message that forked, which children are given.
    """
    talk = chat(PLAIN)
    model = tiny_qwen35(vocab_size=1024, layers=2, initializer_range=0.06)
    engine = Typist(model, talk.transformers(), pages=1500, state_slots=200)
    end = tokens(talk, "")[0]
    engine.script = {
        path: [token for text in messages for token in [*_letters(talk, text), end]]
        for path, messages in FORKING.items()
    }
    limits = AgentLimits(turn_tokens=500, thread_tokens=5000)
    rollouts = Rollouts(engine, talk, MODES[mode], limits=limits)
    record: RolloutRecord = rollouts.run([Task(name="chat", environment=question())])[0][0]
    assert record.answer == "snow.fall, Oven_2"
    sampled: dict[int, list[int]] = {}
    for token in record.episode.sampled:
        sampled.setdefault(token.thread, []).append(token.segment.tokens[token.offset])
    assert list(sampled.values()) == list(engine.script.values())
    assert sampled[min(sampled)] != tokens(talk, "".join(FORKING[(0,)]))
    forked = engine.script[(0,)][: engine.script[(0,)].index(end) + 1]
    begun = {token.thread: path_tokens(Cursor(token.segment, token.offset)) for token in record.episode.sampled[::-1]}
    assert len(record.episode.branches) == 2
    for branch in record.episode.branches:
        known = begun[branch.thread]
        assert forked in [known[start : start + len(forked)] for start in range(len(known))]
    packed = pack_rated([evenly(record.episode, 1.0)])
    assert packed.loss_terms == sum(map(len, sampled.values()))  # the mark that ends a message is learned as well
    with torch.no_grad():
        trained = pack_log_probabilities(engine.backbone, packed, step=StepConfig())
    assert trained.tolist() == pytest.approx(list(packed.sampled_log_probabilities_N), abs=1e-9)


def _letters(talk: Chat, text: str) -> list[int]:
    """The text in as small tokens as there are, marks whole."""
    return [token for piece in around_marks(list(text)) for token in piece]
