"""The HTTP application: what a run says of itself, and what it may be asked.

Its description is at `/openapi.json`. Errors are JSON with `detail`. It holds nothing of the run: whoever answers for
it may be in another process.
"""

from __future__ import annotations

import hmac
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.routing import Route

from octopus import __version__
from octopus.train.service.answer_forms import (
    MALFORMED,
    PROBLEM,
    Asked,
    CancelEpisode,
    CancelThread,
    Life,
    Paused,
    Problem,
    Readiness,
    Status,
)
from octopus.train.service.asking import Failed, Run, Unanswered
from octopus.train.service.limits import Limits
from octopus.train.service.request_log import RequestLog

BODIES = {"/cancel": 4096}
"""Most bytes of a body by path; elsewhere there is none."""
SCHEME = HTTPBearer(auto_error=False, description="The word in the service's token file; on loopback none.")
NOT_DONE: dict[int | str, dict[str, Any]] = {
    400: MALFORMED,
    **dict.fromkeys((403, 405, 413, 414, 431, 500, 503, 505), PROBLEM),
}


def new_app(run: Run, *, hosts: list[str], token: str | None) -> FastAPI:
    """The application of one run.

    Args:
        run: Whoever answers for it.
        hosts: What a request's `Host` may say; others are refused, which keeps foreign web pages out.
        token: What a request must bear but for the probes; None for nothing.
    """
    # Interactive pages would load scripts from elsewhere.
    app = FastAPI(
        title="Octopus",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=NOT_DONE,
    )
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(Unanswered, _unanswered)
    app.add_exception_handler(Failed, _failed)
    app.add_exception_handler(Exception, _failed)
    _add_probes(app, run)
    guarded: dict[str, Any] = {"dependencies": [Depends(_bearer(token))], "responses": {401: PROBLEM}}
    _add_figures(app, run, guarded)
    _add_wishes(app, run, guarded)
    # HEAD is none: Starlette adds it to GET by itself.
    routes = (route for route in app.routes if isinstance(route, Route))
    methods = {route.path: tuple((route.methods or set()) - {"HEAD"}) for route in routes}
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts)
    app.add_middleware(Limits, methods=methods, bodies=BODIES)
    app.add_middleware(RequestLog)
    return app


def _add_probes(app: FastAPI, run: Run) -> None:
    @app.get("/livez", response_model=Life)
    async def livez() -> Response:
        """The event loops of the run's process and of this one turn. Touches neither the run nor the GPU."""
        return JSONResponse({"alive": await run.ask("alive")})

    @app.get("/readyz", response_model=Readiness, responses={503: {"model": Readiness | Problem}})
    async def readyz() -> Response:
        """Whether the run works: it has started, and does not stop."""
        found = await run.ask("ready")
        return JSONResponse(found, 200 if found["ready"] else 503)


def _add_figures(app: FastAPI, run: Run, guarded: dict[str, Any]) -> None:
    @app.get("/metrics", response_class=Response, **guarded)
    async def metrics() -> Response:
        """Prometheus' text format."""
        return Response(await run.ask("metrics"), media_type=CONTENT_TYPE_LATEST)

    @app.get("/status", response_model=Status, **guarded)
    async def status() -> Response:
        """The run in a few words."""
        return JSONResponse(await run.ask("status"))


def _add_wishes(app: FastAPI, run: Run, guarded: dict[str, Any]) -> None:
    @app.post("/pause", status_code=202, **guarded)
    async def pause() -> Paused:
        """The run waits once the step that it is at has been taken."""
        await run.ask("pause")
        return Paused(paused=True)

    @app.post("/resume", status_code=202, **guarded)
    async def resume() -> Paused:
        """It goes on."""
        await run.ask("resume")
        return Paused(paused=False)

    @app.post("/save", status_code=202, **guarded)
    async def save() -> Asked:
        """It saves once the step that it is at has been taken."""
        await run.ask("save")
        return Asked(asked=True)

    more = {400: PROBLEM | {"content": dict(MALFORMED["content"])}, 404: PROBLEM, 422: PROBLEM}
    named = guarded | {"responses": guarded["responses"] | more}

    @app.post("/cancel", status_code=202, **named)
    async def cancel(whom: CancelThread | CancelEpisode) -> Asked:
        """It ends before the next step of the rollouts, and gives its memory back. Nothing is learned from it."""
        told = await run.ask("cancel", **whom.model_dump())
        if not told["found"]:
            raise HTTPException(404, _not_live(whom, told["live"]))
        return Asked(asked=True)


def _not_live(whom: CancelThread | CancelEpisode, live: dict[str, Any]) -> str:
    some = ", ".join(f"thread {one['thread']} of {one['episode']}" for one in live["some"][:5])
    found = f"{live['threads']} threads of {live['episodes']} episodes" + f", among them {some}" * bool(some)
    [(kind, name)] = whom.model_dump().items()
    return f"expected something that is played just now, came {kind} {name!r}; there are {found} (GET /status)"


async def _malformed(_: Request, __: Exception) -> Response:
    return JSONResponse({"detail": 'expected a body like {"thread": 7} or {"episode": "name/0"}, as JSON'}, 422)


async def _unanswered(_: Request, error: Exception) -> Response:
    return JSONResponse({"detail": str(error)}, 503)


async def _failed(_: Request, __: Exception) -> Response:
    """What failed is logged by the server, and not told to strangers."""
    return JSONResponse({"detail": "the service failed to answer; its log says why"}, 500)


def _bearer(token: str | None) -> Any:
    expected = (token or "").encode()

    async def check(given: Annotated[HTTPAuthorizationCredentials | None, Depends(SCHEME)]) -> None:
        word = given.credentials if given else ""
        if token is not None and not hmac.compare_digest(word.encode(), expected):
            why = "expected the header `Authorization: Bearer` with the service's token"
            raise HTTPException(401, why, {"WWW-Authenticate": "Bearer"})

    return check
