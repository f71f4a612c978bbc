"""The shipped corpus is what its note says, and what its builder makes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from octopus.retrieval import corpus as corpus_module
from octopus.retrieval.corpus import STDLIB, STDLIB_SHA256, Corpus, Document
from octopus.retrieval.errors import CorpusDamaged, UnknownDocument

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus.load()


def test_ids_names_and_texts_are_unique(corpus: Corpus) -> None:
    """Catches: a document that has a twin, so that a right answer could be counted wrong."""
    for values in ([d.id for d in corpus], [d.name for d in corpus], [d.text.lower() for d in corpus]):
        assert len(set(values)) == len(corpus)


def test_documents_are_what_the_environment_needs(corpus: Corpus) -> None:
    """Catches: listings, several lines, other alphabets or cut sentences in a text; a name that is not an ending."""
    for document in corpus:
        assert document.id == document.name or document.id.endswith("." + document.name)
        assert 20 <= len(document.text) <= 600
        assert document.text.isascii() and "\n" not in document.text and ">>>" not in document.text
        assert document.text.rstrip("\"')")[-1] in ".!?", document


def test_the_note_states_hash_and_count(corpus: Corpus) -> None:
    """Catches: a rebuilt file with the old note."""
    note = (STDLIB.parent / "stdlib.LICENSE.md").read_text()
    assert STDLIB_SHA256 in note
    assert f"{len(corpus)} documents" in note
    assert "PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2" in note
    assert STDLIB.stat().st_size < 2_000_000


def test_get_and_order(corpus: Corpus) -> None:
    """Catches: another order than the file's, or an unknown id that gives None."""
    assert corpus[0] == next(iter(corpus))
    assert corpus.get("textwrap.dedent").name == "dedent"
    with pytest.raises(UnknownDocument, match=r"no document has the id 'textwrap\.indented'"):
        corpus.get("textwrap.indented")


def test_a_damaged_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a hash that is not compared; a bad line that is skipped; a repeated id."""
    changed = tmp_path / "stdlib.jsonl"
    changed.write_bytes(STDLIB.read_bytes().replace(b"whitespace", b"blankspace", 1))
    monkeypatch.setattr(corpus_module, "STDLIB", changed)
    with pytest.raises(CorpusDamaged, match=r"stdlib\.jsonl has the hash \w{64}, not \w{64}; install"):
        Corpus.load()
    changed.write_text('{"id": "a", "name": "a", "text": "t"}\n{"id": "b", "name": "b"}\n')
    with pytest.raises(CorpusDamaged, match=r"stdlib\.jsonl, line 2: .*text"):
        Corpus.read(changed)
    with pytest.raises(CorpusDamaged, match="1 of the documents repeat an id"):
        Corpus([Document(id="a", name="a", text="t"), Document(id="a", name="b", text="u")])


def test_write_and_read(tmp_path: Path) -> None:
    """Catches: a line separator of Unicode inside a text that splits the line."""
    documents = [Document(id="a", name="é", text="one\u2028two"), Document(id="b", name="b", text="three")]
    Corpus(documents).write(tmp_path / "some.jsonl")
    assert list(Corpus.read(tmp_path / "some.jsonl")) == documents


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the corpus was made from Python 3.11")
def test_the_builder_makes_the_corpus() -> None:
    """Catches: a builder that was changed without the file. Other builds of 3.11 may have other modules and fixes."""
    said = subprocess.run(
        [sys.executable, ROOT / "scripts" / "build_corpus.py", "--check"], capture_output=True, text=True, check=False
    ).stdout
    same, committed = (int(number) for number in re.findall(r"\d+", said))
    assert 0.95 * committed <= same <= committed == len(Corpus.load())
