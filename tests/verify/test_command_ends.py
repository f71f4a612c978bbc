"""How the command ends when it cannot end by itself: Ctrl-C, a fault of its own, a reader that has gone."""

from __future__ import annotations

import subprocess
import sys

import pytest

INSTEAD = """
import os, signal, sys
from octopus.verify import readers
from octopus.verify.command.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background jobs are started deaf to it.
def read(*_, **__):
    {instead}
readers.read = read
sys.exit(main(["all", "dump.npz", "--isolated"]))
"""


def ended(instead: str) -> subprocess.CompletedProcess[str]:
    """A process in which reading the input is replaced."""
    return subprocess.run(
        [sys.executable, "-c", INSTEAD.format(instead=instead)], capture_output=True, text=True, check=False
    )


def test_ctrl_c_ends_with_130_and_no_traceback() -> None:
    """Catches: an interrupt that looks like a verdict, or like a fault of the auditor."""
    done = ended("os.kill(os.getpid(), signal.SIGINT)")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("fault", ["1 / 0", "[][0]", "assert not 'true'", "raise RecursionError"])
def test_a_fault_of_the_auditor_ends_with_101_and_asks_for_a_report(fault: str) -> None:
    """Catches: a bug that exits with 1, as findings do."""
    done = ended(fault)
    assert done.returncode == 101 and done.stdout == ""
    assert "Traceback" in done.stderr and "OCT901" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("arguments", [["rules"], ["rules", "--format", "json"], ["explain", "OCT101"]])
def test_a_reader_that_has_gone_is_not_complained_about(arguments: list[str]) -> None:
    """Catches: `octopus-verify ... | head` that ends with a message about a broken pipe."""
    command = [sys.executable, "-m", "octopus.verify.command.main", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert (process.wait(timeout=60), process.stderr.read()) == (141, "")
