"""What the network may send to a service: refused, or cut off, without an effect on the run or on other clients.

Catches: deny-lists; foreign web pages; sizes without a limit; clients that a server waits for; errors that end it.
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack

import pytest
from fastapi.testclient import TestClient
from http_edge import MadeUp, closed_within, edge, received, request, status, statuses
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from octopus.train.service import app
from octopus.train.service.asking import Unanswered
from octopus.train.service.limits import MOST_HEADER_BYTES, MOST_HEADERS, MOST_TARGET_BYTES, Limits


def test_only_declared_methods() -> None:
    """Catches: a list of what is forbidden, which forgets one; HEAD, which Starlette adds to GET."""
    run = MadeUp()
    paths = {"/pause": "POST", "/status": "GET", "/openapi.json": "GET", "/nowhere": "GET, POST"}
    with edge(run) as at:
        for method in ("HEAD", "OPTIONS", "TRACE", "DELETE", "PUT", "PATCH", "CONNECT", "PROPFIND", "get"):
            for path, allowed in paths.items():
                answer = at.send(request(method, path, keep=True))
                assert status(answer) == 405 and f"\r\nallow: {allowed}\r\n".encode() in answer
        assert at.get("/pause") == 405 and status(at.send(request("POST", "/status"))) == 405
    assert run.asked == []


def test_only_its_own_host() -> None:
    """Catches: DNS rebinding; a name compared by its beginning or its end; the first of two hosts; none."""
    run, last = MadeUp(), "Connection: close\r\n\r\n"
    hosts = ["evil.example", "127.0.0.1.evil.example", "evil.example@127.0.0.1", "", "127.0.0.1\r\nHost: evil.example"]
    with edge(run) as at:
        for host in hosts:
            assert status(at.send(f"POST /pause HTTP/1.1\r\nHost: {host}\r\n{last}".encode())) == 400
        for version in ("1.0", "1.1"):
            assert status(at.send(f"POST /pause HTTP/{version}\r\n{last}".encode())) == 400
    assert run.asked == []


def test_no_web_page_asks() -> None:
    """Catches: a page of this machine, or of anybody, whose script posts to loopback without a preflight."""
    run = MadeUp()
    with edge(run) as at:
        for origin in ("https://evil.example", "null", "http://127.0.0.1:9464", "http://localhost"):
            assert status(at.send(request("POST", "/save", f"Origin: {origin}", "Content-Type: text/plain"))) == 403
    assert run.asked == []


def test_headers_and_targets_have_a_size() -> None:
    """Catches: a limit on one header only, on their number only, or after all were kept; a path without one."""
    most, run = MOST_HEADER_BYTES, MadeUp()
    with edge(run) as at:
        for count, length, expected in ((1, most // 2, 202), (1, most, 431), (20, most // 20, 431)):
            headers = [f"X-{n}: {'a' * length}" for n in range(count)]
            assert status(at.send(request("POST", "/save", *headers))) == expected
        assert status(at.send(request("POST", "/save", *(f"X-{n}: a" for n in range(MOST_HEADERS))))) == 431
        assert status(at.send(request("POST", "/save?" + "a" * MOST_TARGET_BYTES))) == 414
        assert status(at.send(request("POST", "/" + "a" * MOST_TARGET_BYTES))) == 414
        with at.open() as wire:  # One without an end.
            wire.sendall(b"POST /save HTTP/1.1\r\nX: " + b"a" * 20_000)
            assert status(received(wire, 2)) == 400
    assert run.asked == ["save"]


def test_there_is_no_body_where_none_is_expected() -> None:
    """Catches: a body that is read, or waited for, before it is refused; one of unknown length; one with GET."""
    run = MadeUp()
    with edge(run) as at:
        for method, path in (("POST", "/pause"), ("GET", "/status"), ("POST", "/nowhere")):
            for header in ("Content-Length: 1", "Content-Length: 1000000000000", "Transfer-Encoding: chunked"):
                assert status(at.send(request(method, path, header))) == 413
        assert status(at.send(request("POST", "/pause", "Content-Length: 0"))) == 202
        smuggled = request("POST", "/pause", "Content-Length: 30", body=request("POST", "/save"), keep=True)
        assert statuses(at.send(smuggled)) == [413]
        with at.open() as wire:
            wire.sendall(request("POST", "/pause", "Content-Length: 1000000000000", keep=True))
            assert closed_within(wire, 0.5)
    assert run.asked == ["pause"]


def test_a_body_has_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a limit that believes `Content-Length`, or does not count chunks; a body that is lost on the way."""
    monkeypatch.setitem(app.BODIES, "/pause", 8)
    run = MadeUp()
    chunked = "Transfer-Encoding: chunked"
    with edge(run) as at:
        assert status(at.send(request("POST", "/pause", "Content-Length: 9", body=b"123456789"))) == 413
        assert status(at.send(request("POST", "/pause", chunked, body=b"5\r\n12345\r\n5\r\n12345\r\n"))) == 413
        assert run.asked == []
        assert status(at.send(request("POST", "/pause", "Content-Length: 8", body=b"12345678"))) == 202
        assert status(at.send(request("POST", "/pause", chunked, body=b"5\r\n12345\r\n0\r\n\r\n"))) == 202


