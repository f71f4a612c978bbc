"""Hostile files end with exit code 2 and one clear line, soon and small: each in a process of its own, measured.

Peak memory is the process's own high-water mark, so what the test runner holds does not count.
"""

import os
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

MAX_SECONDS, MAX_MIB = 1.0, 200

RUN = """
import resource, sys
from octopus.verify.command.main import main
code = main(sys.argv[1:])
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print("cost", sum(resource.getrusage(resource.RUSAGE_SELF)[:2]), peak.split()[1], file=sys.stderr)
sys.exit(code)
"""


def npy(descr: str, shape: str, data: bytes = b"") -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def zipped(path: Path, name: str, data: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)


def asks_for_32_gib(folder: Path) -> Path:
    """An archive of 243 bytes whose header asks for 2**32 float64."""
    with zipfile.ZipFile(folder / "a.npz", "w") as archive:
        archive.writestr("mask.npy", npy("<f8", "(4294967296,)", b" " * 52))
    assert (folder / "a.npz").stat().st_size == 243
    return folder / "a.npz"


def inflates(folder: Path) -> Path:
    """389 kB that inflate to 400 MB."""
    zipped(folder / "a.npz", "mask.npy", npy("|b1", "(20000, 20000)", bytes(400_000_000)))
    assert (folder / "a.npz").stat().st_size < 400_000
    return folder / "a.npz"


def sparse(folder: Path) -> Path:
    """A file of 8 GiB that takes no room on disk, with a header that fits it."""
    header = npy("|b1", "(92681, 92681)")
    with (folder / "mask.npy").open("wb") as file:
        file.write(header)
        file.truncate(len(header) + 92681**2)
    return folder / "mask.npy"


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch owned",)


def pickle_in_npy(folder: Path) -> Path:
    np.save(folder / "mask.npy", np.array([Evil()], dtype=object), allow_pickle=True)
    return folder / "mask.npy"


def pickle_as_npy(folder: Path) -> Path:
    import pickle

    (folder / "mask.npy").write_bytes(pickle.dumps(Evil()))
    return folder / "mask.npy"


def pickle_in_pt(folder: Path) -> Path:
    import torch

    torch.save({"mask": Evil()}, folder / "mask.pt")
    return folder / "mask.pt"


def safetensors(folder: Path, header: bytes, data: bytes = b"", length: int | None = None) -> Path:
    file = folder / "a.safetensors"
    file.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header + data)
    return file


def long_header(folder: Path) -> Path:
    return safetensors(folder, b"{}", length=2**62)


def huge_tensor(folder: Path) -> Path:
    header = b'{"mask":{"dtype":"F64","shape":[4294967296],"data_offsets":[0,34359738368]}}'
    return safetensors(folder, header, b"1" * 8)


def overlapping_tensors(folder: Path) -> Path:
    entries = ",".join(f'"t{i}":{{"dtype":"U8","shape":[60000000],"data_offsets":[0,60000000]}}' for i in range(50))
    file = safetensors(folder, b"{" + entries.encode() + b"}")
    with file.open("r+b") as grown:
        grown.truncate(file.stat().st_size + 60_000_000)
    return file


def deep_safetensors(folder: Path) -> Path:
    return safetensors(folder, b'{"a":' + b"[" * 10**6)


def deep_json(folder: Path) -> Path:
    (folder / "config.json").write_text('{"a":' + "[" * 10**6)
    return folder / "config.json"


def deep_line(folder: Path) -> Path:
    (folder / "trace.jsonl").write_text('{"kind": "header"}\n' + "[" * 10**6 + "\n")
    return folder / "trace.jsonl"


def many_containers(folder: Path) -> Path:
    """Text of 60 MB that would be 1.6 GB of empty lists."""
    (folder / "trace.jsonl").write_text(('{"kind": [' + "[]," * 660_000 + "[]]}\n") * 30)
    return folder / "trace.jsonl"


def many_containers_at_once(folder: Path) -> Path:
    (folder / "a.json").write_text('{"a": [' + "[]," * 690_000 + "{}]}")
    return folder / "a.json"


