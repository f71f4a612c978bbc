"""The members of a zip file, by an own parser that accepts what array writers produce and nothing else.

Sizes come from the central directory (PKWARE's APPNOTE 4.3.12, 4.3.16) and are believed only as upper bounds: no
member is inflated beyond its declared size, and one that does not have exactly that size and checksum is refused.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import BinaryIO

from octopus.verify.inputs import Unreadable
from octopus.verify.readers.containers.source import read_exactly, refuse_beyond, refuse_name

MAX_MEMBERS = 1000
MAX_DIRECTORY_BYTES = 2**20
_END = struct.Struct("<4s4H2LH")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_STORED, _DEFLATED = 0, 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """One entry of the central directory: sizes in bytes, `offset` of its local header in the file."""

    name: str
    method: int
    checksum: int
    packed_size: int
    size: int
    offset: int


def members(file: BinaryIO, file_size: int, max_bytes: int) -> list[Member]:
    """The entries of the file.

    Raises:
        Unreadable: no zip file, one with a comment, with too many entries, of several volumes, encrypted or packed in
            a way other than deflate, with names that are paths or occur twice, or that asks for too much in all.
    """
    if file_size < _END.size:
        raise Unreadable("the file is too short for a zip file")
    file.seek(file_size - _END.size)
    end = _END.unpack(read_exactly(file, _END.size, "the end of the zip file"))
    signature, disk, _, here, count, directory_size, start, comment = end
    if signature != b"PK\5\6" or comment or disk or here != count:
        raise Unreadable("the file does not end like a zip file of arrays")
    if count > MAX_MEMBERS or directory_size > MAX_DIRECTORY_BYTES or start + directory_size + _END.size > file_size:
        raise Unreadable(f"the zip file lists {count:,} members in {directory_size:,} bytes at {start:,}: refused")
    file.seek(start)
    found = _entries(read_exactly(file, directory_size, "the zip file's directory"), count)
    if len({member.name for member in found}) != len(found):
        raise Unreadable("the zip file has two members of one name")
    refuse_beyond(sum(member.size for member in found), max_bytes, "the zip file")
    # Packed data that several members share would be inflated many times.
    refuse_beyond(sum(member.packed_size for member in found), max_bytes, "the zip file's packed data")
    return found


def _entries(directory: bytes, count: int) -> list[Member]:
    found, at = [], 0
    for _ in range(count):
        if at + _ENTRY.size > len(directory):
            raise Unreadable("the zip file's directory ends inside an entry")
        entry = _ENTRY.unpack_from(directory, at)
        signature, _, _, flags, method, _, _, checksum, packed, size, n_name, n_extra, n_comment, *_, offset = entry
        name = directory[at + _ENTRY.size : at + _ENTRY.size + n_name].decode("utf-8", "replace")
        at += _ENTRY.size + n_name + n_extra + n_comment
        if signature != b"PK\1\2":
            raise Unreadable("the zip file's directory is damaged")
        refuse_name(name, "a member of the zip file")
        if flags & 1 or method not in (_STORED, _DEFLATED):
            raise Unreadable(f"member {name} is encrypted or packed in a way that is not accepted")
        if 0xFFFFFFFF in (packed, size, offset):
            raise Unreadable(f"member {name} is of 4 GiB or more")
        found.append(
            Member(name=name, method=method, checksum=checksum, packed_size=packed, size=size, offset=offset)
        )
    return found


def read_member(file: BinaryIO, member: Member) -> bytes:
    """The member's bytes, inflated. Raises `Unreadable` if it does not have its declared size and checksum."""
    what = f"member {member.name}"
    file.seek(member.offset)
    local = _LOCAL.unpack(read_exactly(file, _LOCAL.size, f"the header of {what}"))
    if local[0] != b"PK\3\4":
        raise Unreadable(f"{what} is not where the zip file's directory says")
    file.seek(local[9] + local[10], 1)  # Its name and extra fields once more.
    packed = read_exactly(file, member.packed_size, what)
    data = packed if member.method == _STORED else _inflate(packed, member.size, what)
    if len(data) != member.size or zlib.crc32(data) != member.checksum:
        raise Unreadable(f"{what} does not have the size and checksum that the zip file's directory says")
    return data


def _inflate(packed: bytes, size: int, what: str) -> bytes:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        # zlib takes 0 for "without bound".
        data = inflater.decompress(packed, size + 1)
    except zlib.error as error:
        raise Unreadable(f"{what} cannot be inflated: {error}") from error
    if not inflater.eof:
        raise Unreadable(f"{what} inflates to more than the {size:,} bytes that the zip file's directory says")
    return data
