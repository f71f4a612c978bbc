"""The process that the network speaks to, and its line to the run.

Catches: a front that outlives its run, or leaves before it; a run that ends with its front; an answer that fails and
takes the line with it; reads that each cost the run something; a read after a wish that does not know of it.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest
from http_edge import ANSWERS, MadeUp
from test_service import fetch, until

from octopus.train.service import front
from octopus.train.service.asking import Unanswered
from octopus.train.service.front import Line
from octopus.train.service.fronting import fronted


@contextmanager
def served(run: MadeUp, token: str | None = None) -> Iterator[tuple[str, psutil.Process]]:
    """The address of a front of its own process, and that process."""
    before = set(psutil.Process().children())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with fronted(run, listener, hosts=["127.0.0.1"], token=token):
            address = f"http://127.0.0.1:{listener.getsockname()[1]}"
            until(lambda: set(psutil.Process().children()) - before)
            (process,) = set(psutil.Process().children()) - before
            assert fetch(f"{address}/livez")[0] == 200
            yield address, process
        assert not set(psutil.Process().children()) - before


def test_a_front_that_is_lost_comes_back_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """Catches: a run that nobody reaches any more; a front that ends when a signal is sent to the whole group."""
    run = MadeUp()
    with served(run) as (address, process):
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        assert process.is_running() and fetch(f"{address}/livez")[0] == 200
        process.kill()
        until(lambda: "service.lost" in caplog.text)
        assert fetch(f"{address}/pause", "POST") == (202, '{"paused":true}')
    assert run.wishes == ["pause"]


def test_an_answer_that_fails_is_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    """Catches: an error in the run's process that ends the thread that answers; one that is told to strangers."""
    run = MadeUp(ANSWERS | {"status": ValueError("a secret"), "metrics": object()})
    with served(run) as (address, _):
        for path in ("status", "metrics"):
            code, text = fetch(f"{address}/{path}")
            assert code == 500 and json.loads(text)["detail"] and "secret" not in text
        assert fetch(f"{address}/save", "POST")[0] == 202
    assert caplog.text.count("answer.failed") == 2 and "a secret" in caplog.text


def test_a_front_ends_with_its_run() -> None:
    """Rows 46 and 47 of public bugs. Catches: a child that holds the port after its parent was killed."""
    code = (
        "import socket, sys, time; sys.path[:0] = ['tests', 'tests/train']\n"
        "from http_edge import MadeUp\n"
        "from octopus.train.service.fronting import fronted\n"
        "listener = socket.create_server(('127.0.0.1', 0))\n"
        "with fronted(MadeUp(), listener, hosts=['127.0.0.1'], token=None):\n"
        "    print(listener.getsockname()[1], flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        address = f"http://127.0.0.1:{run.stdout.readline().strip()}"
        assert fetch(f"{address}/livez")[0] == 200
        (child,) = psutil.Process(run.pid).children()
        run.kill()
        until(lambda: has_ended(child), 10.0)  # 0.3 s where nothing else is at work.


def has_ended(process: psutil.Process) -> bool:
    """Whether it has, even if nobody has asked yet how."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_front_loads_no_model_library() -> None:
    """Catches: a process of hundreds of megabytes that starts in seconds."""
    code = "import sys, octopus.train.service.front as _; print(*{'torch', 'transformers', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


class Ends:
    """Both ends of a line; the run's end is driven by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: Line) -> None:
        self._reader, self._writer = reader, writer
        self.line = line
        self.listening = asyncio.create_task(line.listen())

    @classmethod
    async def open(cls) -> Ends:
        ours, theirs = socket.socketpair()
        run, reached = await asyncio.open_unix_connection(sock=ours), await asyncio.open_unix_connection(sock=theirs)
        return cls(*run, Line(*reached))

    async def asked(self) -> Any:
        return json.loads(await asyncio.wait_for(self._reader.readline(), 1))[0]

    def say(self, answer: Any) -> None:
        self._writer.write(json.dumps({"is": answer}).encode() + b"\n")

    async def quiet(self) -> bool:
        """Whether nothing is asked."""
        try:
            await asyncio.wait_for(self._reader.readline(), 0.05)
        except TimeoutError:
            return True
        return False


def test_reads_at_one_time_are_one_question_and_a_wish_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a question for each request; an answer that is given again for too long, or after a wish."""
    monkeypatch.setattr(front, "FRESH_S", 0.2)

    async def told() -> None:
        ends = await Ends.open()
        several = [asyncio.create_task(ends.line.ask("status")) for _ in range(5)]
        assert await ends.asked() == "status" and await ends.quiet()
        ends.say(1)
        assert await asyncio.gather(*several) == [1] * 5
        assert await ends.line.ask("status") == 1 and await ends.quiet()
        wish, after = asyncio.create_task(ends.line.ask("pause")), asyncio.create_task(ends.line.ask("status"))
        assert [await ends.asked(), await ends.asked()] == ["pause", "status"]
        ends.say(None)
        ends.say(2)
        assert await asyncio.gather(wish, after) == [None, 2]
        await asyncio.sleep(0.25)
        later = asyncio.create_task(ends.line.ask("status"))
        assert await ends.asked() == "status"
        ends.say(3)
        assert await later == 3

    asyncio.run(told())


def test_a_run_that_gives_no_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: requests that pile up; a late answer that is given to the next question."""
    monkeypatch.setattr(front, "ANSWER_S", 0.1)
    monkeypatch.setattr(front, "FRESH_S", 0.0)

    async def told() -> None:
        ends = await Ends.open()
        with pytest.raises(Unanswered, match="no answer within"):
            await ends.line.ask("status")
        late = asyncio.create_task(ends.line.ask("alive"))
        ends.say("late")
        ends.say(True)
        assert await late is True

    asyncio.run(told())


def test_a_token_is_no_argument_of_a_process() -> None:
    """Catches: a secret that everybody on the machine can read."""
    with served(MadeUp(), token="a-token-of-some-length") as (address, process):
        assert "a-token" not in " ".join(process.cmdline()) + str(process.environ())
        assert fetch(f"{address}/status")[0] == 401
