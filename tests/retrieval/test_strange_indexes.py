"""Saved retrievers from elsewhere.

Catches: a link that leads out of the folder; a pickle in an array; places that do not exist, which a search would reach
for; a file that chooses who computes; an error of the library's instead of ours.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octopus.retrieval.bm25 import Bm25
from octopus.retrieval.corpus import Corpus, Document
from octopus.retrieval.errors import IndexMismatch
from octopus.retrieval.retriever import check_manifest

TEXTS = ("white snow falls", "red fire burns", "blue sky over the quiet sea")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    corpus = Corpus(Document(id=str(number), name=text[:3], text=text) for number, text in enumerate(TEXTS))
    Bm25.build(corpus).save(tmp_path / "saved")
    return tmp_path / "saved"


@pytest.mark.parametrize("what", ["retriever.json", "documents.jsonl", "index", "index/vocab.index.json"])
@pytest.mark.parametrize("kind", ["bm25", "pyserini"])
def test_links_are_refused(what: str, kind: str, folder: Path) -> None:
    """Of both kinds; Pyserini's index would be copied, and what a link leads to with it."""
    (folder / "retriever.json").write_text(json.dumps({"kind": kind, "version": 1}))
    check_manifest(folder, kind)
    (folder / what).rename(folder.parent / "elsewhere")
    (folder / what).symlink_to(folder.parent / "elsewhere")
    with pytest.raises(IndexMismatch, match="is a link"):
        check_manifest(folder, kind)


class Evil:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def test_a_pickle_is_not_loaded(folder: Path) -> None:
    np.save(folder / "index" / "data.csc.index.npy", np.array([Evil(folder / "owned")]), allow_pickle=True)
    with pytest.raises(IndexMismatch, match="cannot be read"):
        Bm25.load(folder)
    assert not (folder / "owned").exists()


def array(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], object]:
    def apply(index: Path) -> None:
        path = index / f"{name}.csc.index.npy"
        np.save(path, change(np.load(path)))

    return apply


def text(name: str, change: Callable[[Any], Any]) -> Callable[[Path], object]:
    def apply(index: Path) -> None:
        (index / name).write_text(json.dumps(change(json.loads((index / name).read_text()))))

    return apply


@pytest.mark.parametrize(
    "harm",
    [
        array("indices", lambda a: a + 2),
        array("indices", lambda a: a - 1),
        array("indices", lambda a: a.astype(float)),
        array("indices", lambda a: a[:-1]),
        array("indices", lambda a: a[:, None]),
        array("indptr", lambda a: a[::-1].copy()),
        array("indptr", lambda a: a + 1),
        array("indptr", lambda a: a[[0, *range(len(a) - 2, 0, -1), -1]]),
        array("indptr", lambda a: a[:0]),
        array("data", lambda a: a.astype(complex)),
        text("vocab.index.json", lambda v: v | {"snow": 10**6}),
        text("vocab.index.json", lambda v: v | {"snow": -1}),
        text("vocab.index.json", lambda v: v | {"snow": "0"}),
        text("vocab.index.json", lambda v: 3),
        text("params.index.json", lambda p: p | {"num_docs": 10**9}),
        text("params.index.json", lambda p: p | {"no_such": 1}),
        text("params.index.json", lambda p: []),
        lambda index: (index / "params.index.json").write_text("[" * 100_000),
        lambda index: (index / "indptr.csc.index.npy").write_bytes(b"\x93NUMPY"),
        lambda index: (index / "vocab.index.json").unlink(),
        lambda index: (index.parent / "retriever.json").write_text("{"),
        lambda index: (index.parent / "documents.jsonl").write_text('{"id": "0", "name": "", "text": ""}\n'),
    ],
)
def test_an_index_that_names_what_is_not_there(harm: Callable[[Path], object], folder: Path) -> None:
    harm(folder / "index")
    with pytest.raises(IndexMismatch):
        Bm25.load(folder)


def test_the_file_does_not_choose_how_it_is_searched(folder: Path) -> None:
    before = Bm25.load(folder).search("snow", 1)
    path = folder / "index" / "params.index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"backend": "numba", "method": "robertson", "k1": 9.0}))
    assert Bm25.load(folder).search("snow", 1) == before
