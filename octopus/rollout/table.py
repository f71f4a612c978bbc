"""The episodes that are played side by side, those that wait for a seat, and the records of those that have ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from octopus.core.thread import Thread
from octopus.rollout.agents import Agent, State
from octopus.rollout.calls import Call
from octopus.rollout.cancelling import LiveThread, Wish
from octopus.rollout.environment import Task
from octopus.rollout.play import Play
from octopus.rollout.records import RolloutRecord
from octopus.rollout.told import Told


@dataclass(kw_only=True, slots=True, eq=False)
class Group:
    """A task, the thread that holds its prompt while rollouts of it are played, and their records by number."""

    task: Task
    prompt: Thread | None = None
    records: dict[int, RolloutRecord] = field(default_factory=dict)


@dataclass(kw_only=True, slots=True, eq=False)
class Running:
    """An episode that is played: one rollout of a group, whether it pauses for want of memory, the calls under way."""

    group: Group
    number: int
    play: Play
    told: Told
    paused: bool = False
    calls: dict[Agent, Call] = field(default_factory=dict)


def name_of(group: Group, number: int) -> str:
    """What an episode is called."""
    return f"{group.task.name}/{number}"


class Table:
    """The episodes of one `run`.

    Attributes:
        groups: The tasks.
        seats: Most episodes that are played at the same time.
        waiting: Rollouts that have not begun, as group and number.
        running: Those that are played, in the order in which they began.
    """

    def __init__(self, groups: list[Group], seats: int) -> None:
        """Nobody is played yet."""
        self.groups = groups
        self.seats = seats
        self.waiting = deque((group, number) for group in groups for number in range(len(group.task.seeds)))
        self.running: list[Running] = []

    def live(self) -> Iterator[LiveThread]:
        """Who goes on. Other Python threads may ask: lists are copied before they are read."""
        for running in list(self.running):
            name = name_of(running.group, running.number)
            for agent in list(running.play.agents):
                if agent.state is not State.ENDED:
                    yield LiveThread(thread=agent.thread.id, episode=name, state=agent.state)

    def of(self, wish: Wish) -> tuple[Running, Agent] | None:
        """The agent that is to end and its episode, whose root it is where all of it is to; None if it has ended."""
        for running in self.running:
            for agent in running.play.agents if running.play.outcome is None else ():
                whole = wish.episode == name_of(running.group, running.number)
                if whole or (agent.thread.id == wish.thread and agent.state is not State.ENDED):
                    return running, agent
        return None

    def those(self, state: State) -> Iterator[tuple[Play, Agent]]:
        """The agents of all episodes that are in a state."""
        playing = [running for running in self.running if not running.paused]
        return ((running.play, agent) for running in playing for agent in running.play.those(state))
