"""Requests that were refused, and those that asked something of the run. What they bear is never logged."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octopus.rollout.logs import new_logger

LOGGER = new_logger(__name__)


class RequestLog:
    """Logs requests by method, path and status; neither their query nor a header or body, which may hold a secret."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                _log(scope, message["status"])
            await send(message)

        await self._app(scope, receive, sent if scope["type"] == "http" else send)


def _log(scope: Scope, status: int) -> None:
    told = {"method": scope["method"], "path": scope["path"], "status": status}
    if status >= 500 and scope["path"] != "/readyz":
        LOGGER.error("http.failed", **told)
    elif 400 <= status < 500:
        LOGGER.warning("http.refused", **told)
    elif scope["method"] == "POST":
        LOGGER.info("operator.asked", **told)
