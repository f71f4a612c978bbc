"""Pages and states in host memory, and the copies there and back.

Letters: S token slots, G key/value heads, D head dimension, N units of one copy.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from operator import itemgetter
from queue import SimpleQueue

import torch

from octopus.core.host import HostTier, Transfer
from octopus.core.storage.kv import KVStorage, sent
from octopus.core.storage.seals import TensorSeals


class HostStorage:
    """Pages and states in host memory, pinned where the device is a GPU, and the copies there and back: a `Copier`.

    On a GPU the copies run on a stream of their own, behind everything launched before, and complete from a thread of
    their own; elsewhere they complete at once. Fingerprints travel along.

    Args:
        device: The store on the device.
        seals: Its fingerprints; None if it has none.
        pages: Number of pages.
        states: Number of states.
        page_size: Tokens a page.

    Attributes:
        pages: Host memory by page, of keys, values and their fingerprints.
        states: Host memory by state, of convolution columns, recurrent states and their fingerprints.
    """

    def __init__(
        self, device: KVStorage, seals: TensorSeals | None, *, pages: int, states: int, page_size: int
    ) -> None:
        pinned = device.device.type == "cuda"
        self._device, self._seals, self._page_size = device, seals, page_size
        self.pages = [_host((pages, *there.shape[1:]), there, pinned) for there in self._device_pages()]
        self.states = [_host((states, *there.shape[1:]), there, pinned) for there in self._device_states()]
        self._stream = torch.cuda.Stream(device.device) if pinned else None
        self._waiting: SimpleQueue[tuple[Transfer, torch.cuda.Event, list[torch.Tensor]]] = SimpleQueue()
        if pinned:
            threading.Thread(target=self._complete_in_order, name="octopus-host-tier", daemon=True).start()

    def _device_pages(self) -> list[torch.Tensor]:
        """What `pages` is the counterpart of, as it is now: the store may have given its memory back meanwhile."""
        pages = [_by_page(x, self._page_size) for x in (self._device.keys, self._device.values)]
        return pages if self._seals is None else [*pages, self._seals.sums_S.unflatten(0, (-1, self._page_size))]

    def _device_states(self) -> list[torch.Tensor]:
        """What `states` is the counterpart of, as it is now."""
        states = [x.transpose(0, 1) for x in (self._device.conv, self._device.recurrent)]
        return states if self._seals is None else [*states, self._seals.state_sums_Z]

    def start(self, transfer: Transfer) -> None:
        """See `Copier.start`."""
        if self._stream is None:
            self._copy(transfer)
            transfer.complete()
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            staged = self._copy(transfer)
            event = torch.cuda.Event()
            event.record(self._stream)
        self._waiting.put((transfer, event, staged))

    def _copy(self, transfer: Transfer) -> list[torch.Tensor]:
        """Copies, or launches the copies; returns what must stay alive until they have run."""
        staged: list[torch.Tensor] = []
        for devices, hosts, units in (
            (self._device_pages(), self.pages, transfer.page_units),
            (self._device_states(), self.states, transfer.state_units),
        ):
            if not units:
                continue
            # In the host's order: neighbours there are one copy, and launching many would cost more than the bytes.
            rows, places = zip(*sorted(units, key=itemgetter(1)), strict=True)
            rows_N = torch.tensor(rows)
            for device, host in zip(devices, hosts, strict=True):
                at_N = sent(rows_N, device.device)
                if transfer.kind == "offload":
                    block = device[at_N]
                    for row_run, place_run in _runs(places):
                        host[place_run].copy_(block[row_run], non_blocking=True)
                else:
                    block = device.new_empty((len(rows), *host.shape[1:]))
                    for row_run, place_run in _runs(places):
                        block[row_run].copy_(host[place_run], non_blocking=True)
                    device[at_N] = block
                staged += [block, at_N]
        return staged

    def _complete_in_order(self) -> None:
        while True:
            transfer, event, staged = self._waiting.get()
            event.synchronize()
            staged.clear()
            transfer.complete()


def host_tier(
    device: KVStorage, seals: TensorSeals | None, *, pages: int, states: int, page_size: int
) -> HostTier | None:
    """A host tier of so many pages and states behind a store; None of nothing."""
    if not pages and not states:
        return None
    copier = HostStorage(device, seals, pages=pages, states=states, page_size=page_size)
    return HostTier(pages=pages, states=states, copier=copier)


def _by_page(slots: torch.Tensor, page_size: int) -> torch.Tensor:
    """[layers, S, G, D] as a view [pages, layers, page size, G, D]."""
    pages: torch.Tensor = slots.unflatten(1, (-1, page_size))
    return pages.transpose(0, 1)


def _runs(places: Sequence[int]) -> Iterator[tuple[slice, slice]]:
    """Rows over which ascending places follow each other without a gap, and these places."""
    start = 0
    for stop in range(1, len(places) + 1):
        if stop == len(places) or places[stop] != places[stop - 1] + 1:
            yield slice(start, stop), slice(places[start], places[start] + stop - start)
            start = stop


def _host(shape: tuple[int, ...], like: torch.Tensor, pinned: bool) -> torch.Tensor:
    return torch.empty(shape, dtype=like.dtype, pin_memory=pinned)
