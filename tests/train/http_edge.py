"""The HTTP application served in this process over real sockets, for a run that is made up."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from octopus.train.service.app import new_app
from octopus.train.service.connection import Connection
from octopus.train.service.front import new_server

ANSWERS: dict[str, Any] = {
    "alive": True,
    "ready": {"ready": True, "phase": "training"},
    "status": {"folder": "run", "phase": "training", "paused": False, "waiting": False, "step": 1, "of": 2,
               "last_save_step": None, "last_step_unix_s": None, "figures": {}, "store": {},
               "live": {"episodes": 0, "threads": 0, "some": []}},
    "metrics": "octopus_run_step 1\n",
    "pause": None,
    "resume": None,
    "save": None,
    "cancel": {"found": True, "live": {"episodes": 0, "threads": 0, "some": []}},
}  # fmt: skip
WISHES = {"pause", "resume", "save", "cancel"}


class MadeUp:
    """Answers always the same, and keeps what it was asked."""

    def __init__(self, answers: Mapping[str, Any] = ANSWERS) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def ask(self, question: str, **arguments: Any) -> Any:
        self.asked.append(question)
        answer = self.answers[question]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def wishes(self) -> list[str]:
        return [question for question in self.asked if question in WISHES]


class Edge:
    """Where the application listens."""

    def __init__(self, port: int, server: Any) -> None:
        self.port = port
        self.server = server

    def open(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=5)

    def send(self, raw: bytes) -> bytes:
        """All that is answered to these bytes until the connection is closed, or nothing comes for half a second."""
        with self.open() as wire:
            wire.sendall(raw)
            return received(wire, 0.5)

    def get(self, path: str) -> int:
        return status(self.send(request("GET", path)))


@contextmanager
def edge(run: Any, *, token: str | None = None, deadline_s: float = 10.0, most: int = 256) -> Iterator[Edge]:
    """Serves in a thread."""
    bounds = {"deadline_s": deadline_s, "most": most}
    app = new_app(run, hosts=["127.0.0.1", "localhost"], token=token)
    server = new_server(app, type("Bounded", (Connection,), bounds))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.005)
        try:
            yield Edge(listener.getsockname()[1], server)
        finally:
            server.should_exit = True
            thread.join(5)
            assert not thread.is_alive()


def request(method: str, target: str, *headers: str, body: bytes = b"", keep: bool = False) -> bytes:
    """A request with these headers and `Host`, the last of its connection unless that is kept."""
    last = [] if keep else ["Connection: close"]
    lines = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1", *last, *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def received(wire: socket.socket, seconds: float) -> bytes:
    """What comes until the other side closes, or is silent for that long."""
    wire.settimeout(seconds)
    data = b""
    try:
        while part := wire.recv(2**16):
            data += part
    except TimeoutError:
        return data
    except ConnectionResetError:
        return data
    return data


def status(answer: bytes) -> int:
    """The status of the first answer; 0 if there is none."""
    found = re.match(rb"HTTP/1\.1 (\d{3}) ", answer)
    return int(found[1]) if found else 0


def statuses(answer: bytes) -> list[int]:
    """The status of each answer."""
    return [int(found) for found in re.findall(rb"^HTTP/1\.1 (\d{3}) ", answer, flags=re.MULTILINE)]


def closed_within(wire: socket.socket, seconds: float) -> bool:
    """Whether the other side closes the connection in that time, whatever it sends before."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        wire.settimeout(left)
        try:
            if not wire.recv(2**16):
                return True
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
    return False
