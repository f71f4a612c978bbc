"""The only tensors of `core`: keys, values and recurrent states, addressed by slot number.

Letters: S token slots, Z state slots, G key/value heads, D head dimension, W convolution columns, C convolution
channels, H value heads, Dk and Dv key and value dimension of a recurrent head.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from queue import SimpleQueue

import torch

from octopus.core.host import Transfer
from octopus.core.seals import Sealed, SealRun, StateSeal


@dataclass(frozen=True, kw_only=True)
class KVShape:
    """What a model keeps for each token (attention layers) and for each state (recurrent layers).

    A model without recurrent layers leaves the second group at 0; its states take no memory.
    """

    attention_layers: int
    kv_heads: int
    head_dim: int

    recurrent_layers: int = 0
    conv_columns: int = 0  # kernel size - 1
    conv_channels: int = 0
    value_heads: int = 0
    key_dim: int = 0
    value_dim: int = 0

    def bytes_per_token(self, dtype: torch.dtype) -> int:
        """Bytes of one token's keys and values in all attention layers, kept in `dtype`."""
        return self.attention_layers * 2 * self.kv_heads * self.head_dim * dtype.itemsize

    def bytes_per_state(self, dtype: torch.dtype) -> int:
        """Bytes of one recurrent state of all layers: convolution columns in `dtype`, the rest in its compute dtype."""
        conv = self.conv_columns * self.conv_channels * dtype.itemsize
        recurrent = self.value_heads * self.key_dim * self.value_dim * _compute_dtype(dtype).itemsize
        return self.recurrent_layers * (conv + recurrent)


