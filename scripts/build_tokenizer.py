"""Trains the shipped tokenizer on the training documents and on names drawn afresh: octopus/shipped/tokenizer.json."""

from __future__ import annotations

from pathlib import Path

from octopus.retrieval.corpus import Corpus
from octopus.retrieval.questions import fresh_corpus, split_of
from octopus.rollout.codec import Codec

TARGET = Path(__file__).parent.parent / "octopus" / "shipped" / "tokenizer.json"


def main() -> None:
    """Writes the file."""
    texts = [f"{d.name} : {d.text}" for d in Corpus.load() if split_of(d.id) == "train"]
    texts += [document.name for document in fresh_corpus(2_000, seed=0, windows=True)]
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    Codec.train(texts).save(TARGET)


if __name__ == "__main__":
    main()
