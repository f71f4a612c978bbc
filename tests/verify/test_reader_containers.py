"""Containers of arrays: what honest writers produce is read back exactly, and every lie is refused by name."""

import json
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from octopus.verify.inputs import Hints, Unreadable
from octopus.verify.readers.containers.json_text import MAX_JSON_BYTES, parse_json, read_json_lines
from octopus.verify.readers.containers.npy import read_npy
from octopus.verify.readers.containers.npz import read_npz
from octopus.verify.readers.containers.safetensors import read_safetensors
from octopus.verify.readers.files import gather, load

LIMIT = 2**20
RNG = np.random.default_rng(0)
ARRAYS = {
    "flags": RNG.random((3, 4)) > 0.5,
    "ids": RNG.integers(-5, 5, (2, 3, 4)),
    "small": RNG.integers(0, 9, 7).astype(np.uint8),
    "half": RNG.random((4, 2)).astype(np.float16),
    "wide": RNG.random((5,)),
    "one": np.array(3),
    "none": np.zeros((0, 4), dtype=np.float32),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_npy_is_read_as_numpy_writes_it(tmp_path: Path, name: str) -> None:
    """Catches a wrong offset, type or shape."""
    np.save(tmp_path / "a.npy", ARRAYS[name])
    got = read_npy(tmp_path / "a.npy", LIMIT)
    assert got.dtype == ARRAYS[name].dtype
    np.testing.assert_array_equal(got, ARRAYS[name])


def test_npy_in_column_order_and_of_other_endianness(tmp_path: Path) -> None:
    """Catches a reader that ignores `fortran_order` or the byte order."""
    array = np.asfortranarray(np.arange(6, dtype=">i4").reshape(2, 3))
    np.save(tmp_path / "a.npy", array)
    np.testing.assert_array_equal(read_npy(tmp_path / "a.npy", LIMIT), array)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_is_read_as_numpy_writes_it(tmp_path: Path, save: object) -> None:
    """Catches a wrong offset of a member's data, and inflating without the raw window."""
    save(tmp_path / "a.npz", **ARRAYS)  # type: ignore[operator]
    got = read_npz(tmp_path / "a.npz", LIMIT)
    assert got.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(got[name], array)


def test_safetensors_is_read_as_the_library_writes_it(tmp_path: Path) -> None:
    """Catches wrong offsets, and bfloat16 that is widened wrongly."""
    tensors = {name: torch.from_numpy(array.copy()) for name, array in ARRAYS.items()}
    tensors["brain"] = torch.randn(4, 3).bfloat16()
    save_file(tensors, tmp_path / "a.safetensors", metadata={"any": "thing"})
    got = read_safetensors(tmp_path / "a.safetensors", LIMIT)
    assert got.keys() == tensors.keys()
    assert got["brain"].dtype == "bfloat16"
    np.testing.assert_array_equal(got["brain"].array, tensors["brain"].float().numpy())
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(got[name].array, array)


def npy(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    return b"\x93NUMPY" + version + struct.pack("<H", len(header)) + header.encode() + data


HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "magic"),
        (b"\x80\x04\x95pickle", "magic"),
        (npy(HEADER, b"1234"), "asks for 8 bytes"),
        (npy(HEADER, b"1" * 9), "asks for 8 bytes"),
        (npy(HEADER.replace("(2,)", "(4294967296,)")), "asks for 17,179,869,184 bytes"),
        (npy(HEADER.replace("(2,)", "(" + "9" * 19 + ",)")), "no sensible shape"),
        (npy(HEADER.replace("(2,)", "(" + "1," * 9 + ")"), b"1234"), "no sensible shape"),
        (npy(HEADER.replace("(2,)", "(-2,)")), "plain array"),
        (npy(HEADER.replace("<f4", "|O")), "pickle"),
        (npy(HEADER.replace("<f4", "|V2"), b"1234"), "bfloat16"),
        (npy(HEADER.replace("<f4", "<c8"), b"1" * 16), "element type"),
        (npy(HEADER.replace("'<f4'", "[('a', '<f4')]"), b"1" * 8), "plain array"),
        (npy(HEADER.replace("(2,)", "__import__('os').getpid()")), "plain array"),
        (npy(HEADER.replace("(2,)", "(2,)" + "(" * 3000)), "plain array"),
        (npy(HEADER, version=b"\x09\x00"), "version"),
        (b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31), "bytes long"),
        (npy(HEADER.replace("<f4", "|b1"), b"\x01\x07"), "0 and 1"),
    ],
)
def test_a_lying_npy_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    """Catches a parser that allocates, evaluates or unpickles before it has checked."""
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(Unreadable, match=said):
        read_npy(tmp_path / "a.npy", LIMIT)


