"""SIGTERM and SIGINT ask a run to save and leave; the end of its patience, or Ctrl-C after that, ends it at once.

Whoever sends SIGTERM twice wants the same twice, and disturbs no save.

A step is abandoned where that loses nothing but its own work: as long as it has not begun to change the weights. From
then on it is finished. Where several ranks work together no step is abandoned, since the others would wait for ever.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

import torch

from octopus.core.errors import Stopped
from octopus.train.parallel.ranks import present


class Abandoned(BaseException):
    """Thrown into work by a signal. Like KeyboardInterrupt it passes by those who catch every error."""


class Stopping:
    """Whether a run is to stop, and whether what it does just now may be abandoned for that."""

    def __init__(self, *, limit_s: float) -> None:
        """Nothing is asked for yet.

        Args:
            limit_s: Most seconds from the first signal to the end of the process, saved or not.
        """
        self._limit_s = limit_s
        self._number: signal.Signals | None = None
        self._open = False
        self._thrown = False
        self._patience: threading.Timer | None = None

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Listens to the signals, also to a SIGTERM that was held back. Only the main thread of a process may."""
        before = {one: signal.signal(one, self._on_signal) for one in (signal.SIGTERM, signal.SIGINT)}
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            if self._patience is not None:
                self._patience.cancel()

    @property
    def asked(self) -> bool:
        """Whether the run is to stop. Ranks agree: all must look at the same place."""
        return bool(present().total([self._number is not None])[0])

    def ask(self, number: signal.Signals) -> None:
        """Asks the run to stop, as the signal does.

        Raises:
            Abandoned: Into the work that is under way, if it may be.
        """
        self._number = number
        if self._open:
            self._open, self._thrown = False, True
            raise Abandoned

    @contextmanager
    def abandonable(self, optimizer: torch.optim.Optimizer | None = None) -> Iterator[None]:
        """Work that a signal may leave half done; `Abandoned` then comes out of it, whatever cleaning up has raised.

        Args:
            optimizer: From the moment at which it begins to change weights, the work is finished.
        """
        alone = present().size == 1
        with ExitStack() as stack:
            if optimizer is not None:
                stack.callback(optimizer.register_step_pre_hook(self._commit).remove)
            try:
                if alone and self._number is not None:
                    raise Abandoned
                self._open = alone
                yield
            finally:
                self._open = False
                if self._thrown:
                    raise Abandoned

    def stopped(self, place: str) -> Stopped:
        """What to raise once the run has been saved; `place` says where it stands."""
        number = self._number or signal.SIGTERM  # Where another rank was told.
        return Stopped(f"stopped by {number.name} {place}", exit_code=128 + number)

    def _commit(self, *_: object) -> None:
        self._open = False

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self._number is not None:
            if number == signal.SIGINT:
                _leave("a second signal, SIGINT: left without a save", number)
            return
        words = f"no save within {self._limit_s:g} s of {name}: left without one"
        self._patience = threading.Timer(self._limit_s, _leave, (words, number))
        self._patience.daemon = True
        self._patience.start()
        self.ask(signal.Signals(number))


def _leave(why: str, number: int) -> None:
    """Ends the process whatever its threads are at. A save that was being written stays a draft, which is no save."""
    os.write(2, f"octopus: {why}\n".encode())
    os._exit(128 + number)