def test_a_body_that_was_measured_is_handed_on() -> None:
    """Catches: an application that gets a body without its beginning, or none."""

    async def echo(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(await Request(scope, receive).body())(scope, receive, send)

    page = TestClient(Limits(echo, methods={}, bodies={"/": 8}))
    assert page.post("/", content=b"12345678").content == b"12345678"
    assert page.post("/", content=iter([b"1234", b"5678"])).content == b"12345678"
    assert page.post("/", content=iter([b"12345", b"6789"])).status_code == 413


MALFORMED = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
    b"\r\n\r\n\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    b"GET /status\r\n\r\n",
    b"GET /status HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
    b"POST /save HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
    b"POST /save HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n",
    b"POST /save HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    b"POST /save HTTP/1.1\r\nHost : 127.0.0.1\r\n\r\n",
    b"POST /save HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\x00b\r\n\r\n",
    b"POST /save HTTP/1.1\r\nHost: 127.0.0.1\r\nno colon\r\n\r\n",
    b"POST /save\x01 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"POST http://[ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
]


def test_what_is_not_http_is_closed() -> None:
    """Catches: a parser's error that ends the server, or leaves the connection open; a request guessed from garbage."""
    run = MadeUp()
    with edge(run) as at:
        for raw in MALFORMED:
            with at.open() as wire:
                wire.sendall(raw)
                answer = received(wire, 0.5)
                assert status(answer) in (0, 400, 404, 505), raw
        assert at.get("/livez") == 200
    assert run.asked == ["alive"]


def test_a_slow_client_is_cut_off_and_nobody_waits_for_it() -> None:
    """Catches: a deadline that each byte moves on; one for headers and none for bodies; one that silence escapes."""
    run = MadeUp()
    with edge(run, deadline_s=0.6) as at, ExitStack() as open_:
        silent, drip, body, half = (open_.enter_context(at.open()) for _ in range(4))
        begin = time.monotonic()
        drip.sendall(b"GET /status HTTP/1.1\r\nX: ")
        body.sendall(request("POST", "/save", "Content-Length: 0", keep=True)[:-2] + b"X: ")
        half.sendall(b"GET /st")
        half.shutdown(1)
        while time.monotonic() - begin < 0.4:
            drip.sendall(b"a")
            body.sendall(b"a")
            asked = time.monotonic()
            assert at.get("/livez") == 200 and time.monotonic() - asked < 0.3
        assert all(closed_within(wire, 1.0) for wire in (silent, drip, body, half))
        assert time.monotonic() - begin < 1.6
    assert run.wishes == []


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a deadline that ends with the headers."""
    monkeypatch.setitem(app.BODIES, "/pause", 8)
    run = MadeUp()
    with edge(run, deadline_s=0.4) as at, at.open() as wire:
        wire.sendall(request("POST", "/pause", "Content-Length: 8", body=b"1"))
        assert closed_within(wire, 1.5)
    assert run.asked == []


def test_a_connection_that_asks_stays_open() -> None:
    """Catches: a deadline for the connection instead of the request, which would cut Prometheus off."""
    with edge(MadeUp(), deadline_s=0.4) as at, at.open() as wire:
        for _ in range(4):
            wire.sendall(request("GET", "/livez", keep=True))
            assert status(received(wire, 0.2)) == 200
        assert closed_within(wire, 1.0)


def test_a_client_that_does_not_read_is_cut_off() -> None:
    """Catches: answers that are kept for ever for whoever does not fetch them."""
    run = MadeUp(MadeUp().answers | {"metrics": "a" * 2**20})
    with edge(run, deadline_s=0.5) as at, at.open() as wire:
        wire.sendall(request("GET", "/metrics", keep=True) * 20)
        time.sleep(0.3)
        assert at.get("/livez") == 200 and at.server.server_state.connections
        until = time.monotonic() + 2
        while at.server.server_state.connections and time.monotonic() < until:
            time.sleep(0.02)
        assert not at.server.server_state.connections
    assert run.asked.count("metrics") < 20


def test_idle_connections_leave_room_for_others() -> None:
    """Catches: a limit that refuses everybody once it is reached; none at all; the newest that goes."""
    with edge(MadeUp(), most=20) as at, ExitStack() as open_:
        idle = [open_.enter_context(at.open()) for _ in range(100)]
        assert all(at.get("/livez") == 200 for _ in range(3))
        assert len(at.server.server_state.connections) <= 20
        assert closed_within(idle[0], 0.5) and not closed_within(idle[-1], 0.1)


def test_an_error_is_one_answer() -> None:
    """Catches: an error that ends the server, tells strangers what it says, or is no JSON."""
    run = MadeUp(MadeUp().answers | {"status": ValueError("a secret"), "pause": Unanswered("the run gave no answer")})
    with edge(run) as at:
        for path, expected in (("/status", 500), ("/livez", 200)):
            answer = at.send(request("GET", path))
            assert status(answer) == expected and b"secret" not in answer
            assert json.loads(answer.split(b"\r\n\r\n")[1])
        answer = at.send(request("POST", "/pause"))
        assert status(answer) == 503 and b"the run gave no answer" in answer


def test_whoever_has_no_token_reaches_nothing_of_the_run() -> None:
    """Catches: a check after the question was asked; a word compared by its beginning; another scheme."""
    run = MadeUp()
    words = ["", "Bearer", "Basic a-token-of-some-length", "Bearer \xe9"]
    words += [f"Bearer a-token-of-some-{end}" for end in ("lengt", "length2", "length a-token")]
    with edge(run, token="a-token-of-some-length") as at:
        for word in words:
            for method, path in (("GET", "/metrics"), ("GET", "/status"), ("POST", "/save"), ("POST", "/pause")):
                answer = at.send(request(method, path, f"Authorization: {word}"))
                assert status(answer) == 401 and b"www-authenticate: bearer" in answer.lower()
        assert run.asked == []
        right = "Authorization: Bearer a-token-of-some-length"
        assert status(at.send(request("POST", "/save", right))) == 202
    assert run.asked == ["save"]
