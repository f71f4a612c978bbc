"""A job with its HTTP application: the run in one process, the application in another."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch.distributed as dist

from octopus.core.errors import ConfigError
from octopus.rollout.logs import new_logger
from octopus.rollout.spans import NO_SPANS, Spans
from octopus.train.job import Report, run_job
from octopus.train.job_config import JobConfig
from octopus.train.service.answers import Answers
from octopus.train.service.fronting import fronted
from octopus.train.service.observed import Observed

LOGGER = new_logger(__name__)

LOOPBACK = ("127.0.0.1", "localhost")
SHORTEST_TOKEN = 16


def serve_job(
    config: JobConfig,
    *,
    host: str,
    port: int,
    token_file: Path | None = None,
    report: Report = print,
    spans: Spans = NO_SPANS,
) -> str:
    """Runs a job as `run_job` does, and serves its figures meanwhile. Returns the final table.

    Args:
        config: The job.
        host: Address to listen on.
        port: TCP port; 0 for any that is free.
        token_file: File with the token that requests must bear. Needed off loopback.
        report: Receives one line of progress at a time, and first of all the address.
        spans: Get what takes how long.

    Raises:
        ConfigError: An address beyond loopback without a token, one that is taken, or several processes.
        Stopped: By a signal.
    """
    if dist.is_torchelastic_launched():
        raise ConfigError("octopus serve runs one process; under torchrun use octopus train")
    token = None if token_file is None else _token(token_file)
    if token is None and host not in LOOPBACK:
        raise ConfigError(f"expected --token-file to listen on {host}: only loopback is served without a token")
    observed = Observed(config.run.folder)
    with _listening(observed, host, port, token) as address:
        report(f"serving http://{address}")
        LOGGER.info("service.listening", address=address, guarded=token is not None)
        return run_job(config, report=report, watch=observed, spans=spans)


@contextmanager
def _listening(observed: Observed, host: str, port: int, token: str | None) -> Iterator[str]:
    """Serves until the run ends, however it ends."""
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host} port {port}: {error}; choose another --port") from error
    name = f"[{host}]" if ":" in host else host
    # Whoever has a token may come by any name.
    hosts = ["*"] if token is not None else [*LOOPBACK]
    with listener, fronted(Answers(observed), listener, hosts=hosts, token=token):
        yield f"{name}:{listener.getsockname()[1]}"


def _token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise ConfigError(f"--token-file {path}: {error}") from error
    if len(token) < SHORTEST_TOKEN or not token.isprintable() or " " in token:
        raise ConfigError(
            f"--token-file {path}: expected one word of at least {SHORTEST_TOKEN} characters, came {len(token)}"
        )
    return token
