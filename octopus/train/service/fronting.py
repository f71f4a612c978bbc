"""The run's side of the line: starts the front, answers it, and starts it again when it is lost."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import octopus
from octopus.rollout.logs import new_logger
from octopus.train.service.asking import Question, Run

LOGGER = new_logger(__name__)

AGAIN_S = 1.0
"""Between the loss of a front and the next one."""
LEAVE_S = 5.0


@contextmanager
def fronted(run: Run, listener: socket.socket, *, hosts: list[str], token: str | None) -> Iterator[None]:
    """Has the run served by another process meanwhile, at a socket that listens; the run goes on without it too."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(_keep_fronted(run, listener, {"hosts": hosts, "token": token}))
    thread = threading.Thread(target=_until_cancelled, args=(loop, task), name="service", daemon=True)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(2 * LEAVE_S)


def _until_cancelled(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    with suppress(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()


async def _keep_fronted(run: Run, listener: socket.socket, settings: dict[str, Any]) -> None:
    while True:
        process, line = _start(listener)
        reader, writer = await asyncio.open_unix_connection(sock=line)
        try:
            writer.write(json.dumps(settings).encode() + b"\n")
            await _answer(run, reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            _end(process)
        LOGGER.error("service.lost", code=process.returncode)
        await asyncio.sleep(AGAIN_S)


def _start(listener: socket.socket) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """A front, and our end of its line. Whatever it is told goes over the line: arguments can be read by everybody."""
    ours, theirs = socket.socketpair()
    with theirs:
        numbers = [listener.fileno(), theirs.fileno()]
        process = subprocess.Popen(  # noqa: S603  our own module
            [sys.executable, "-m", "octopus.train.service.front", *map(str, numbers)],
            pass_fds=numbers,
            cwd=Path(octopus.__file__).parent.parent,  # Where `-m` looks first: for this very package.
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    return process, ours


async def _answer(run: Run, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers until the other side has ended. An answer that fails is logged, and the next one given."""
    with suppress(ConnectionError):
        while said := await reader.readline():
            question, arguments = json.loads(said)
            [told] = await asyncio.gather(_told(run, question, arguments), return_exceptions=True)
            if not isinstance(told, bytes):
                LOGGER.error("answer.failed", question=question, exc_info=told)
                told = b'{"failed": true}\n'
            writer.write(told)
            await writer.drain()


async def _told(run: Run, question: Question, arguments: dict[str, Any]) -> bytes:
    return json.dumps({"is": await run.ask(question, **arguments)}).encode() + b"\n"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Once its line is closed, it leaves by itself."""
    try:
        process.wait(LEAVE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
