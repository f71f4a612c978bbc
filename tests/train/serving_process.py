"""A process that serves a job."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def serving(config: Path, *settings: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Its address and itself; killed if it still runs in the end."""
    command = [sys.executable, "-m", "octopus.cli", "serve", str(config), "--port", "0"]
    for setting in settings:
        command += ["--set", setting]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as run:
        assert run.stdout is not None
        try:
            yield run.stdout.readline().removeprefix("serving ").strip(), run
        finally:
            run.kill()
