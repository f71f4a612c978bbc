"""What each action does. An action that cannot be done is answered with an error's words, and costs a turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from octopus.core.errors import ForkRefused, WaitCycle
from octopus.rollout.actions import TOOLS
from octopus.rollout.agents import Agent, Event, State
from octopus.rollout.codec import Control, framed

if TYPE_CHECKING:
    from octopus.rollout.play import Play

Tokens = tuple[int, ...]


def fork(play: Play, agent: Agent, argument: Tokens) -> None:
    """`<|fork|> 3`: so many children; the agent goes on when all have ended, and sees what they committed."""
    said, most = _said(play, argument), play.limits.fan_out
    count = _number(said)
    if not 1 <= count <= most:
        _refuse(play, agent, "fork", said, f"fork takes a number from 1 to {most}")
        return
    if agent.depth >= play.limits.depth:
        _refuse(play, agent, "fork", said, "this thread may not fork")
        return
    try:
        threads = play.mode.fork(play.graph, agent.thread, count, play.environment.prompt(play.codec))
    except ForkRefused as error:
        _refuse(play, agent, "fork", said, str(error))
        return
    agent.notes[-1].forked = True
    agent.events.append(Event(kind="fork", argument=said))
    children = []
    for index, thread in enumerate(threads, 1):
        play.graph.append(thread, framed(Control.CHILD, play.codec.encode_text(str(index))))
        children.append(play.join(thread, parent=agent, index=index))
    play.wait(agent, children)


def read(play: Play, agent: Agent, argument: Tokens) -> None:
    """`<|read|> 2`: what a sibling has committed (for the root: a child), by number, once it has ended.

    Waiting for the end makes what is read independent of who happens to be faster.
    """
    said = _said(play, argument)
    family = [other for other in play.agents if other.parent is (agent.parent or agent)]
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


def rewind(play: Play, agent: Agent, argument: Tokens) -> None:
    """`<|rewind|> 1`: takes back the last turns, and this one. The agent sees nothing of them any more."""
    said = _said(play, argument)
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


def commit(play: Play, agent: Agent, argument: Tokens) -> None:
    """`<|commit|> ann`: ends a child, whose readers get these words."""
    agent.events.append(Event(kind="commit", argument=_said(play, argument)))
    agent.committed = argument
    agent.state = State.COMMITTING


def answer(play: Play, agent: Agent, argument: Tokens) -> None:
    """`<|answer|> ann, bob`: ends the episode."""
    play.answer = _said(play, argument)
    play.outcome = "answered"
    agent.events.append(Event(kind="answer", argument=play.answer))
    agent.state = State.ENDED


def _tool(control: Control, name: str) -> Callable[[Play, Agent, Tokens], None]:
    """`<|search|> words`: calls the tool of that name, if there is one in this turn."""

    def call(play: Play, agent: Agent, argument: Tokens) -> None:
        said = _said(play, argument)
        tool = play.environment.tools(len(agent.notes) - 1).get(name)
        if tool is None:
            _refuse(play, agent, name, said, f"there is no tool {name} now")
        else:
            agent.request = tool, name, said
            agent.state = State.CALLING

    return call


ACTING: dict[Control, Callable[[Play, Agent, Tokens], None]] = {
    Control.FORK: fork,
    Control.READ: read,
    Control.REWIND: rewind,
    Control.COMMIT: commit,
    Control.ANSWER: answer,
} | {control: _tool(control, name) for control, name in TOOLS.items()}


def _said(play: Play, argument: Tokens) -> str:
    return play.codec.decode_text(argument).strip()


def _number(said: str) -> int:
    """The number that was said, 0 if it is none (or absurdly long)."""
    return int(said) if said.isascii() and said.isdigit() and len(said) < 4 else 0


def _refuse(play: Play, agent: Agent, kind: str, said: str, why: str) -> None:
    play.respond(agent, Event(kind=kind, argument=said, ok=False, result=why))
