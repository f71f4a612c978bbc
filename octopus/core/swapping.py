"""Moves memory of segments to the host tier and back, a segment at a time, and settles what a copy has done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from octopus.core.errors import OctopusError, invariant
from octopus.core.host import HostTier, Kind, Transfer
from octopus.core.pool import NO_PAGE, allocate_both
from octopus.core.segment import Segment

if TYPE_CHECKING:
    from octopus.core.retention import Retention
    from octopus.core.seals import Seals


class Swapping:
    """The copies that are under way: at most one a segment.

    Whose a unit is. Offload: the device's side stays the segment's, the host's is the copy's. Restore: the host's side
    stays the segment's, the device's is the copy's. What a segment gives up meanwhile is adopted by the copy.

    Attributes:
        host: The host tier; None without one.
        moving: The copy under way, by segment.
        lost: Indices of pages, by segment, that did not come back; forgotten before the next step.
        lossy: Whether anything was ever lost, so that what is computed may see what is not.
        away: How many pages and states of segments lie in the host tier.
        seals: Fingerprints to verify what comes back; None for none.
    """

    def __init__(self, retention: Retention, host: HostTier | None) -> None:
        self._retention = retention
        self.host = host
        self.moving: dict[Segment, Transfer] = {}
        self.lost: dict[Segment, set[int]] = {}
        self.lossy = False
        self.away = 0
        self.seals: Seals | None = None

    # ---- begin ----

    def begin_offload(self, segment: Segment, first_page: int, lengths: Sequence[int]) -> int:
        """Begins to copy the pages from `first_page` on and the states at `lengths`, as many as there is room for.

        Returns how many pages are on their way; nothing for a segment that is on its way already.
        """
        host = self.host
        if host is None or segment in self.moving:
            return 0
        indices = [i for i in range(first_page, len(segment.pages)) if segment.pages[i] != NO_PAGE]
        indices = indices[: host.free_pages]
        lengths = [length for length in lengths if length in segment.states][: host.free_states]
        if not indices and not lengths:
            return 0
        host_pages, host_states = allocate_both(host.pages, len(indices), host.states, len(lengths))
        pages = {i: (segment.pages[i], handle) for i, handle in zip(indices, host_pages, strict=True)}
        states = {n: (segment.states[n], handle) for n, handle in zip(lengths, host_states, strict=True)}
        self._retention.counters.offloads_started += 1
        if self.seals is not None and states:
            self.seals.seal_states(segment, {n: handle for n, (handle, _) in states.items()})
        self._start("offload", segment, pages, states)
        return len(pages)

    def begin_restore(self, segment: Segment, indices: Sequence[int], lengths: Sequence[int]) -> Transfer:
        """Begins to copy pages and states back. The room for them must be there."""
        pools = self._retention
        device_pages, device_states = allocate_both(pools.pages, len(indices), pools.states, len(lengths))
        pages = {i: (handle, segment.host_pages[i]) for i, handle in zip(indices, device_pages, strict=True)}
        states = {n: (handle, segment.host_states[n]) for n, handle in zip(lengths, device_states, strict=True)}
        self._retention.counters.restores_started += 1
        return self._start("restore", segment, pages, states)

    def _start(
        self, kind: Kind, segment: Segment, pages: dict[int, tuple[int, int]], states: dict[int, tuple[int, int]]
    ) -> Transfer:
        assert self.host is not None
        transfer = Transfer(kind, segment, pages, states, self._complete)
        self.moving[segment] = transfer
        try:
            self.host.copier.start(transfer)
        except (OctopusError, RuntimeError):
            transfer.complete(ok=False)
        return transfer

    def wait(self, transfers: Iterable[Transfer], timeout_s: float | None = None) -> bool:
        """Waits until all have completed, or for the tier's timeout, the graph unlocked. Whether they have."""
        pending = [transfer for transfer in transfers if not transfer.done]
        if not pending:
            return True
        if timeout_s is None:
            timeout_s = self.host.timeout_s if self.host else 0.0
        if timeout_s == 0:
            return False
        return self._retention.condition.wait_for(lambda: all(transfer.done for transfer in pending), timeout_s)

    # ---- complete ----

    def _complete(self, transfer: Transfer, ok: bool) -> bool:
        with self._retention.condition:
            if transfer.ok is not None:
                self._retention.counters.completions_ignored += 1
                return False
            transfer.ok = ok
            invariant(self.moving.pop(transfer.segment) is transfer, f"{transfer} was not under way")
            if transfer.kind == "offload":
                self._offloaded(transfer, ok)
            else:
                self._restored(transfer, ok)
            self._retention.condition.notify_all()
            return True

    def _offloaded(self, transfer: Transfer, ok: bool) -> None:
        segment, counters = transfer.segment, self._retention.counters
        counters.offloads_done += ok
        counters.offloads_failed += not ok
        moves = ok and not transfer.recalled
        for index, (here, there) in transfer.pages.items():
            adopted = index in transfer.adopted_pages
            if moves and not adopted:
                segment.pages[index] = NO_PAGE
                segment.host_pages = segment.host_pages or {}
                segment.host_pages[index] = there
                counters.pages_offloaded += 1
                self.away += 1
            self._release_page(here, there, device=moves or adopted, host=not moves or adopted)
        for length, (here, there) in transfer.states.items():
            adopted = length in transfer.adopted_states
            if moves and not adopted:
                del segment.states[length]
                segment.host_states = segment.host_states or {}
                segment.host_states[length] = there
                self.away += 1
            self._release_state(here, there, device=moves or adopted, host=not moves or adopted)

    def _restored(self, transfer: Transfer, ok: bool) -> None:
        segment, counters = transfer.segment, self._retention.counters
        ok = transfer.ok = ok and self._verified(transfer)
        counters.restores_done += ok
        counters.restores_failed += not ok
        for index, (here, there) in transfer.pages.items():
            adopted = index in transfer.adopted_pages
            if ok and not adopted:
                segment.pages[index] = here
                del segment.host_pages[index]
                counters.pages_restored += 1
                self.away -= 1
            elif not adopted:
                self.lost.setdefault(segment, set()).add(index)
            self._release_page(here, there, device=not ok or adopted, host=ok or adopted)
        for length, (here, there) in transfer.states.items():
            adopted = length in transfer.adopted_states
            if not adopted:
                del segment.host_states[length]
                self.away -= 1
            if ok and not adopted:
                segment.states = segment.states or {}
                segment.states[length] = here
            self._release_state(here, there, device=not ok or adopted, host=True)

    def _verified(self, transfer: Transfer) -> bool:
        """Whether what came back is what went, as far as it is still wanted."""
        if self.seals is None:
            return True
        pages = {i: here for i, (here, _) in transfer.pages.items() if i not in transfer.adopted_pages}
        states = {n: here for n, (here, _) in transfer.states.items() if n not in transfer.adopted_states}
        return not self.seals.broken(transfer.segment, pages, states)

    def _release_page(self, here: int, there: int, *, device: bool, host: bool) -> None:
        if device and self._retention.pages is not None:
            self._retention.pages.release([here])
        if host and self.host is not None and self.host.pages is not None:
            self.host.pages.release([there])

    def _release_state(self, here: int, there: int, *, device: bool, host: bool) -> None:
        if device and self._retention.states is not None:
            self._retention.states.release([here])
        if host and self.host is not None and self.host.states is not None:
            self.host.states.release([there])

    # ---- what segments give up ----

    def give_back_pages(self, segment: Segment, handles: list[int], start: int, stop: int) -> list[int]:
        """The segment gives up its pages with index in `[start, stop)`, `handles` of them on the device.

        Gives back those in the host tier; a copy under way adopts its own. Returns the handles that can be released.
        """
        transfer = self.moving.get(segment)
        moving = {i for i in (transfer.pages if transfer else ()) if start <= i < stop}
        if transfer is not None and transfer.kind == "offload":
            ours = {transfer.pages[i][0] for i in moving - transfer.adopted_pages}
            handles = [handle for handle in handles if handle not in ours]
        leaving = [i for i in segment.host_pages if start <= i < stop]
        gone = {i: segment.host_pages.pop(i) for i in leaving}
        self.away -= len(leaving)
        if transfer is not None and transfer.kind == "restore":
            gone = {i: handle for i, handle in gone.items() if i not in moving}
        if transfer is not None:
            transfer.adopted_pages |= moving
        if gone and self.host is not None and self.host.pages is not None:
            self.host.pages.release(list(gone.values()))
        if segment in self.lost:
            self.lost[segment] -= set(leaving)
        return handles

    def give_back_states(self, segment: Segment, handles: list[int], length: int) -> list[int]:
        """The same for the states beyond `length`."""
        transfer = self.moving.get(segment)
        moving = {n for n in (transfer.states if transfer else ()) if n > length}
        if transfer is not None and transfer.kind == "offload":
            ours = {transfer.states[n][0] for n in moving - transfer.adopted_states}
            handles = [handle for handle in handles if handle not in ours]
        leaving = [n for n in segment.host_states if n > length]
        gone = {n: segment.host_states.pop(n) for n in leaving}
        self.away -= len(leaving)
        if transfer is not None and transfer.kind == "restore":
            gone = {n: handle for n, handle in gone.items() if n not in moving}
        if transfer is not None:
            transfer.adopted_states |= moving
        if gone and self.host is not None and self.host.states is not None:
            self.host.states.release(list(gone.values()))
        return handles

    def drop_state(self, segment: Segment, length: int) -> None:
        """Gives up one state on the device; a copy under way adopts it."""
        handle = segment.states.pop(length)
        transfer = self.moving.get(segment)
        copied = transfer.states.get(length) if transfer is not None and transfer.kind == "offload" else None
        if transfer is not None and copied is not None and copied[0] == handle:
            transfer.adopted_states.add(length)
        elif self._retention.states is not None:
            self._retention.states.release([handle])

    def settle_losses(self) -> bool:
        """Forgets what did not come back from the host tier, so that it is computed again. Whether there was any.

        Only between steps: it gives back pages that a step might read.
        """
        pool, lost = self._retention.pages, self.lost
        self.lost = {}
        for segment, indices in lost.items():
            if indices and pool is not None:
                self.lossy = True
                first = min(indices)
                whole = all(segment.pages[i] != NO_PAGE or i in segment.host_pages for i in range(first))
                self._retention.forget_computed(segment, first * pool.page_size if whole else 0)
        return any(lost.values())

    # ---- audit ----

    def check_pools(self, pages: list[int], states: list[int]) -> None:
        """Conservation of all pools, given the device handles that segments own. Raises InvariantViolation."""
        host_pages = [h for segment in self._retention.segments.values() for h in segment.host_pages.values()]
        host_states = [h for segment in self._retention.segments.values() for h in segment.host_states.values()]
        invariant(self.away == len(host_pages) + len(host_states), f"{self.away} units are not in the host tier")
        for transfer in self.moving.values():
            offload = transfer.kind == "offload"
            for key, (here, there) in transfer.pages.items():
                adopted = key in transfer.adopted_pages
                pages += [here] if adopted or not offload else []
                host_pages += [there] if adopted or offload else []
            for key, (here, there) in transfer.states.items():
                adopted = key in transfer.adopted_states
                states += [here] if adopted or not offload else []
                host_states += [there] if adopted or offload else []
        host = self.host
        pools = self._retention
        for pool, owned in (
            (pools.pages, pages),
            (pools.states, states),
            (host.pages if host else None, host_pages),
            (host.states if host else None, host_states),
        ):
            if pool is not None:
                pool.check(owned)
            else:
                invariant(not owned, f"units {owned} of a pool that is not there")
