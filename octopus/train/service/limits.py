"""What a request may be, before anybody looks what it asks for. A refusal reads no body and closes the connection."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = ("GET", "POST")
VERSIONS = ("1.0", "1.1")
MOST_HEADERS = 64
MOST_HEADER_BYTES = 8 * 1024
MOST_TARGET_BYTES = 1024


class Limits:
    """Refuses requests that no operator and no Prometheus sends."""

    def __init__(self, app: ASGIApp, *, methods: Mapping[str, tuple[str, ...]], bodies: Mapping[str, int]) -> None:
        """Before an application.

        Args:
            app: Gets what is not refused.
            methods: Allowed ones by path; elsewhere `METHODS` are, so that the application says what it does not know.
            bodies: Most bytes of a body by path; elsewhere there may be none.
        """
        self._app = app
        self._methods = methods
        self._bodies = bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        most = self._bodies.get(scope["path"], 0)
        answer = _refusal(scope, headers, self._methods.get(scope["path"], METHODS), most)
        if answer is None and _announces_body(headers):
            body = await _body(receive, most)
            if body is None:
                answer = _refused(413, f"expected a body of at most {most} bytes")
            else:
                receive = _again(body, receive)
        await (answer or self._app)(scope, receive, send)


def _refusal(
    scope: Scope, headers: list[tuple[bytes, bytes]], methods: tuple[str, ...], most: int
) -> Response | None:
    if scope["method"] not in methods:
        return _refused(405, f"expected the method {' or '.join(methods)}", Allow=", ".join(methods))
    if scope["http_version"] not in VERSIONS:
        return _refused(505, f"expected one of the versions {', '.join(VERSIONS)} of HTTP")
    target = len(scope["raw_path"]) + len(scope["query_string"])
    if target > MOST_TARGET_BYTES:
        return _refused(414, f"expected a path and a query of at most {MOST_TARGET_BYTES} bytes, came {target}")
    length = sum(len(name) + len(value) for name, value in headers)
    if len(headers) > MOST_HEADERS or length > MOST_HEADER_BYTES:
        expected = f"expected at most {MOST_HEADERS} headers of {MOST_HEADER_BYTES} bytes in all"
        return _refused(431, f"{expected}, came {len(headers)} of {length}")
    if any(name == b"origin" for name, _ in headers):
        return _refused(403, "expected no header `Origin`: web pages may ask for nothing")
    if not most and _announces_body(headers):
        return _refused(413, "expected no body")
    return None


def _announces_body(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and int(value) > 0) for name, value in headers
    )


async def _body(receive: Receive, most: int) -> bytes | None:
    """The whole body, or None if it is longer, or its sender has left."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if message["type"] != "http.request" or len(body) > most:
            return None
    return body


def _again(body: bytes, receive: Receive) -> Receive:
    """Receives a body that was read, then whatever comes."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return left.pop() if left else await receive()

    return received


def _refused(status: int, why: str, **headers: str) -> Response:
    return JSONResponse({"detail": why}, status, headers | {"Connection": "close"})
