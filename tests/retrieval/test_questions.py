"""Questions: fair (no leak between splits, no name given away), searchable but not matchable, and reproducible."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from octopus.retrieval.corpus import Corpus
from octopus.retrieval.errors import BadQuestionRequest
from octopus.retrieval.paraphrase import name_words, plain_words, stem
from octopus.retrieval.questions import Question, fresh_corpus, questions, questions_about, split_of

SPLITS = ("train", "validation", "test")
FINGERPRINT = """
import hashlib
from octopus.retrieval.questions import fresh_corpus, questions, questions_about
fresh = fresh_corpus(50, seed=1) + fresh_corpus(50, seed=1, windows=True)
made = questions("test", 200, seed=0), questions("train", 50, seed=3), fresh, questions_about(fresh, 20, seed=2)
print(hashlib.sha256(repr(made).encode()).hexdigest())
"""


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus.load()


@pytest.fixture(scope="module")
def asked() -> list[Question]:
    return [question for split in SPLITS for question in questions(split, 400, seed=0)]


def test_splits_share_no_document(asked: list[Question], corpus: Corpus) -> None:
    """Catches: a split by question, or by anything that changes when documents are added."""
    used = {split: {d for q in asked if q.split == split for d in q.gold} for split in SPLITS}
    assert all({split_of(document_id) for document_id in used[split]} == {split} for split in SPLITS)
    sizes = Counter(split_of(document.id) for document in corpus)
    assert [round(sizes[split] / len(corpus), 1) for split in SPLITS] == [0.6, 0.1, 0.3]
    assert [split_of(name) for name in ("shutil.rmtree", "textwrap.dedent", "textwrap.fill")] == [*SPLITS]


def test_the_name_is_not_given_away(asked: list[Question], corpus: Corpus) -> None:
    """Catches: a word of the name in the part, also with another ending, or brought in by a synonym."""
    for question in asked:
        for part, document_id in zip(question.parts, question.gold, strict=True):
            name = corpus.get(document_id).name
            pieces = re.findall("[A-Z]*[a-z]+|[A-Z]+|[0-9]+", name) + re.split(r"[._]", name)
            given = {stem(word) for word in part.split()}
            assert not given & {stem(piece.lower()) for piece in pieces + name_words(name)}, (part, name)


def test_parts_cannot_be_matched(asked: list[Question], corpus: Corpus) -> None:
    """Catches: parts that are cut from the text as they stand, so that looking for the string finds the document."""
    haystack = " | ".join(" ".join(plain_words(document.text)) for document in corpus)
    kept = total = 0
    for question in asked:
        for part, document_id in zip(question.parts, question.gold, strict=True):
            assert part not in haystack
            own = set(plain_words(corpus.get(document_id).text))
            kept += sum(word in own for word in part.split())
            total += len(part.split())
    assert 0.65 < kept / total < 0.9  # the others are synonyms and other endings


def test_questions_are_well_formed(asked: list[Question], corpus: Corpus) -> None:
    """Catches: a part twice about one document, an answer in another order, parts too long to copy, repeated ids."""
    for number, question in enumerate(asked):
        assert len(question.parts) == len(question.gold) == len(set(question.gold)) == 1 + number % 4
        assert question.answer == ", ".join(corpus.get(document_id).name for document_id in question.gold)
        assert len(question.answer) <= 86
        for part in question.parts:
            assert re.fullmatch(r"[a-z]+( [a-z]+){5,11}", part)
    assert len({question.id for question in asked}) == len(asked)


def test_documents_are_used_evenly() -> None:
    """Catches: drawing with replacement, which asks some documents ten times and others never."""
    used = Counter(d for question in questions("test", 1000, seed=0) for d in question.gold)
    assert len(used) >= 600
    assert max(used.values()) - min(used.values()) <= 2


def test_another_seed_gives_other_questions() -> None:
    """Catches: a seed that is ignored, or that only shuffles."""
    first, second = (questions("test", 400, seed=seed, parts=(1,)) for seed in (0, 1))
    same = {question.gold: question.parts for question in first}
    pairs = [(question.parts, same[question.gold]) for question in second if question.gold in same]
    assert len(pairs) > 100
    assert sum(new == old for new, old in pairs) < 0.05 * len(pairs)


def test_questions_are_the_same_everywhere() -> None:
    """Catches: an order taken from a set or a hash, and a change that makes published figures about other questions."""
    found = {
        subprocess.run(
            [sys.executable, "-c", FINGERPRINT],
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert found == {"df374ac103198e357a91ebb031a978bb36e010846b318b20522b59b4fcb2e366"}


def test_requests_that_cannot_be_met() -> None:
    """Catches: an endless loop, or an error from deep inside."""
    with pytest.raises(BadQuestionRequest, match="no split 'dev'; there are train, validation, test"):
        questions("dev", 1, seed=0)  # type: ignore[arg-type]
    for parts in ((), (0,), (10**6,)):
        with pytest.raises(BadQuestionRequest, match="parts cannot be made of"):
            questions("test", 1, seed=0, parts=parts)
    with pytest.raises(BadQuestionRequest, match="1000000 whole texts are asked for and 1"):
        fresh_corpus(10**6, seed=0)
    with pytest.raises(BadQuestionRequest, match="made of 2 describable documents"):
        questions_about(fresh_corpus(2, seed=0), 1, seed=0)
    assert questions("test", 0, seed=0) == []


@pytest.fixture(scope="module")
def held_out(corpus: Corpus) -> set[tuple[str, ...]]:
    """Eight words in a row that only validation and test documents have."""
    runs: dict[bool, set[tuple[str, ...]]] = {True: set(), False: set()}
    for document in corpus:
        runs[split_of(document.id) == "train"].update(runs_of_eight(document.text))
    return runs[False] - runs[True]


@pytest.mark.parametrize("windows", [False, True])
def test_fresh_documents_hold_nothing_of_the_held_out_ones(
    corpus: Corpus, held_out: set[tuple[str, ...]], windows: bool
) -> None:
    """Catches: real names in warm-up data, names drawn twice, or texts of validation and test documents."""
    fresh = fresh_corpus(400, seed=5, windows=windows)
    names = {document.name for document in fresh}
    assert len(names) == len({document.id for document in fresh}) == 400
    assert not names & {document.name for document in corpus}
    assert max(map(len, names)) <= 20
    assert len(held_out) > 10_000
    assert all(held_out.isdisjoint(runs_of_eight(document.text)) for document in fresh)
    assert fresh == fresh_corpus(400, seed=5, windows=windows)
    assert fresh != fresh_corpus(400, seed=6, windows=windows)


def runs_of_eight(text: str) -> Iterator[tuple[str, ...]]:
    """Yield every eight words that follow each other."""
    words = text.split()
    yield from (tuple(words[i : i + 8]) for i in range(len(words) - 7))


def test_fresh_names_are_of_many_kinds() -> None:
    """Catches: a generator that only makes one shape, which a model then learns instead of copying."""
    names = [document.name for document in fresh_corpus(500, seed=0)]
    kinds = {
        "dotted": r".+\..+",
        "snake": r"[a-z]+(_[a-z]+)+",
        "camel": r"([A-Z][a-z]+){2,}",
        "run together": r"[a-z]+",
        "digits": r".*\d.*",
        "capitals": r"[A-Z_]+",
    }
    shares = {kind: sum(bool(re.fullmatch(p, name)) for name in names) / 500 for kind, p in kinds.items()}
    assert all(share >= 0.005 for share in shares.values()), shares
    assert max(shares.values()) < 0.6, shares


def test_questions_about_fresh_documents() -> None:
    """Catches: answers with the real names, and questions about documents that were not given."""
    fresh = {document.id: document for document in fresh_corpus(300, seed=2, windows=True)}
    for question in questions_about(list(fresh.values()), 100, seed=2):
        assert question.answer == ", ".join(fresh[document_id].name for document_id in question.gold)
        assert question.split == "train"
