"""Scripted policies: what a policy that knows how to play would sample, for imitation.

The script of each mode searches with the words of a part, takes the name from what the search showed, and answers with
the names in order. It reads what a model would read and no more: where the search shows the wrong object, it answers
wrongly. Where the search shows nothing, it asks again if it is patient, and gives the part up if it is not.

It goes through the same play, codec and environment as a model does, on a graph that only records, so its episodes hold
exactly the tokens, positions and mounts of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from octopus.core.graph import Graph
from octopus.rollout.agents import Agent, AgentLimits, State
from octopus.rollout.codec import Codec, Control, framed
from octopus.rollout.environment import NAME_END, DescribedObjects, answer_turn
from octopus.rollout.modes import MODES
from octopus.rollout.play import Play
from octopus.rollout.records import RolloutRecord, record_of

UNKNOWN = "unknown"
"""In place of a name that was given up."""

Script = Callable[[Codec, Sequence[str], Play, Agent, bool], list[int]]
"""The tokens of the turn that an agent is about to take, `<|end|>` included. Given are the parts of the question, and
last whether the script is patient."""


def play_script(
    name: str, environment: DescribedObjects, codec: Codec, mode: str, *, patient: bool = True
) -> RolloutRecord:
    """One episode, as the script of a mode plays it. Every sampled token is live, without a log-probability.

    Args:
        name: What the episode is called.
        environment: The question.
        codec: How texts are tokens.
        mode: A key of `MODES`.
        patient: Whether it searches again where a search showed nothing.
    """
    parts = environment.question.parts
    graph = Graph()
    root = graph.thread()
    graph.append(root, codec.prompt(environment, MODES[mode]))
    # A script's turns are as long as its task makes them; what ends an episode early is a policy's lot alone.
    limits = AgentLimits(turn_tokens=1 << 20, thread_tokens=1 << 20, turns=1 << 20, fan_out=1 << 20)
    play = Play(graph, root, environment=environment, codec=codec, mode=MODES[mode], limits=limits)
    while play.outcome is None:
        for agent in list(play.those(State.READY)):
            for token in SCRIPTS[mode](codec, parts, play, agent, patient):
                play.take(agent, token, None)
        for agent in list(play.those(State.CALLING)):
            if agent.request is not None:
                tool, _, words = agent.request
                play.settle(agent, tool.call_now(words))
        for agent in list(play.those(State.COMMITTING)):
            play.commit(agent)
    return record_of(play, name)


def single(codec: Codec, parts: Sequence[str], play: Play, agent: Agent, patient: bool) -> list[int]:
    """Searches for one part after the other, then answers."""
    names = learned(agent, patient)
    if len(names) < len(parts):
        return search(codec, parts[len(names)])
    return answer_turn([codec.encode_text(name) for name in names], codec)


def forking(codec: Codec, parts: Sequence[str], play: Play, agent: Agent, patient: bool) -> list[int]:
    """Forks a child for each part; each searches and commits the name it saw; then answers."""
    if agent.parent is not None:
        names = learned(agent, patient)
        if not names:
            return search(codec, parts[agent.index - 1])
        return framed(Control.COMMIT, codec.encode_text(names[-1]))
    if len(play.agents) == 1:
        return framed(Control.FORK, codec.encode_text(str(len(parts))))
    return answer_turn([list(child.committed or ()) for child in play.agents[1:]], codec)


def learned(agent: Agent, patient: bool) -> list[str]:
    """The names that the agent takes from what its searches showed; `UNKNOWN` for what it gives up."""
    names = map(shown_name, agent.results)
    return [name or UNKNOWN for name in names if name or not patient]


def search(codec: Codec, part: str) -> list[int]:
    """Asks for a part in the very tokens that stand in the prompt, where it follows its number and a space."""
    return framed(Control.SEARCH, codec.encode_text(f" {part}"))


def shown_name(result: str) -> str:
    """The name of the first object that a search showed, empty if it showed none."""
    name, found, _ = result.partition(NAME_END)
    return name if found else ""


SCRIPTS: dict[str, Script] = {"single": single, "text": forking, "octopus": forking}