class KVStorage:
    """Keys, values and recurrent states of all layers. Who owns which slot is decided elsewhere.

    Nothing is initialised: a slot that was never written holds anything, NaN included, and must not be read.

    Attributes:
        keys: [attention layers, S, G, D], each rotated to its token's own position.
        values: [attention layers, S, G, D].
        conv: [recurrent layers, Z, W, C], the last W columns before the convolution, oldest first.
        recurrent: [recurrent layers, Z, H, Dk, Dv] in `promote(dtype, float32)`.
    """

    def __init__(
        self,
        shape: KVShape,
        *,
        num_slots: int,
        num_states: int,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        self.shape = shape
        token = (shape.attention_layers, num_slots, shape.kv_heads, shape.head_dim)
        state = (shape.recurrent_layers, num_states)
        self.keys = torch.empty(token, dtype=dtype, device=device)
        self.values = torch.empty(token, dtype=dtype, device=device)
        self.conv = torch.empty(*state, shape.conv_columns, shape.conv_channels, dtype=dtype, device=device)
        self.recurrent = torch.empty(
            *state,
            shape.value_heads,
            shape.key_dim,
            shape.value_dim,
            dtype=_compute_dtype(dtype),
            device=device,
        )


def _compute_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


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
    """

    def __init__(
        self, device: KVStorage, seals: TensorSeals | None, *, pages: int, states: int, page_size: int
    ) -> None:
        pinned = device.keys.is_cuda
        shape = device.shape
        page = (pages, shape.attention_layers, page_size, shape.kv_heads, shape.head_dim)
        keys, values, conv, recurrent = device.keys, device.values, device.conv, device.recurrent
        self._pairs_of_pages = [(_by_page(x, page_size), _host(page, x, pinned)) for x in (keys, values)]
        self._pairs_of_states = [
            (x.transpose(0, 1), _host((states, x.shape[0], *x.shape[2:]), x, pinned)) for x in (conv, recurrent)
        ]
        if seals is not None:
            sums_PN = seals.sums_S.unflatten(0, (-1, page_size))
            self._pairs_of_pages.append((sums_PN, _host((pages, page_size), sums_PN, pinned)))
            self._pairs_of_states.append((seals.state_sums_Z, _host((states,), seals.state_sums_Z, pinned)))
        self._stream = torch.cuda.Stream(device.keys.device) if pinned else None
        self._waiting: SimpleQueue[tuple[Transfer, torch.cuda.Event, list[torch.Tensor]]] = SimpleQueue()
        if pinned:
            threading.Thread(target=self._complete_in_order, name="octopus-host-tier", daemon=True).start()

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
        for pairs, units in (
            (self._pairs_of_pages, transfer.page_units),
            (self._pairs_of_states, transfer.state_units),
        ):
            for device, host in pairs if units else ():
                rows = torch.tensor([unit for unit, _ in units], device=device.device)
                if transfer.kind == "offload":
                    block = device[rows]
                    for row, (_, place) in enumerate(units):
                        host[place].copy_(block[row], non_blocking=True)
                else:
                    block = device.new_empty((len(units), *host.shape[1:]))
                    for row, (_, place) in enumerate(units):
                        block[row].copy_(host[place], non_blocking=True)
                    device[rows] = block
                staged += [block, rows]
        return staged

    def _complete_in_order(self) -> None:
        while True:
            transfer, event, staged = self._waiting.get()
            event.synchronize()
            staged.clear()
            transfer.complete()


class TensorSeals:
    """Fingerprints of a store's slots and states: a `SealedMemory`.

    A fingerprint is the sum, modulo 2^64, of the bits of every number times an odd number of its place: one number that
    changes always changes it. For whom a slot was written is added, so that what lies in another's place is found too.

    Attributes:
        sums_S: Fingerprint of each slot.
        state_sums_Z: Fingerprint of each state.
    """

    def __init__(self, storage: KVStorage, *, page_size: int) -> None:
        self._storage = storage
        self._page_size = page_size
        device = storage.keys.device
        self.sums_S = torch.zeros(storage.keys.shape[1], dtype=torch.int64, device=device)
        self.state_sums_Z = torch.zeros(storage.recurrent.shape[1], dtype=torch.int64, device=device)

    def seal(self, pages: Sequence[SealRun], states: Sequence[StateSeal]) -> None:
        """See `SealedMemory.seal`. Waits for nothing on a GPU."""
        if pages:
            slots_N, owners_N = self._slots(pages)
            self.sums_S[slots_N] = self._slot_sums(slots_N) + owners_N
        for state in states:
            self.state_sums_Z[state.unit] = self._state_sum(state)

    def broken(self, pages: Sequence[SealRun], states: Sequence[StateSeal]) -> list[Sealed]:
        """See `SealedMemory.broken`. Waits for the GPU."""
        found: list[Sealed] = []
        if pages:
            slots_N, owners_N = self._slots(pages)
            differs_N = self.sums_S[slots_N] != self._slot_sums(slots_N) + owners_N
            if bool(differs_N.any()):
                parts = differs_N.split([run.stop - run.start for run in pages])
                found += [run for run, part in zip(pages, parts, strict=True) if bool(part.any())]
        found += [state for state in states if bool(self.state_sums_Z[state.unit] != self._state_sum(state))]
        return found

    def _slots(self, pages: Sequence[SealRun]) -> tuple[torch.Tensor, torch.Tensor]:
        """The slots of all runs, and a number for whom each was written."""
        size = self._page_size
        slots = [run.unit * size + slot for run in pages for slot in range(run.start, run.stop)]
        owners = [_owner(run.segment, run.offset + i) for run in pages for i in range(run.stop - run.start)]
        device = self.sums_S.device
        return torch.tensor(slots, device=device), torch.tensor(owners, device=device)

    def _slot_sums(self, slots_N: torch.Tensor) -> torch.Tensor:
        sums = []
        for part_N in slots_N.split(_SEAL_SLOTS):
            both = torch.stack((self._storage.keys[:, part_N], self._storage.values[:, part_N]))
            sums.append(_weighed(both.movedim(2, 0).flatten(1)))
        return torch.cat(sums)

    def _state_sum(self, state: StateSeal) -> torch.Tensor:
        conv, recurrent = self._storage.conv[:, state.unit], self._storage.recurrent[:, state.unit]
        bits: torch.Tensor = _weighed(conv.reshape(1, -1))[0] + 3 * _weighed(recurrent.reshape(1, -1))[0]
        bits += _owner(state.segment, state.length)
        return bits


_SEAL_SLOTS = 512  # How many slots are read at once: bounds the temporary memory.
_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def _weighed(numbers_NE: torch.Tensor) -> torch.Tensor:
    """For each row the sum of its numbers' bits, each times an odd number of its column."""
    bits_NE = numbers_NE.contiguous().view(_BITS[numbers_NE.dtype.itemsize]).to(torch.int64)
    columns_E = torch.arange(bits_NE.shape[1], device=bits_NE.device)
    sums_N: torch.Tensor = (bits_NE * (columns_E * 0x5851F42D4C957F2D * 2 + 1)).sum(1)
    return sums_N


def _owner(segment: int, offset: int) -> int:
    """A number for an owner, in the range of a signed 64-bit integer."""
    mixed = (segment * 0x9E3779B97F4A7C15 + offset * 0xD1B54A32D192ED03) % (1 << 64)
    return mixed - (1 << 63)


def _by_page(slots: torch.Tensor, page_size: int) -> torch.Tensor:
    """[layers, S, G, D] as a view [pages, layers, page size, G, D]."""
    pages: torch.Tensor = slots.unflatten(1, (-1, page_size))
    return pages.transpose(0, 1)


def _host(shape: tuple[int, ...], like: torch.Tensor, pinned: bool) -> torch.Tensor:
    return torch.empty(shape, dtype=like.dtype, pin_memory=pinned)