def number_without_end(folder: Path) -> Path:
    (folder / "config.json").write_text('{"num_attention_heads": ' + "9" * 10**6 + "}")
    return folder / "config.json"


def path_in_npz(folder: Path) -> Path:
    zipped(folder / "a.npz", "../../../owned.npy", npy("|b1", "(1,)", b"\x01"))
    return folder / "a.npz"


def many_members(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "a.npz", "w") as archive:
        for number in range(20_000):
            archive.writestr(f"{number}.npy", b"")
    return folder / "a.npz"


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "mask.npy")
    return folder / "mask.npy"


def device(folder: Path) -> Path:
    (folder / "mask.npy").symlink_to("/dev/zero")
    return folder / "mask.npy"


def impossible_path(folder: Path) -> Path:
    return folder / ("a/../" * 2000 + "mask.npy")


def terminal_codes(folder: Path) -> Path:
    return safetensors(folder, b'{"\\u001b[2J::error::":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"1")


def far_slices(folder: Path) -> Path:
    """Rows that do not exist, as ranges: nothing may be expanded to them."""
    (folder / "a.json").write_text('{"slices": [[0, 9000000000000, 0, 9000000000000, 1]]}')
    return folder / "a.json"


def million_fold_slices(folder: Path) -> Path:
    """A row of a hundred million tokens in a few bytes."""
    (folder / "a.json").write_text('{"slices": [[0, 100000000, 0, 100000000, 1]], "parents": [-1]}')
    return folder / "a.json"


def endless_segment(folder: Path) -> Path:
    (folder / "a.json").write_text('{"segments": [{"id": 0, "start": 0, "length": 200000000000000}]}')
    return folder / "a.json"


def endless_boundaries(folder: Path) -> Path:
    (folder / "a.json").write_text('{"cu_seqlens": [0, 100000000000000]}')
    return folder / "a.json"


HOSTILE: dict[Callable[[Path], Path], str] = {
    asks_for_32_gib: "asks for 34,359,738,368 bytes",
    inflates: "--max-bytes",
    sparse: "--max-bytes",
    pickle_in_npy: "pickle",
    pickle_as_npy: "magic",
    pickle_in_pt: "--allow-pt",
    long_header: "bytes long",
    huge_tensor: "the tensors end at byte",
    overlapping_tensors: "overlap",
    deep_safetensors: "nested too deeply",
    deep_json: "nested too deeply",
    deep_line: "nested too deeply",
    many_containers: "--max-bytes",
    many_containers_at_once: "nothing known",
    number_without_end: "not JSON",
    path_in_npz: "not accepted",
    many_members: "refused",
    pipe: "not a regular file",
    device: "not a regular file",
    impossible_path: "cannot open",
    terminal_codes: "not accepted",
    far_slices: "out of all bounds",
    million_fold_slices: "100,000,000 tokens",
    endless_segment: "tokens",
    endless_boundaries: "tokens",
}


@pytest.mark.parametrize("build", HOSTILE, ids=lambda build: build.__name__)
def test_a_hostile_file_is_refused_soon_and_small(tmp_path: Path, build: Callable[[Path], Path]) -> None:
    """Catches any allocation, recursion, wait, unpickling or traceback before the check."""
    file = build(tmp_path)
    command = [sys.executable, "-c", RUN, "all", str(file)]
    # Who waits for ever fails by this; the seconds that count are the process's own, whatever else the machine does.
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False)
    *said, cost = done.stderr.splitlines()
    _, seconds, peak_kib = cost.split()
    assert done.returncode == 2, done.stderr
    assert len(said) == 1 and said[0].startswith("octopus-verify: ") and said[0].isprintable() and len(said[0]) < 500
    assert HOSTILE[build] in said[0]
    assert done.stdout == ""
    assert float(seconds) < MAX_SECONDS
    assert int(peak_kib) < MAX_MIB * 1024
    assert not (tmp_path / "owned").exists()
