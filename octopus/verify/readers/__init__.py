"""What strangers' files say, read without trusting them: one small module a format."""

from __future__ import annotations

from octopus.verify.readers.reading import FORMATS, read

__all__ = ["FORMATS", "read"]
