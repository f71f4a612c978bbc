"""What each action does. An action that cannot be done is answered with an error's words, and costs a turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from octopus.core.errors import ForkRefused, WaitCycle
from octopus.rollout.actions import TOOLS, Action
from octopus.rollout.agents import Agent, Event, State
from octopus.rollout.control import Control

if TYPE_CHECKING:
    from octopus.rollout.play import Play


def fork(play: Play, agent: Agent, action: Action) -> None:
    """`<|fork|> 3`: so many children; the agent goes on when all have ended, and sees what they committed."""
    said, most = action.words, play.limits.fan_out
    tasks = play.codec.tasks(said)
    if not 1 <= len(tasks) <= most:
        _refuse(play, agent, "fork", said, f"fork takes {play.codec.fork_takes} from 1 to {most}")
        return
    if agent.depth >= play.limits.depth:
        _refuse(play, agent, "fork", said, "this thread may not fork")
        return
    try:
        again = play.codec.again(play.environment, play.mode, agent.turn.tokens)
        threads = play.mode.fork(play.graph, agent.thread, len(tasks), again)
    except ForkRefused as error:
        _refuse(play, agent, "fork", said, str(error))
        return
    agent.notes[-1].forked = True
    agent.events.append(Event(kind="fork", argument=said))
    children = []
    for index, (thread, task) in enumerate(zip(threads, tasks, strict=True), 1):
        play.graph.append(thread, play.codec.child(index, len(tasks), task))
        children.append(play.join(thread, parent=agent, index=index))
    play.wait(agent, children)


def read(play: Play, agent: Agent, action: Action) -> None:
    """`<|read|> 2`: what a sibling has committed (for the root: a child), by number, once it has ended.

    Waiting for the end makes what is read independent of who happens to be faster.
    """
    said, family = action.words, _family(play, agent)
    number = _number(said)
    if not 1 <= number <= len(family):
        _refuse(play, agent, "read", said, f"there are threads 1 to {len(family)} to read")
        return
    try:
        play.wait(agent, [family[number - 1]])
    except WaitCycle:
        _refuse(play, agent, "read", said, "that thread waits for this one")
    else:
        agent.events.append(Event(kind="read", argument=said))


def wait(play: Play, agent: Agent, action: Action) -> None:
    """Waits until siblings (for the root: children) have ended, by number; answered with how each ended."""
    said, family = action.words, _family(play, agent)
    numbers = [_number(word) for word in said.split()]
    if not numbers or not all(1 <= number <= len(family) for number in numbers):
        _refuse(play, agent, "wait", said, f"there are threads 1 to {len(family)} to wait for")
        return
    try:
        play.wait(agent, [family[number - 1] for number in dict.fromkeys(numbers)], asked=said)
    except WaitCycle:
        _refuse(play, agent, "wait", said, "one of those threads waits for this one")


def rewind(play: Play, agent: Agent, action: Action) -> None:
    """`<|rewind|> 1`: takes back the last turns, and this one. The agent sees nothing of them any more."""
    said = action.words
    count = _number(said)
    taken = agent.notes[-1 - count : -1]
    if not 1 <= count == len(taken):
        _refuse(play, agent, "rewind", said, f"rewind takes a number from 1 to {len(agent.notes) - 1}")
        return
    if any(note.forked for note in taken):
        _refuse(play, agent, "rewind", said, "a fork is not taken back")
        return
    agent.events.append(Event(kind="rewind", argument=said))
    play.graph.rewind(agent.thread, taken[0].start)
    for sample in agent.samples:
        sample.live &= sample.cursor.path_length <= agent.thread.cursor.path_length
    del agent.notes[-1 - count :]
    play.begin_turn(agent)


def commit(play: Play, agent: Agent, action: Action) -> None:
    """`<|commit|> ann`: ends a child, whose readers get these words."""
    agent.events.append(Event(kind="commit", argument=action.words))
    agent.commit = action
    agent.state = State.COMMITTING


def answer(play: Play, agent: Agent, action: Action) -> None:
    """`<|answer|> ann, bob`: ends the episode."""
    play.answer = action.words
    play.outcome = "answered"
    agent.events.append(Event(kind="answer", argument=play.answer))
    agent.state = State.ENDED


def _tool(control: Control, name: str) -> Callable[[Play, Agent, Action], None]:
    """`<|search|> words`: calls the tool of that name, if there is one in this turn."""

    def call(play: Play, agent: Agent, action: Action) -> None:
        said = action.words
        tool = play.environment.tools(len(agent.notes) - 1).get(name)
        if tool is None:
            _refuse(play, agent, name, said, f"there is no tool {name} now")
        else:
            agent.request = tool, name, said
            agent.state = State.CALLING

    return call


ACTING: dict[Control, Callable[[Play, Agent, Action], None]] = {
    Control.FORK: fork,
    Control.READ: read,
    Control.WAIT: wait,
    Control.REWIND: rewind,
    Control.COMMIT: commit,
    Control.ANSWER: answer,
} | {control: _tool(control, name) for control, name in TOOLS.items()}


def _family(play: Play, agent: Agent) -> list[Agent]:
    """Those whom an agent may name by number: its siblings and itself, for the root its children."""
    return [other for other in play.agents if other.parent is (agent.parent or agent)]


def _number(said: str) -> int:
    """The number that was said, 0 if it is none (or absurdly long)."""
    return int(said) if said.isascii() and said.isdigit() and len(said) < 4 else 0


def _refuse(play: Play, agent: Agent, kind: str, said: str, why: str) -> None:
    play.respond(agent, Event(kind=kind, argument=said, ok=False, result=why))
