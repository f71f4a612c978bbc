"""Builds `octopus/retrieval/stdlib.jsonl` from the docstrings of the standard library that runs this script.

    python scripts/build_corpus.py            # writes the file and prints its hash and count
    python scripts/build_corpus.py --check    # says whether the committed file is what this Python gives

One document for each public module, class, function, method and property whose docstring says something in whole
sentences. The committed file was made by the Python version that `stdlib.LICENSE.md` names; another version documents
other objects.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import inspect
import io
import json
import pkgutil
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

TARGET = Path(__file__).parent.parent / "octopus" / "retrieval" / "stdlib.jsonl"
MAX_CHARACTERS = 600
MIN_WORDS = 9  # distinct ones: what is shorter describes nothing in particular
MIN_PLAIN_SHARE = 0.7  # of the words; less is a grammar or a table
# Graphics, editors, tests, other systems, jokes, and modules that only repeat others.
LEFT_OUT = {
    "antigravity", "curses", "distutils", "encodings", "ensurepip", "genericpath", "idlelib", "lib2to3", "msilib",
    "msvcrt", "nt", "nturl2path", "posix", "pydoc_data", "readline", "sre_compile", "sre_constants", "sre_parse",
    "test", "this", "tkinter", "turtle", "turtledemo", "venv", "winreg", "winsound",
}  # fmt: skip

# `f(x, /)`, and what may follow it on the same line: `-> str`, `-> str. `, ` --`, `:`.
SIGNATURE = re.compile(
    r"^[\w.\[\], ]*\([^()]*(?:\([^()]*\)[^()]*)*\)[ ]*(?:-+>[^.\n]*(?:\.(?=\s|$)|$)|[-=:]+(?=\s|$)|$)"
)
ROLE = re.compile(r":[a-z:]+:`~?([^`]*)`")
SENTENCE_END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"')]))\s+(?=[\"'(`]?[A-Z])")
LISTING = re.compile(r"\s{2,}\S|\s*>>>|\s*\.\. |\s*[-=~*]{3,}|\s*[-*] |:\w+|[A-Z][\w ]*:$|\w+ -+ ")
MARKUP = re.compile(r"`+|\*+(?=\w[^*]*\w\*)|(?<=\w)\*+(?!\w)")
# Where people are named.
CREDIT = re.compile(r"<\S+@\S+>|Copyright|,? [Bb]y [A-Z][a-z]*[. ]+[A-Z]|[A-Z][a-z]+ [A-Z][a-z]+(?:s'|'s) ")
PLAIN_WORD = re.compile(r"[A-Za-z]{2,}")


def modules() -> Iterator[ModuleType]:
    """Yields the public modules in the order of their names; those of other systems cannot be imported and are not."""
    for top in sorted(sys.stdlib_module_names - LEFT_OUT):
        if top.startswith("_"):
            continue
        with contextlib.suppress(ImportError):
            module = importlib.import_module(top)
            yield module
            for found in pkgutil.walk_packages(getattr(module, "__path__", []), top + "."):
                if not any(part.startswith(("_", "test")) for part in found.name.split(".")):
                    with contextlib.suppress(ImportError):
                        yield importlib.import_module(found.name)


def members(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yields the dotted name in the module and the object, for its classes, their members, and its functions."""
    for name, value in sorted(vars(module).items()):
        if name.startswith("_") or not (inspect.isclass(value) or inspect.isroutine(value)):
            continue
        yield name, value
        if inspect.isclass(value):
            for attribute, member in sorted(vars(value).items()):
                described = inspect.isclass(member) or member.__doc__ is not type(member).__doc__
                if described and not attribute.startswith("_"):
                    yield f"{name}.{attribute}", getattr(member, "__func__", member)


def distance(module: ModuleType, name: str, value: Any) -> tuple[bool, bool, int, str]:
    """Returns how far a module is from being an object's home: least in the one that made it (`_io` counts as `io`).

    After that come modules that list it as theirs, then short module names.
    """
    made_by = getattr(value, "__module__", None) or ""
    listed = name in getattr(module, "__all__", ())
    return made_by.lstrip("_") != module.__name__, not listed, len(module.__name__), module.__name__