def test_an_npz_that_inflates_too_far_is_refused(tmp_path: Path) -> None:
    """Catches a limit on the packed size only."""
    np.savez_compressed(tmp_path / "a.npz", a=np.zeros(2 * LIMIT, dtype=np.uint8))
    assert (tmp_path / "a.npz").stat().st_size < LIMIT
    with pytest.raises(Unreadable, match="--max-bytes"):
        read_npz(tmp_path / "a.npz", LIMIT)
    assert read_npz(tmp_path / "a.npz", 3 * LIMIT)["a"].size == 2 * LIMIT


def zipped(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path.read_bytes()


GOOD = npy(HEADER, b"12345678")


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"../../a.npy": GOOD}, "not accepted"),
        ({"/a.npy": GOOD}, "not accepted"),
        ({"c:\\a.npy": GOOD}, "not accepted"),
        ({"a\x1b[31m.npy": GOOD}, "not accepted"),
        ({"a.pkl": b"\x80\x04."}, "not an array"),
        ({"a.npy": npy(HEADER.replace("<f4", "|O"), b"\x80\x04.")}, "pickle"),
        ({f"{i}.npy": b"" for i in range(1001)}, "refused"),
    ],
)
def test_a_hostile_npz_is_refused(tmp_path: Path, members: dict[str, bytes], said: str) -> None:
    """Catches members that are taken by their name, or more of them than anybody needs."""
    zipped(tmp_path / "a.npz", members)
    with pytest.raises(Unreadable, match=said):
        read_npz(tmp_path / "a.npz", LIMIT)


def test_a_member_is_not_inflated_beyond_its_declared_size(tmp_path: Path) -> None:
    """Catches trust in the directory: 1 MiB of zeros that call themselves 128 bytes."""
    data = bytearray(zipped(tmp_path / "a.npz", {"a.npy": b"\0" * LIMIT}))
    at = data.index(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", 128)
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(Unreadable, match="inflates to more than the 128 bytes"):
        read_npz(tmp_path / "a.npz", LIMIT)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_damaged_npz_is_refused(tmp_path: Path, method: int) -> None:
    """Catches a checksum that nobody compares, and an offset that leads astray."""
    whole = zipped(tmp_path / "a.npz", {"a.npy": GOOD}, method)
    for at in range(len(whole)):
        (tmp_path / "b.npz").write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            got = read_npz(tmp_path / "b.npz", LIMIT)
        except Unreadable:
            continue
        assert [array.tobytes() for array in got.values()] == [b"12345678"]
    for length in range(len(whole)):
        (tmp_path / "b.npz").write_bytes(whole[:length])
        with pytest.raises(Unreadable):
            read_npz(tmp_path / "b.npz", LIMIT)


def test_a_member_packed_by_another_method_is_refused(tmp_path: Path) -> None:
    """Catches bzip2 and LZMA, whose memory nobody bounds."""
    zipped(tmp_path / "a.npz", {"a.npy": GOOD}, zipfile.ZIP_LZMA)
    with pytest.raises(Unreadable, match="packed in a way"):
        read_npz(tmp_path / "a.npz", LIMIT)


def tensors(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype: str = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x01", "ends inside"),
        (tensors({}, length=2**63), "bytes long"),
        (tensors({}, length=2**40), "bytes long"),
        (tensors({}, length=200), "bytes long"),
        (tensors(b"[1]"), "not a table"),
        (tensors(b"{'a'"), "not JSON"),
        (tensors(b'{"a": ' + b"[" * 10**5), "nested too deeply"),
        (tensors(b'{"a": 1, "a": 2}'), "twice"),
        (tensors({"a": entry(shape=[2**40], offsets=[0, 8])}, b"1" * 8), "needs 4,398,046,511,104 bytes"),
        (tensors({"a": entry(shape=[2**33], offsets=[0, 2**35])}, b"1" * 8), "the tensors end at byte"),
        (tensors({"a": entry(offsets=[4, 12])}, b"1" * 12), "hole or an overlap"),
        (tensors({"a": entry(), "b": entry(offsets=[4, 12])}, b"1" * 12), "hole or an overlap"),
        (tensors({"a": entry()}, b"1" * 9), "the tensors end at byte"),
        (tensors({"a": entry(offsets=[8, 0])}, b"1" * 8), "needs 8 bytes"),
        (tensors({"a": entry(shape=[-2])}, b"1" * 8), "no sensible shape"),
        (tensors({"a": entry(shape=[True, 2])}, b"1" * 8), "no sensible shape"),
        (tensors({"a": entry(shape=[1] * 9)}, b"1" * 8), "no sensible shape"),
        (tensors({"a": entry(dtype="F8_E4M3")}, b"1" * 8), "accepted are"),
        (tensors({"a": {**entry(), "file": "/x"}}, b"1" * 8), "not described"),
        (tensors({"../a": entry()}, b"1" * 8), "not accepted"),
        (tensors({"a\x1b[2J": entry()}, b"1" * 8), "not accepted"),
        (tensors({"a": entry("BOOL", [2], [0, 2])}, b"\x01\x02"), "other than 0 and 1"),
        (tensors({"__metadata__": {"a": 1}}), "metadata"),
    ],
)
def test_a_lying_safetensors_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    """Catches a header that is believed."""
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(Unreadable, match=said):
        read_safetensors(tmp_path / "a.safetensors", LIMIT)


