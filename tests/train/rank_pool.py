"""A few processes that act as the ranks of a run, kept for all tests of a module: starting one takes seconds.

They meet through a file, on gloo. Each test's work is a function of `rank_work`, called on all of them at once.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

MEETING_LIMIT_S = 60.0
"""A rank that waits this long for another one gives up: a test that hangs fails."""
ANSWER_LIMIT_S = 240.0
"""For a rank that died without a word, on a machine that is busy."""


class RankPool:
    """So many ranks, waiting for work."""

    def __init__(self, pipes: list[Connection]) -> None:
        self._pipes = pipes

    def __call__(self, work: Callable[..., Any], **arguments: Any) -> list[Any]:
        """What `work(ranks, **arguments)` returned on each rank; the first error of any, with its traceback."""
        for pipe in self._pipes:
            pipe.send((work, arguments))
        answers = []
        for rank, pipe in enumerate(self._pipes):
            assert pipe.poll(ANSWER_LIMIT_S), f"rank {rank} gives no answer"
            answers.append(pipe.recv())
        errors = [error for error, _ in answers if error is not None]
        assert not errors, errors[0]
        return [value for _, value in answers]


@contextmanager
def rank_pool(size: int, folder: Path) -> Iterator[RankPool]:
    """Starts ranks that meet in `folder`, and ends them."""
    context = get_context("spawn")
    ends = [context.Pipe() for _ in range(size)]
    processes = [
        context.Process(target=_serve, args=(rank, size, str(folder / "meeting"), theirs), daemon=True)
        for rank, (_, theirs) in enumerate(ends)
    ]
    for process in processes:
        process.start()
    try:
        yield RankPool([ours for ours, _ in ends])
    finally:
        for ours, _ in ends:
            ours.send(None)
        for process in processes:
            process.join(20)
            process.kill()


def _serve(rank: int, size: int, meeting: str, pipe: Connection) -> None:
    import torch
    import torch.distributed as dist

    from octopus.train.parallel.ranks import Ranks

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=MEETING_LIMIT_S),
    )
    ranks = Ranks(rank=rank, size=size, grouped=True)
    while (order := pipe.recv()) is not None:
        work, arguments = order
        try:
            pipe.send((None, work(ranks, **arguments)))
        except BaseException:  # noqa: BLE001  # Whatever it was, the test shows it.
            pipe.send((traceback.format_exc(), None))
    dist.destroy_process_group()
