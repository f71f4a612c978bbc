"""Many episodes on one engine: every thread that can go on is stepped, all of them as one batch a token."""

from __future__ import annotations

from collections.abc import Sequence

from octopus.core.errors import CapacityExceeded, invariant
from octopus.core.thread import Thread
from octopus.rollout.agents import AgentLimits, State
from octopus.rollout.calls import Call, Calls
from octopus.rollout.cancelling import Cancelling
from octopus.rollout.dialect import Dialect
from octopus.rollout.engine import Engine
from octopus.rollout.environment import Task
from octopus.rollout.judging import judged
from octopus.rollout.modes import Mode
from octopus.rollout.play import Play
from octopus.rollout.records import RolloutRecord, record_of
from octopus.rollout.sampling import Draw
from octopus.rollout.spans import NO_SPANS, Spans
from octopus.rollout.table import Group, Running, Table, name_of
from octopus.rollout.told import Told
from octopus.rollout.tools import ToolResult


class Rollouts:
    """Plays tasks.

    What an episode says depends on its task and seed, not on who shares its batch or how fast tools are: noise is keyed
    by the episode's seed, the agent's place in the episode and the draws it has made. (The last bits of the logits may
    depend on the batch, as far as the kernels' do.)
    """

    def __init__(
        self,
        engine: Engine,
        codec: Dialect,
        mode: Mode,
        *,
        temperature: float = 1.0,
        limits: AgentLimits | None = None,
        most_episodes: int = 64,
        lockstep: bool = False,
        spans: Spans = NO_SPANS,
        cancelling: Cancelling | None = None,
    ) -> None:
        """Plays on `engine`.

        Args:
            engine: Its model's vocabulary must hold the codec's.
            codec: How agents are spoken to and act.
            mode: One of `MODES`.
            temperature: 0 for greedy.
            limits: What agents may take.
            most_episodes: Episodes that are played at the same time.
            lockstep: Everybody waits for all tools that are at work, so who shares a batch, and the order of what is
                written, do not depend on how fast tools are: where kernels repeat their bits, so does a run.
            spans: Get the episodes and their calls of tools.
            cancelling: Says who is to end; if there is none, nobody does.

        Raises:
            ValueError: nobody could be played.
        """
        if most_episodes < 1 or temperature < 0:
            raise ValueError(f"at least 1 episode and a temperature from 0 on, got {most_episodes} and {temperature}")
        self._engine = engine
        self._codec = codec
        self._mode = mode
        self._temperature = temperature
        self._limits = limits or AgentLimits()
        self._most_episodes = most_episodes
        self._lockstep = lockstep
        self._spans = spans
        self._cancelling = cancelling or Cancelling()
        self._calls = Calls()

    @property
    def weights_version(self) -> int:
        """Version of the weights that play, as segments name them."""
        return self._engine.graph.weights_version

    @property
    def tool_seconds(self) -> tuple[float, float]:
        """Wall time so far of the calls of tools that have come back: of those that succeeded, and of the others."""
        return self._calls.seconds[True], self._calls.seconds[False]

    def run(self, tasks: Sequence[Task]) -> list[tuple[RolloutRecord, ...]]:
        """Plays every task once for each of its seeds; returns the records of each task, in the order of its seeds.

        Every episode ends with an outcome, and none leaves a thread or a page behind, also when this raises. When
        memory runs out, the episode that began last pauses until another has ended; if that is not enough, it is taken
        off and played again later; an episode that does not fit even alone ends with the outcome `capacity`.
        """
        table = Table(groups=[Group(task=task) for task in tasks], seats=self._most_episodes)
        self._cancelling.plays(table.live)
        try:
            while table.waiting or table.running:
                self._admit(table)
                self._settle(table)
                self._cancel(table)
                if table.running:
                    self._step(table)
                    self._finish(table)
        finally:
            self._cancelling.rests()
            for running in list(table.running):
                self._cancelling.ended["stop", running.play.agents[0].state] += 1
                self._leave(table, running)
            for group in table.groups:
                self._close(group)
        records = [tuple(group.records[number] for number in range(len(group.task.seeds))) for group in table.groups]
        return judged(tasks, records)

    # ---- inner workings ----

    def _admit(self, table: Table) -> None:
        while table.waiting and len(table.running) < table.seats:
            group, number = table.waiting.popleft()
            play = Play(
                self._engine.graph,
                self._root(group),
                environment=group.task.environment,
                codec=self._codec,
                mode=self._mode,
                limits=self._limits,
                seed=group.task.seeds[number],
            )
            told = Told(name_of(group, number), self._spans)
            table.running.append(Running(group=group, number=number, play=play, told=told))

    def _root(self, group: Group) -> Thread:
        """A thread that holds the prompt, which the rollouts of a group share."""
        graph = self._engine.graph
        if group.prompt is None:
            group.prompt = graph.thread()
            graph.append(group.prompt, self._codec.prompt(group.task.environment, self._mode))
        if len(group.task.seeds) == 1:
            root, group.prompt = group.prompt, None
            return root
        return graph.fork(group.prompt)[0]

    def _settle(self, table: Table) -> None:
        """Begins the calls that agents have asked for, and hands over what has come back of those that are done."""
        for running in table.running:
            for agent in list(running.play.those(State.CALLING)):
                if agent not in running.calls and agent.request is not None:
                    tool, name, words = agent.request
                    running.told.calls(agent, name)
                    with running.told.about(agent):
                        running.calls[agent] = self._calls.start(tool, words)
        for running in table.running:
            for agent, call in list(running.calls.items()):
                if (result := self._come_back(call)) is not None:
                    del running.calls[agent]
                    running.told.came_back(agent, result)
                    running.play.settle(agent, result)

    def _come_back(self, call: Call) -> ToolResult | None:
        """What has come back of the call; None while it is under way, for which lockstep waits unless it is told."""
        told = self._cancelling.told
        while (result := self._calls.poll(call)) is None and self._lockstep and not told.done():
            self._calls.wait([call], told)
        return result

    def _cancel(self, table: Table) -> None:
        """Ends whoever is to end."""
        for wish in self._cancelling.taken():
            found = table.of(wish)
            if found is None:
                continue  # It has ended since.
            running, agent = found
            state = agent.state
            running.play.cancel(agent)
            for one in [one for one in running.calls if one.state is State.ENDED]:
                self._calls.abandon(running.calls.pop(one))
                running.told.came_back(one, ToolResult(text="cancelled", ok=False))
            self._finish(table)
            self._engine.trim()
            self._cancelling.carried_out(wish, state)

    def _step(self, table: Table) -> None:
        """One token for everybody who needs one; if nobody does, waits for tools."""
        ready = list(table.those(State.READY))
        committing = list(table.those(State.COMMITTING))
        if not ready and not committing:
            self._wait(table)
            return
        try:
            chosen = self._engine.sample(
                [agent.thread for _, agent in ready],
                [Draw(play.seed, agent.path, len(agent.samples)) for play, agent in ready],
                temperature=self._temperature,
                also=[agent.thread for _, agent in committing],
            )
        except CapacityExceeded:
            self._make_room(table)
            return
        for play, agent in committing:
            play.commit(agent)
        for (play, agent), (token, log_probability) in zip(ready, chosen, strict=True):
            play.take(agent, token, log_probability)

    def _wait(self, table: Table) -> None:
        calls = [call for running in table.running for call in running.calls.values()]
        ended = any(running.play.outcome is not None for running in table.running)
        invariant(ended or bool(calls), "episodes go on, but nobody of them can do anything")
        if not ended:
            self._calls.wait(calls, self._cancelling.told)

    def _make_room(self, table: Table) -> None:
        """Pauses the episode that began last, else takes one off that pauses, else ends the only one.

        The memory of one that pauses can be taken away by the store; what others of its threads hold, cannot.
        """
        playing = [running for running in table.running if not running.paused]
        if len(playing) > 1:
            playing[-1].paused = True
            playing[-1].told.short_of_memory("episode.paused")
            return
        last = table.running[-1]
        if len(table.running) == 1:
            last.play.run_out()
            last.told.short_of_memory("memory.refused")
            return
        if last is playing[0]:
            last = table.running[-2]
        last.told.short_of_memory("episode.put_off")
        self._leave(table, last)
        table.waiting.appendleft((last.group, last.number))
        table.seats = len(table.running)

    def _finish(self, table: Table) -> None:
        """Records the episodes that have ended."""
        for running in [running for running in table.running if running.play.outcome is not None]:
            group, number = running.group, running.number
            scored = group.task.judge is None
            group.records[number] = record_of(running.play, name_of(group, number), scored=scored)
            self._leave(table, running)
            if len(group.records) == len(group.task.seeds):
                self._close(group)

    def _leave(self, table: Table, running: Running) -> None:
        """Gives back whatever an episode holds."""
        table.running.remove(running)
        for other in table.running:
            other.paused = False
        for call in running.calls.values():
            self._calls.abandon(call)
        running.told.left(running.play.outcome)
        running.play.drop()
        self._engine.trim()

    def _close(self, group: Group) -> None:
        if group.prompt is not None:
            self._engine.graph.drop(group.prompt)
            group.prompt = None
            self._engine.trim()
