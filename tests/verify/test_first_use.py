"""What somebody tries who has never used the command: each answer says what to do next. Catches a silent pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from octopus.verify.command.main import main

DOCUMENTS = np.zeros((9, 9), dtype=bool)
for start, stop in ((0, 3), (3, 5), (5, 9)):
    DOCUMENTS[start:stop, start:stop] = np.tri(stop - start, dtype=bool)


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mask of packed documents, the mask without packing, and their cumulative lengths, under names of one's own."""
    monkeypatch.chdir(tmp_path)
    np.save("mine.npy", DOCUMENTS)
    np.save("mine4d.npy", np.where(DOCUMENTS, 0.0, -np.inf).astype(np.float32)[None, None])
    np.save("triangle.npy", np.tri(9, dtype=bool))
    np.save("cu_seqlens.npy", np.array([0, 3, 5, 9]))
    np.save("cu.npy", np.array([0, 3, 5, 9]))
    np.save("other.npy", np.arange(9))


@pytest.mark.parametrize("name", ["mine.npy", "mine4d.npy"])
def test_a_mask_under_any_name_is_audited(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches: a mask that is set aside for its name, with exit code 0."""
    assert main(["mask", name, "cu_seqlens.npy"]) == 0
    assert "was taken for the mask" in capsys.readouterr().out
    assert main(["mask", "triangle.npy", "cu_seqlens.npy"]) == 1
    assert "document 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("mask mine.npy cu.npy", "cu_seqlens=cu.npy"),
        ("mask mine.npy other.npy", "say what it is"),
        ("all triangle.npy mine.npy", "say what it is"),
        ("mask cu_seqlens.npy", "no mask was given"),
        ("mask .", "not a folder"),
        ("isolate --call trainer", "MODULE:FUNCTION"),
        ("isolate --call nowhere:stack", "nowhere"),
        ("isolate --backend fast", "available: "),
        ("mask mine.npy --window -3", "window is -3"),
        ("mask mine.npy --sinks -1", "sinks is -1"),
    ],
)
def test_what_would_be_overlooked_is_refused(
    arguments: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches: a file that was given and not used, and wrong usage that ends with the exit code of findings."""
    assert main(arguments.split()) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("mine.npy", "octopus-verify all mine.npy"),
        ("mask mine.npy --json", "--format json"),
        ("check", "invalid choice"),
    ],
)
def test_what_is_no_command_or_option_is_answered(
    arguments: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches: a message that lists all there is and not what was meant."""
    with pytest.raises(SystemExit) as end:
        main(arguments.split())
    assert end.value.code == 2 and words in capsys.readouterr().err


@pytest.mark.parametrize("command", [[], ["mask"], ["all"]])
def test_help_names_the_arrays_and_gives_an_example(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Catches: a help page after which one still has to read the sources."""
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    assert "cu_seqlens" in capsys.readouterr().out


def test_a_code_may_be_given_by_its_number(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches: `explain 101` that knows no code 101."""
    assert main(["explain", "101"]) == 0
    assert capsys.readouterr().out.startswith("OCT101")


def test_a_module_beside_the_user_is_called() -> None:
    """Catches: --call that finds modules under `python -m` only, and a report that does not say what it audited."""
    Path("trainer.py").write_text("def stack():\n    return 3\ndef broken():\n    raise RuntimeError('no model')\n")
    script = "import sys; sys.path = [p for p in sys.path if p]; from octopus.verify.command.main import main; "
    for function, words in (("stack", "trainer:stack returned int"), ("broken", "RuntimeError: no model")):
        call = f"sys.exit(main(['isolate', '--call', 'trainer:{function}']))"
        done = subprocess.run([sys.executable, "-c", script + call], capture_output=True, text=True, check=False)
        assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr
