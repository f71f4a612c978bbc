"""Three ways to play one environment: one growing context, threads that exchange text, threads that exchange KV.

| mode      | who searches       | how the root learns what a child found                                   |
|-----------|--------------------|--------------------------------------------------------------------------|
| `single`  | the root           | it has no children                                                       |
| `text`    | children forked by | the committed tokens are written into the root's own line, and computed  |
|           | the root; each is  | again there                                                              |
|           | given the prompt   |                                                                          |
|           | again              |                                                                          |
| `octopus` | children forked by | the committed tokens are mounted where they lie                          |
|           | the root, in O(1)  |                                                                          |

A fork in `octopus`, in full; what stands in brackets is sampled, all else is given:

    root     <|question|> ... <|end|> [<|fork|> 2 <|end|>]
             (ann) <|result|> (bob) <|result|> <|end|> [<|answer|> ann, bob <|end|>]
    child 1  <|child|> 1 <|end|> [<|search|> words <|end|>] <|result|> ann : text <|end|> [<|commit|> ann <|end|>]
    child 2  <|child|> 2 <|end|> [<|search|> words <|end|>] <|result|> bob : text <|end|> [<|commit|> bob <|end|>]

In `single` mode `<|child|> <|end|>` follows the prompt: a policy plays all three, and must know that it is alone.

`(ann)` is a mount. The token after one is always given, since nothing has seen the mount before it. A child that failed
leaves `<|error|>` in place of its mount and `<|result|>`. In `text` mode the line of the root reads `ann <|result|>`
with the very token ids that the child sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from octopus.core.errors import InvariantViolation
from octopus.core.graph import Graph
from octopus.core.thread import Thread
from octopus.rollout.agents import Agent
from octopus.rollout.control import Control

SOLO = frozenset({Control.SEARCH, Control.OPEN, Control.REWIND})
SHARED = SOLO | {Control.FORK, Control.READ}


class Mode(Protocol):
    """How agents come to be, and how they learn from each other."""

    name: str
    opening: tuple[Control, ...]
    """What every episode is given after its prompt."""
    offered: frozenset[Control]
    """What the agents may do, all of them together."""

    def actions(self, agent: Agent) -> frozenset[Control]:
        """What the agent may do."""

    def fork(self, graph: Graph, parent: Thread, count: int, prompt: Sequence[int]) -> list[Thread]:
        """Threads for the children of `parent`, which know the episode's prompt."""

    def show(self, graph: Graph, reader: Thread, source: Agent) -> None:
        """Makes what `source` has committed visible to `reader`."""


class Single:
    """One growing context."""

    name = "single"
    opening: tuple[Control, ...] = (Control.CHILD, Control.END)
    offered = SOLO | {Control.ANSWER}

    def actions(self, agent: Agent) -> frozenset[Control]:
        """Tools and the answer."""
        return SOLO | {Control.ANSWER}

    def fork(self, graph: Graph, parent: Thread, count: int, prompt: Sequence[int]) -> list[Thread]:
        """Never called: there is no such action."""
        raise InvariantViolation("an agent of mode single forks nobody")

    def show(self, graph: Graph, reader: Thread, source: Agent) -> None:
        """Never called: there is no other agent."""
        raise InvariantViolation("an agent of mode single reads nobody")


class Text:
    """Threads that exchange text."""

    name = "text"
    opening: tuple[Control, ...] = ()
    offered = SHARED | {Control.ANSWER, Control.COMMIT}

    def actions(self, agent: Agent) -> frozenset[Control]:
        """The root answers, the others commit."""
        return SHARED | {Control.ANSWER if agent.parent is None else Control.COMMIT}

    def fork(self, graph: Graph, parent: Thread, count: int, prompt: Sequence[int]) -> list[Thread]:
        """New root threads that are given the prompt again."""
        threads = [graph.thread() for _ in range(count)]
        for thread in threads:
            graph.append(thread, prompt)
        return threads

    def show(self, graph: Graph, reader: Thread, source: Agent) -> None:
        """Writes the tokens once more."""
        graph.append(reader, source.committed or ())


class Octopus:
    """Threads that exchange KV."""

    name = "octopus"
    opening: tuple[Control, ...] = ()
    offered = SHARED | {Control.ANSWER, Control.COMMIT}

    def actions(self, agent: Agent) -> frozenset[Control]:
        """The root answers, the others commit."""
        return SHARED | {Control.ANSWER if agent.parent is None else Control.COMMIT}

    def fork(self, graph: Graph, parent: Thread, count: int, prompt: Sequence[int]) -> list[Thread]:
        """Forks, which copies nothing."""
        return graph.fork(parent, count)

    def show(self, graph: Graph, reader: Thread, source: Agent) -> None:
        """Mounts the tokens where they lie."""
        graph.read_thread(reader, source.thread)


MODES: dict[str, Mode] = {mode.name: mode for mode in (Single(), Text(), Octopus())}
