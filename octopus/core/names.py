"""Names that were read from a file, before they are joined to a path."""

from __future__ import annotations


def is_plain_name(name: object) -> bool:
    """Whether it can only name something directly in the folder that it is joined to.

    One component that is printable: not empty, no `..`, nothing absolute, no separator of any system.
    """
    return isinstance(name, str) and name not in ("", ".", "..") and name.isprintable() and not set(name) & set("/\\:")
