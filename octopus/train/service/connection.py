"""Connections that end: each has a deadline, and there is room for a limited number."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

DEADLINE_S = 10.0
"""From the opening of a connection, or its last answer, to the end of the next one."""
MOST_CONNECTIONS = 256


class Connection(H11Protocol):
    """uvicorn's, which waits for ever for a client that sends slowly, or does not read."""

    deadline_s = DEADLINE_S
    most = MOST_CONNECTIONS
    _end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`. Beyond the limit, the one goes that has waited longest."""
        super().connection_made(transport)
        self._begin()
        if len(self.connections) > self.most:
            waiting = (one for one in self.connections if isinstance(one, Connection))
            min(waiting, key=Connection.ends_s).abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        super().connection_lost(exc)
        if self._end is not None:
            self._end.cancel()

    def on_response_complete(self) -> None:
        """See `H11Protocol`."""
        self._begin()
        super().on_response_complete()

    def ends_s(self) -> float:
        """When its time is over, by the clock of the loop."""
        return float("inf") if self._end is None else self._end.when()

    def abort(self) -> None:
        """Closes it at once, whatever has not been sent yet."""
        self.connections.discard(self)
        self.transport.abort()

    def _begin(self) -> None:
        if self._end is not None:
            self._end.cancel()
        self._end = self.loop.call_later(self.deadline_s, self.abort)
