"""Public bugs get their code; the repaired form of the same dump has no finding at all."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from corpus import heads, masks, packing, positions
from corpus.case import Bug
from safetensors.torch import save_file

from octopus.verify.audits import STATIC, run
from octopus.verify.findings import Report, Severity, Verdict
from octopus.verify.readers import read

BUGS: tuple[Bug, ...] = (*masks.BUGS, *packing.BUGS, *positions.BUGS, *heads.BUGS)


def audit(bug: Bug, dump: Mapping[str, Any], folder: Path) -> Report:
    """What the static audits say to the dump, written as files and read back."""
    entries = {**bug.shared, **dump}
    tables = {name: entries.pop(name) for name in ("config",) if name in entries}
    paths = []
    for name, table in tables.items():
        (folder / f"{name}.json").write_text(json.dumps(table))
        paths.append(str(folder / f"{name}.json"))
    arrays = {name: np.asarray(value) for name, value in entries.items()}
    assert all(size <= 16 for name, a in arrays.items() if not name.startswith(("k_", "dL")) for size in a.shape[-1:])
    odd = {name: bug.stored[name] for name in arrays if name in bug.stored and arrays[name].dtype == np.float32}
    if odd:
        tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
        tensors |= {name: tensors[name].to(getattr(torch, dtype)) for name, dtype in odd.items()}
        save_file(tensors, folder / "dump.safetensors")
        paths.append(str(folder / "dump.safetensors"))
    elif arrays:
        np.savez(folder / "dump.npz", **arrays)
        paths.append(str(folder / "dump.npz"))
    return run(STATIC, read(paths, hints=bug.hints))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name.replace(" ", "-"))
def test_the_bug_is_found_by_its_code(bug: Bug, tmp_path: Path) -> None:
    """Catches an audit that lets a bug through which somebody has shipped."""
    found = audit(bug, bug.wrong, tmp_path)
    assert bug.code in {finding.code for finding in found.findings}, found.checks


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name.replace(" ", "-"))
def test_the_repaired_dump_is_clean(bug: Bug, tmp_path: Path) -> None:
    """Catches an audit that finds the same in everything; and a clean dump of which nothing was checked."""
    found = audit(bug, bug.right, tmp_path)
    assert [f for f in found.findings if f.severity > Severity.INFO] == []
    assert found.verdict() is not Verdict.FINDINGS


def test_the_corpus_is_as_wide_as_it_says() -> None:
    """Catches a case that was dropped."""
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 60
    assert len({report for bug in BUGS for report in bug.reports}) >= 90
    codes = {bug.code for bug in BUGS}
    assert {"OCT001", "OCT101", "OCT102", "OCT103", "OCT104", "OCT105", "OCT106", "OCT107", "OCT108", "OCT109"} <= codes
    assert {"OCT113", "OCT115", "OCT116", "OCT201", "OCT202", "OCT203", "OCT204", "OCT205", "OCT206", "OCT207"} <= codes
    assert {"OCT208", "OCT209", "OCT301", "OCT302", "OCT303", "OCT304", "OCT305"} <= codes
    assert {"OCT401", "OCT402", "OCT404", "OCT405", "OCT408"} <= codes