@pytest.mark.parametrize(
    "text", [b"", b"NaN", b"[" * 10**6, b'{"a":' * 10**6, b"1" * 5000, b"\xff", b'{"a": 1, "a": 1}', b"{} {}"]
)
def test_json_that_is_none_is_refused(text: bytes) -> None:
    """Catches a crash of the parser's stack, NaN, and a key that two readers would read differently."""
    with pytest.raises(Unreadable):
        parse_json(text, "the file")


def test_lines_are_bounded_one_by_one_and_in_all(tmp_path: Path) -> None:
    """Catches small text that becomes large objects, and a line without end."""
    file = tmp_path / "a.jsonl"
    file.write_text('{"kind": "header"}\n\n{"kind": "mark"}\n')
    assert [number for number, _ in read_json_lines(file, LIMIT)] == [1, 3]
    file.write_text('{"kind": [' + "[]," * 10_000 + "[]]}\n")
    with pytest.raises(Unreadable, match="up to line 1"):
        list(read_json_lines(file, LIMIT // 2))
    file.write_text('{"a": "' + "a" * MAX_JSON_BYTES + '"}\n')
    with pytest.raises(Unreadable, match="line 1 has more than"):
        list(read_json_lines(file, 4 * MAX_JSON_BYTES))


def test_pt_is_read_on_request_only_and_never_as_a_pickle(tmp_path: Path) -> None:
    """Catches the full unpickler, tensors expanded from one element, and sparse ones."""
    hints = Hints(allow_pt=True, max_bytes=LIMIT)
    torch.save({"mask": torch.ones(3, 3).bfloat16()}, tmp_path / "a.pt")
    with pytest.raises(Unreadable, match="--allow-pt"):
        load(str(tmp_path / "a.pt"), Hints())
    stored = load(str(tmp_path / "a.pt"), hints).arrays["mask"]
    assert stored.dtype == "bfloat16" and stored.array.tolist() == [[1.0] * 3] * 3
    for name, value, said in (
        ("path", {"a": Path()}, "torch refuses"),
        ("wide", {"a": torch.zeros(1).expand(2**30)}, "--max-bytes"),
        ("sparse", {"a": torch.eye(3).to_sparse()}, "sparse"),
        ("list", [torch.ones(1)], "neither a tensor"),
    ):
        torch.save(value, tmp_path / f"{name}.pt")
        with pytest.raises(Unreadable, match=said):
            load(str(tmp_path / f"{name}.pt"), hints)


def test_files_that_are_no_files_are_refused(tmp_path: Path) -> None:
    """Catches waiting for a pipe for ever, reading a device, and a message that speaks to the terminal."""
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "zero.npy").symlink_to("/dev/zero")
    for name in ("pipe.npy", "folder.npy", "zero.npy"):
        with pytest.raises(Unreadable, match="not a regular file"):
            load(str(tmp_path / name), Hints())
    for name in ("missing.npy", "\0.npy", "a" * 5000 + ".npy", "\x1b[2J.npy"):
        with pytest.raises(Unreadable, match="cannot open") as refusal:
            load(str(tmp_path / name), Hints())
        assert str(refusal.value).isprintable() and len(str(refusal.value)) < 400
    with pytest.raises(Unreadable, match="are read, not"):
        load(str(tmp_path / "a.exe"), Hints())


def test_arrays_get_the_name_of_their_file_or_the_one_that_is_given(tmp_path: Path) -> None:
    """Catches NAME=FILE taken for a path, and one array that silently replaces another."""
    np.save(tmp_path / "position_ids.npy", np.arange(3))
    path = str(tmp_path / "position_ids.npy")
    assert gather([path, f"parents={path}"], Hints()).arrays.keys() == {"position_ids", "parents"}
    with pytest.raises(Unreadable, match="once more"):
        gather([path, path], Hints())
