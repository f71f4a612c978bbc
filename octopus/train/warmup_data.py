"""The scripted episodes of a warm-up step, made by worker processes ahead of the trainer."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

from octopus.retrieval.bm25 import Bm25
from octopus.retrieval.corpus import Corpus
from octopus.retrieval.questions import fresh_corpus, questions, questions_about
from octopus.rollout.codec import Codec
from octopus.rollout.environment import DescribedObjects
from octopus.rollout.scripted import play_script
from octopus.train.packing import Pack, evenly, pack_rated
from octopus.train.tasks import seed_of
from octopus.train.warmup_config import DataConfig


def warmup_pack(data: DataConfig, codec: Codec, *, seed: int, step: int) -> Pack:
    """One row with all scripted episodes of a step, every sampled token of advantage 1."""
    rng = Random(f"warm-up {seed} {step}")
    key = seed_of(seed, "warm-up", step)
    documents = fresh_corpus(data.documents, seed=key, windows=rng.random() < data.windows)
    retriever = Bm25.build(Corpus(documents))
    rated = []
    for question in questions_about(documents, data.episodes, seed=key, parts=data.parts):
        draw = rng.random()
        mode = "single" if draw < data.single else "text" if draw < data.single + data.text else "octopus"
        environment = DescribedObjects(question=question, retriever=retriever, lost=data.lost_searches)
        record = play_script(question.id, environment, codec, mode, patient=rng.random() < data.patient)
        rated.append(evenly(record.episode, 1.0))
    return _light(pack_rated(rated))


def held_out_pack(codec: Codec, *, count: int, seed: int) -> Pack:
    """Scripted episodes of one-part questions about real validation documents, under their real names."""
    retriever = Bm25.build(Corpus.load())
    records = [
        play_script(q.id, DescribedObjects(question=q, retriever=retriever), codec, "octopus")
        for q in questions("validation", count, seed=seed, parts=(1,))
    ]
    return _light(pack_rated([evenly(record.episode, 1.0) for record in records]))


def _light(pack: Pack) -> Pack:
    """Without the segments, which the trainer does not need and which are dear to send between processes."""
    return replace(pack, plan=replace(pack.plan, starts={}))


@contextmanager
def packs_ahead(
    data: DataConfig, codec_path: Path, *, seed: int, steps: range, workers: int
) -> Iterator[Iterator[Pack]]:
    """The packs of `steps` in order; `workers` processes make them ahead. With 0 workers they are made here."""
    if workers == 0:
        codec = Codec.load(codec_path)
        yield (warmup_pack(data, codec, seed=seed, step=step) for step in steps)
        return
    context = multiprocessing.get_context(
        "spawn"
    )  # A forked child of a process with a GPU context is unsafe.
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(codec_path,)) as pool:
        yield _in_order(pool, data, seed, steps, ahead=2 * workers)
        pool.shutdown(wait=False, cancel_futures=True)


def _in_order(
    pool: ProcessPoolExecutor, data: DataConfig, seed: int, steps: range, *, ahead: int
) -> Iterator[Pack]:
    pending: list[Future[Pack]] = []
    upcoming = iter(steps)
    for step in upcoming:
        pending.append(pool.submit(_work, data, seed, step))
        if len(pending) == ahead:
            yield pending.pop(0).result()
    for future in pending:
        yield future.result()


_codec: list[Codec] = []  # A worker process's codec: loaded once, by its initialiser.


def _begin(codec_path: Path) -> None:
    _codec.append(Codec.load(codec_path))


def _work(data: DataConfig, seed: int, step: int) -> Pack:
    return warmup_pack(data, _codec[0], seed=seed, step=step)