def objects() -> dict[str, Any]:
    """Returns every object once, by the dotted name that it has in its home."""
    found: dict[int, tuple[tuple[bool, bool, int, str], str, Any]] = {}
    for module in modules():
        found[id(module)] = ((False, False, 0, ""), module.__name__, module)
        for name, value in members(module):
            # A method lives where its class lives, so only the object at the top of the dotted name is asked.
            top = name.split(".")[0]
            near = distance(module, top, getattr(module, top))
            if id(value) not in found or near < found[id(value)][0]:
                found[id(value)] = (near, f"{module.__name__}.{name}", value)
    return dict(sorted((dotted, value) for _, dotted, value in found.values()))


def paragraphs(docstring: str) -> Iterator[str]:
    """Yields the leading paragraphs of prose, each on one line: no signature, and nothing from the first listing on."""
    lines: list[str] = []
    begun = False
    for line in [*inspect.cleandoc(docstring).split("\n"), ""]:
        text = line if begun else SIGNATURE.sub("", line, count=1)
        if LISTING.match(text):
            if len(" ".join(lines).split()) < 3:  # the first term of a list, or half a heading
                lines = []
            break
        begun = begun or bool(text.strip())
        if text.strip():
            lines.append(text.strip())
        elif lines:
            yield " ".join(lines)
            lines = []
    if lines:
        yield " ".join(lines)


def prose(docstring: str) -> str:
    """Returns the docstring's opening prose: no markup, no announcements, a full stop after each paragraph."""
    closed = [text if text[-1] in ".!?:" else text + "." for text in paragraphs(docstring)]
    text = MARKUP.sub("", ROLE.sub(r"\1", " ".join(closed)))
    sentences = SENTENCE_END.split(text)
    while sentences and sentences[-1].endswith(":"):
        sentences.pop()
    return " ".join(" ".join(sentences).split())


def whole_sentences(text: str) -> str:
    """Returns the leading sentences that fit into `MAX_CHARACTERS`, or the empty string if not even one fits."""
    ends = [match.start() for match in SENTENCE_END.finditer(text)] + [len(text)]
    fitting = [end for end in ends if end <= MAX_CHARACTERS]
    return text[: fitting[-1]].strip() if fitting else ""


def shortest_names(ids: list[str]) -> dict[str, str]:
    """Returns for each dotted name its shortest ending that no other has."""
    endings = {
        dotted: [".".join(parts[start:]) for start in range(len(parts) - 1, -1, -1)]
        for dotted in ids
        for parts in [dotted.split(".")]
    }
    taken = Counter(ending for options in endings.values() for ending in options)
    return {dotted: next(o for o in options if taken[o] == 1 or o == dotted) for dotted, options in endings.items()}


def build() -> list[dict[str, str]]:
    """Returns the documents, ordered by id; no two share an id, a name or a text."""
    texts: dict[str, str] = {}
    seen = set()
    for dotted, value in objects().items():
        docstring = vars(value).get("__doc__") if inspect.isclass(value) else getattr(value, "__doc__", None)
        if not isinstance(docstring, str):
            continue
        text = whole_sentences(prose(docstring))
        words = [word for word in text.split() if PLAIN_WORD.fullmatch(word.strip("\"'.,;:!?()"))]
        is_prose = len(words) >= MIN_PLAIN_SHARE * len(text.split())
        says_enough = len({word.lower() for word in words}) >= MIN_WORDS
        usable = is_prose and says_enough and text.isascii() and not CREDIT.search(text)
        if usable and text.lower() not in seen:
            seen.add(text.lower())
            texts[dotted] = text
    names = shortest_names(list(texts))
    return [{"id": dotted, "name": names[dotted], "text": text} for dotted, text in texts.items()]


def main() -> int:
    """Writes or checks the corpus."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare with the committed file instead of writing it")
    check = parser.parse_args().check
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(io.StringIO()):  # some modules print when they are imported
        documents = build()
    payload = "".join(json.dumps(document) + "\n" for document in documents).encode()
    if check:
        committed = set(TARGET.read_text().splitlines())
        same = committed & set(payload.decode().splitlines())
        print(f"{len(same)} of the {len(committed)} committed documents are as this Python gives them")
        return 0 if payload == TARGET.read_bytes() else 1
    TARGET.write_bytes(payload)
    print(f"{len(documents)} documents, {len(payload)} bytes, sha256 {hashlib.sha256(payload).hexdigest()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
