"""A copier between device and host that does its work when the fuzzer says so: at once, late, wrongly, twice, never.

The bytes move at the last moment allowed, so a page that was reused while it was being copied shows in the copy.
"""

from __future__ import annotations

from fuzz.device import TORN, Memory
from fuzz.faults import Failure
from octopus.core.host import Transfer

OUTCOMES = ("ok", "failed", "ok twice", "failed, then ok", "ok, then failed")


class FuzzCopier:
    """Keeps started transfers until `deliver`.

    Attributes:
        pending: Transfers that were started and have no outcome yet.
        too_late: How many outcomes came after the first of their transfer.
        ended: How many transfers have had their outcome.
        prompt: Whether a transfer completes inside `start`.
        refuses: Whether `start` itself fails.
        failure: Makes the N-th start fail.
    """

    def __init__(self, device: Memory, host: Memory, *, prompt: bool) -> None:
        self.device = device
        self.host = host
        self.pending: list[Transfer] = []
        self.delivered: list[Transfer] = []
        self.too_late = 0
        self.ended = 0
        self.prompt = prompt
        self.refuses = False
        self.failure = Failure()

    def start(self, transfer: Transfer) -> None:
        """Takes the transfer on. Its destination holds rubbish from now on. Raises RuntimeError if told to."""
        if self.refuses:
            raise RuntimeError("a planted failure of the copier")
        self.failure.on_attempt(RuntimeError)
        self._tear(transfer)
        self.pending.append(transfer)
        if self.prompt:
            self.deliver(len(self.pending) - 1, "ok")

    def deliver(self, number: int, outcome: str) -> None:
        """Gives a pending transfer its outcome."""
        transfer = self.pending.pop(number)
        self.ended += 1
        self.delivered = [*self.delivered[-3:], transfer]
        first, *later = {
            "ok": [True],
            "failed": [False],
            "ok twice": [True, True],
            "failed, then ok": [False, True],
            "ok, then failed": [True, False],
        }[outcome]
        if first:
            self._copy(transfer)
        assert transfer.complete(ok=first), "the first outcome of a transfer decides"
        for again in later:
            self._ignored(transfer, ok=again)

    def deliver_all(self) -> None:
        """Lets everything that is pending succeed."""
        while self.pending:
            self.deliver(0, "ok")

    def repeat(self) -> None:
        """Tells again of transfers that have their outcome: nobody may listen."""
        for transfer in self.delivered:
            self._ignored(transfer, ok=True)

    def _ignored(self, transfer: Transfer, *, ok: bool) -> None:
        self.too_late += 1
        assert not transfer.complete(ok=ok), "a second outcome of a transfer was taken"

    def _copy(self, transfer: Transfer) -> None:
        for device, host in transfer.page_units:
            if transfer.kind == "offload":
                self.host.take_page(host, self.device, device)
            else:
                self.device.take_page(device, self.host, host)
        for device, host in transfer.state_units:
            if transfer.kind == "offload":
                self.host.take_state(host, self.device, device)
            else:
                self.device.take_state(device, self.host, host)

    def _tear(self, transfer: Transfer) -> None:
        size = self.device.page_size
        for device, host in transfer.page_units:
            if transfer.kind == "offload":
                self.host.pages[host] = [TORN] * size
            else:
                self.device.pages[device] = [TORN] * size
        for device, host in transfer.state_units:
            if transfer.kind == "offload":
                self.host.states[host] = TORN
            else:
                self.device.states[device] = TORN
