"""The process that the network speaks to: the HTTP application, and a line to the process that trains.

Requests then cost the run nothing of Python's lock but the answers themselves, each read at most every `FRESH_S`. It
loads neither torch nor a model, and ends when the run's process does.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, get_args

import uvicorn

from octopus.train.logs import logged
from octopus.train.service.app import new_app
from octopus.train.service.asking import Failed, Question, Read, Unanswered
from octopus.train.service.connection import Connection

FRESH_S = 0.5
"""How old an answer may be that is given again."""
ANSWER_S = 5.0
YIELDS = 5
"""By how much it is nicer than the run, which goes first where processors are few."""
MOST_LINE_BYTES = 4 * 2**20


class Line:
    """A run at the other end of a socket: a question a line, answered in order. See `Run`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A line that is open."""
        self._reader, self._writer = reader, writer
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._known: dict[Question, tuple[float, asyncio.Task[Any]]] = {}

    async def ask(self, question: Question, **arguments: Any) -> Any:
        """See `Run.ask`. Whoever asks the same soon after is given the same answer, unless a wish came between."""
        if question not in get_args(Read):
            self._known.clear()
            return await self._answer(question, arguments)
        now = time.monotonic()
        asked_s, answer = self._known.get(question, (0.0, None))
        if answer is None or now - asked_s > FRESH_S:
            answer = asyncio.create_task(self._answer(question, arguments))
            self._known[question] = now, answer
        return answer.result() if answer.done() else await asyncio.shield(answer)

    async def listen(self) -> None:
        """Receives answers until the run's process has ended."""
        while told := await self._reader.readline():
            answer, waiting = json.loads(told), self._waiting.popleft()
            if waiting.done():  # Nobody waits any more.
                continue
            if "failed" in answer:
                waiting.set_exception(Failed("the run failed to answer; its log says why"))
            else:
                waiting.set_result(answer["is"])

    async def _answer(self, question: Question, arguments: dict[str, Any]) -> Any:
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._writer.write(json.dumps([question, arguments]).encode() + b"\n")
        try:
            return await asyncio.wait_for(waiting, ANSWER_S)
        except TimeoutError as error:
            raise Unanswered(f"the run's process gave no answer within {ANSWER_S:.0f} s") from error


class Server(uvicorn.Server):
    """uvicorn's, which leaves signals alone: they are the run's, and it says when to end."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """None of them."""
        return nullcontext()


def new_server(app: Any, connection: type[Connection] = Connection) -> Server:
    """A server of an application. Its log goes where ours goes; requests that were refused are in ours."""
    config = uvicorn.Config(
        app,
        http=connection,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    return Server(config)


async def _serve(listener: socket.socket, line: socket.socket) -> None:
    reader, writer = await asyncio.open_unix_connection(sock=line, limit=MOST_LINE_BYTES)
    said = json.loads(await reader.readline())
    run = Line(reader, writer)
    server = new_server(new_app(run, hosts=said["hosts"], token=said["token"]))

    async def until_the_run_ends() -> None:
        try:
            await run.listen()
        finally:
            server.should_exit = server.force_exit = True  # Nobody can answer what is still open.

    await asyncio.gather(until_the_run_ends(), server.serve(sockets=[listener]))


def main(arguments: Sequence[str]) -> None:
    """Serves; the arguments are the file descriptors of the listening socket and of the line."""
    for number in (signal.SIGINT, signal.SIGTERM):  # Sent to all processes of a group; the run's decides.
        signal.signal(number, signal.SIG_IGN)
    os.nice(YIELDS)
    listener, line = (socket.socket(fileno=int(one)) for one in arguments)
    with logged(sys.stderr):
        asyncio.run(_serve(listener, line))


if __name__ == "__main__":
    main(sys.argv[1:])
