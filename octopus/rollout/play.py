"""One episode while it is played: whose turn it is, who waits for whom, and how it ends.

Knows no clock, no model and no socket. Whoever drives it hands in tokens, what came back of tools, and that KV was
computed; it writes into the graph and says what every agent needs next. The loop drives many on one engine, scripted
policies drive one on a graph without KV: both write the same episodes, because both go through here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, cast

from octopus.core.graph import Graph
from octopus.core.thread import Thread
from octopus.core.waits import WaitEdge
from octopus.rollout.acting import ACTING
from octopus.rollout.actions import Action, Mistake
from octopus.rollout.agents import Agent, AgentLimits, Event, Sample, State, TurnNote
from octopus.rollout.dialect import Dialect
from octopus.rollout.environment import Environment
from octopus.rollout.modes import Mode
from octopus.rollout.tools import ToolResult

Outcome = Literal["answered", "bad_action", "turn_tokens", "thread_tokens", "turns", "capacity", "cancelled"]
"""How an episode ended: its root answered, did not take an action, ran into a limit, did not fit into memory, or was
cancelled."""

CUT_OFF: tuple[Outcome, ...] = ("capacity", "cancelled")
"""Ended by no fault of what was sampled, of which nothing is learned."""


class Play:
    """One episode.

    Attributes:
        graph: Where it is written.
        codec: How its agents are spoken to and act.
        mode: How agents come to be and learn from each other.
        environment: The question.
        limits: What agents may take.
        seed: Seed of its random draws.
        agents: Everybody, the root first, in the order of their creation.
        outcome: How it ended, None while it goes on.
        answer: What the root answered.
    """

    def __init__(
        self,
        graph: Graph,
        root: Thread,
        *,
        environment: Environment,
        codec: Dialect,
        mode: Mode,
        limits: AgentLimits,
        seed: int = 0,
    ) -> None:
        """Begins an episode whose root thread has been given the environment's prompt."""
        self.graph = graph
        self.codec = codec
        self.mode = mode
        self.environment = environment
        self.limits = limits
        self.seed = seed
        self.agents: list[Agent] = []
        self.outcome: Outcome | None = None
        self.answer: str | None = None
        self.join(root, parent=None, index=0)

    # ---- what a driver asks and tells ----

    def those(self, state: State) -> Iterator[Agent]:
        """The agents in a state, in order; none once the episode has ended."""
        return (agent for agent in self.agents if self.outcome is None and agent.state is state)

    def take(self, agent: Agent, token: int, log_probability: float | None) -> None:
        """The READY agent has sampled a token."""
        self.graph.append(agent.thread, [token])
        agent.samples.append(Sample(cursor=agent.thread.cursor, log_probability=log_probability))
        turned = agent.turn.take(token)
        if isinstance(turned, Action):
            ACTING[turned.kind](self, agent, turned)
        elif isinstance(turned, Mistake):
            self.respond(agent, Event(kind="mistake", argument=turned.words, ok=False, result=turned.why))
        elif turned is not None:
            self.fail(agent, turned.value)
        elif len(agent.samples) >= self.limits.thread_tokens:
            self.fail(agent, "thread_tokens")

    def settle(self, agent: Agent, result: ToolResult) -> None:
        """This came back of the tool that the CALLING agent called."""
        assert agent.request is not None
        _, name, words = agent.request
        agent.request = None
        event = Event(
            kind=name,
            argument=words,
            ok=result.ok,
            result=result.text,
            documents=result.documents,
            attempts=result.attempts,
        )
        self.respond(agent, event)

    def commit(self, agent: Agent) -> None:
        """The KV of the COMMITTING agent is computed: readers get the tokens that it committed, by default."""
        assert agent.commit is not None
        end = agent.thread.own_tokens - agent.commit.behind
        self.graph.commit(agent.thread, span=(end - len(agent.commit.argument), end))
        agent.state = State.ENDED
        self._resume()

    def run_out(self) -> None:
        """The episode does not fit into memory. That is no fault of what it sampled, so nothing of it is live."""
        self.outcome = "capacity"
        _unlearn(self.agents)

    def cancel(self, agent: Agent) -> None:
        """Ends an agent with its descendants that have not ended; the root is the whole episode.

        Nothing that they sampled is live. Who waits for them is told that they failed.
        """
        depth = len(agent.path)
        ended = [one for one in self.agents if one.path[:depth] == agent.path and one.state is not State.ENDED]
        if agent.parent is None:
            self.outcome = "cancelled"
            _unlearn(self.agents)
            return
        _unlearn(ended)
        for one in ended:
            one.state, one.failure, one.wait = State.ENDED, "cancelled", None
            one.events.append(Event(kind="failed", argument="", ok=False, result="cancelled"))
        self.graph.cancel(agent.thread)
        self._resume()

    @property
    def waits(self) -> list[WaitEdge]:
        """Who of the episode went on after whom, in order."""
        threads = self._threads
        return [edge for edge in self.graph.waits if edge.thread in threads]

    def drop(self) -> None:
        """Gives all threads back. The graph keeps nothing of the episode, but for cache."""
        for agent in reversed(self.agents):
            self.graph.drop(agent.thread)
        threads = self._threads
        self.graph.waits[:] = [edge for edge in self.graph.waits if edge.thread not in threads]

    # ---- what actions do ----

    def join(self, thread: Thread, *, parent: Agent | None, index: int) -> Agent:
        """A new agent takes its first turn on `thread`."""
        siblings = sum(agent.parent is parent for agent in self.agents)
        path = (siblings,) if parent is None else (*parent.path, siblings)
        turn = self.codec.turn(frozenset(), 0)
        agent = Agent(path=path, index=index, parent=parent, thread=thread, turn=turn)
        self.agents.append(agent)
        self.begin_turn(agent)
        return agent

    def begin_turn(self, agent: Agent) -> None:
        """The agent takes a turn, if it has any left."""
        if len(agent.samples) >= self.limits.thread_tokens:
            self.fail(agent, "thread_tokens")
        elif len(agent.notes) >= self.limits.turns:
            self.fail(agent, "turns")
        else:
            agent.state = State.READY
            agent.notes.append(TurnNote(start=agent.thread.own_tokens))
            agent.turn = self.codec.turn(self.mode.actions(agent), self.limits.turn_tokens)

    def respond(self, agent: Agent, event: Event) -> None:
        """Gives the agent what came back of its action, as data, and the next turn."""
        self.graph.append(agent.thread, self.codec.result(event.result, ok=event.ok))
        agent.notes[-1].result = event.result
        agent.notes[-1].documents = event.documents
        agent.events.append(event)
        self.begin_turn(agent)

    def wait(self, agent: Agent, others: Sequence[Agent], *, asked: str | None = None) -> None:
        """The agent goes on when the others have ended, and then sees what they committed; see also `Agent.asked`.

        Raises WaitCycle.
        """
        agent.wait = self.graph.wait_threads(agent.thread, [other.thread for other in others])
        agent.awaited, agent.asked = others, asked
        agent.state = State.WAITING
        self._resume()

    def fail(self, agent: Agent, reason: str) -> None:
        """The agent ends without a word. Only if it is the root does the episode end with it."""
        agent.failure = reason
        agent.state = State.ENDED
        agent.events.append(Event(kind="failed", argument="", ok=False, result=reason))
        if agent.parent is None:
            self.outcome = cast(Outcome, reason)
        else:
            self.graph.fail(agent.thread, reason)
            self._resume()

    # ---- inner workings ----

    @property
    def _threads(self) -> set[int]:
        return {agent.thread.id for agent in self.agents}

    def _resume(self) -> None:
        """Those go on for whom enough others have ended."""
        for agent in list(self.those(State.WAITING)):
            if agent.wait is not None and agent.wait.done:
                agent.wait = None
                if agent.asked is None:
                    self._show(agent)
                else:
                    self._tell(agent, agent.asked)

    def _show(self, agent: Agent) -> None:
        """Shows the agent what those it has waited for committed; each is followed by a given token."""
        sources = [(source.index, source.commit is not None) for source in agent.awaited]
        before, *behind = self.codec.reading(sources)
        self.graph.append(agent.thread, before)
        for source, piece in zip(agent.awaited, behind, strict=True):
            if source.commit is not None:
                self.mode.show(self.graph, agent.thread, source)
            self.graph.append(agent.thread, piece)
        self.begin_turn(agent)

    def _tell(self, agent: Agent, asked: str) -> None:
        """Tells the agent how those it has waited for ended."""
        ends = [(source.index, "committed" if source.commit else "failed") for source in agent.awaited]
        told = ", ".join(f"thread {index} {end}" for index, end in ends)
        self.respond(agent, Event(kind="wait", argument=asked, result=told))


def _unlearn(agents: Sequence[Agent]) -> None:
    for agent in agents:
        for sample in agent.samples:
            sample.live = False
