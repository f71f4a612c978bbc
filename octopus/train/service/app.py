"""The HTTP application: what a run says of itself, and what it may be asked.

Its description is at `/openapi.json`. Errors are JSON with `detail`.
"""

from __future__ import annotations

import hmac
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, HTTPException, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.middleware.trustedhost import TrustedHostMiddleware

from octopus import __version__
from octopus.train.service.metrics import registry_of
from octopus.train.service.observed import Observed
from octopus.train.service.request_log import RequestLog


def new_app(observed: Observed, *, hosts: list[str], token: str | None) -> FastAPI:
    """The application of one run.

    Args:
        observed: The run.
        hosts: What a request's `Host` may say; others are refused, which keeps foreign web pages out.
        token: What a request must bear but for the probes; None for nothing.
    """
    # Interactive pages would load scripts from elsewhere.
    app = FastAPI(title="Octopus", version=__version__, docs_url=None, redoc_url=None)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts)
    app.add_middleware(RequestLog)
    registry, guarded = registry_of(observed), [Depends(_bearer(token))]

    @app.get("/livez")
    async def livez() -> dict[str, bool]:
        """The event loop turns. Touches neither the run nor the GPU."""
        return {"alive": True}

    @app.get("/readyz", responses={503: {"description": "The run has not started, or stops."}})
    async def readyz(response: Response) -> dict[str, Any]:
        """Whether the run works."""
        response.status_code = 200 if observed.ready else 503
        return {"ready": observed.ready, "phase": observed.at}

    @app.get("/metrics", dependencies=guarded, response_class=Response)
    def metrics() -> Response:
        """Prometheus' text format."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/status", dependencies=guarded)
    def status() -> dict[str, Any]:
        """The run in a few words."""
        return observed.status()

    @app.post("/pause", dependencies=guarded, status_code=202)
    def pause() -> dict[str, bool]:
        """The run waits once the step that it is at has been taken."""
        observed.pause()
        return {"paused": True}

    @app.post("/resume", dependencies=guarded, status_code=202)
    def resume() -> dict[str, bool]:
        """It goes on."""
        observed.resume()
        return {"paused": False}

    @app.post("/save", dependencies=guarded, status_code=202)
    def save() -> dict[str, bool]:
        """It saves once the step that it is at has been taken."""
        observed.ask_save()
        return {"asked": True}

    return app


def _bearer(token: str | None) -> Any:
    expected = f"Bearer {token}".encode()

    def check(authorization: Annotated[str | None, Header()] = None) -> None:
        if token is not None and not hmac.compare_digest((authorization or "").encode(), expected):
            raise HTTPException(401, "expected the header `Authorization: Bearer` with the service's token")

    return check
