"""A store of a few pages with a pretended engine, for the regression tests of this folder."""

from __future__ import annotations

from fuzz.copier import FuzzCopier
from fuzz.device import Memory
from fuzz.engine import Engine
from fuzz.stage import uids_by_place
from octopus.core.graph import Graph
from octopus.core.host import HostTier
from octopus.core.namespace import PLAIN, Namespace
from octopus.core.pool import PagePool, StatePool
from octopus.core.seals import Seals
from octopus.core.thread import Thread
from octopus.core.visibility import view


class SmallStore:
    """A graph, its pools, and an engine that checks whatever it reads.

    Without `host`, there is no host tier; with it, copies complete at once unless `prompt` is off.
    """

    def __init__(
        self,
        pages: int,
        page: int,
        *,
        states: int = 0,
        host: int | None = None,
        host_states: int = 0,
        prompt: bool = True,
        sealed: bool = False,
    ) -> None:
        self.pages = PagePool(pages, page_size=page)
        self.states = StatePool(states) if states else None
        self.device = Memory(pages=pages, page_size=page, states=states)
        self.host = Memory(pages=host or 0, page_size=page, states=host_states)
        self.copier = FuzzCopier(self.device, self.host, prompt=prompt)
        tier = None
        if host is not None:
            tier = HostTier(pages=host, states=host_states, copier=self.copier, timeout_s=0.0)
        seals = Seals(self.device, rate=1.0) if sealed else None
        self.graph = Graph(pages=self.pages, states=self.states, host=tier, seals=seals)
        self.engine = Engine(self.graph, self.device, uids_by_place)

    def root(self, *tokens: int, namespace: Namespace = PLAIN, priority: int = 0) -> Thread:
        """A root thread with these tokens, computed."""
        thread = self.graph.thread(namespace=namespace, priority=priority)
        return self.write(thread, *tokens)

    def write(self, thread: Thread, *tokens: int) -> Thread:
        """Appends and computes."""
        self.graph.append(thread, tokens)
        self.engine.compute([thread])
        return thread

    def commit(self, thread: Thread) -> Thread:
        """Computes what is left and commits."""
        self.engine.compute([thread])
        self.graph.commit(thread)
        return thread

    def child(self, parent: Thread, *tokens: int) -> Thread:
        """A child with these tokens of its own, computed."""
        (child,) = self.graph.fork(parent)
        return self.write(child, *tokens)

    def sees(self, thread: Thread) -> list[int]:
        """The tokens that the thread sees, by position; each is where it was written."""
        self.engine.check_view(thread.cursor)
        self.graph.audit()
        placed = [
            (segment.start_position + offset + shift, segment.tokens[offset])
            for segment, start, stop, shift in view(thread.cursor)
            for offset in range(start, stop)
        ]
        return [token for _, token in sorted(placed)]

    def drop_all(self) -> None:
        """Drops every thread and demands an empty store."""
        for thread in self.graph.threads:
            self.graph.drop(thread)
        self.expect_empty()

    def expect_empty(self) -> None:
        """Nothing is held by anybody."""
        self.copier.deliver_all()
        self.graph.trim()
        self.graph.audit()
        stats = self.graph.stats()
        for figures in (stats.pages, stats.states, stats.host_pages, stats.host_states):
            assert figures.free == figures.capacity, figures
        assert not self.graph.segments and not self.graph.threads
