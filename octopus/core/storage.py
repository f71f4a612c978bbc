"""The only tensors of `core`: keys, values and recurrent states, addressed by slot number.

Letters: S token slots, Z state slots, G key/value heads, D head dimension, W convolution columns, C convolution
channels, H value heads, Dk and Dv key and value dimension of a recurrent head, L recurrent layers,
R runs, N slots and M states of one call.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
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

    Attributes:
        pairs_of_pages: Tensors on the device, by page, each with its counterpart in host memory.
        pairs_of_states: Likewise, by state.
    """

    def __init__(
        self, device: KVStorage, seals: TensorSeals | None, *, pages: int, states: int, page_size: int
    ) -> None:
        pinned = device.keys.is_cuda
        shape = device.shape
        page = (pages, shape.attention_layers, page_size, shape.kv_heads, shape.head_dim)
        keys, values, conv, recurrent = device.keys, device.values, device.conv, device.recurrent
        self.pairs_of_pages = [(_by_page(x, page_size), _host(page, x, pinned)) for x in (keys, values)]
        self.pairs_of_states = [
            (x.transpose(0, 1), _host((states, x.shape[0], *x.shape[2:]), x, pinned)) for x in (conv, recurrent)
        ]
        if seals is not None:
            sums_PN = seals.sums_S.unflatten(0, (-1, page_size))
            self.pairs_of_pages.append((sums_PN, _host((pages, page_size), sums_PN, pinned)))
            self.pairs_of_states.append((seals.state_sums_Z, _host((states,), seals.state_sums_Z, pinned)))
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
            (self.pairs_of_pages, transfer.page_units),
            (self.pairs_of_states, transfer.state_units),
        ):
            if not units:
                continue
            # In the host's order: neighbours there are one copy, and launching many would cost more than the bytes.
            rows, places = zip(*sorted(units, key=itemgetter(1)), strict=True)
            rows_N = torch.tensor(rows)
            for device, host in pairs:
                at_N = _sent(rows_N, device.device)
                if transfer.kind == "offload":
                    block = device[at_N]
                    for start, stop in _runs(places):
                        host[places[start] : places[start] + stop - start].copy_(block[start:stop], non_blocking=True)
                else:
                    block = device.new_empty((len(rows), *host.shape[1:]))
                    for start, stop in _runs(places):
                        block[start:stop].copy_(host[places[start] : places[start] + stop - start], non_blocking=True)
                    device[at_N] = block
                staged += [block, at_N]
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
        device, shape = storage.keys.device, storage.keys.shape
        self._page_size = page_size
        self._device = device
        token = (shape[0], 1, *shape[2:])
        self._tokens = [
            (_bits(tensor), _odd(token, start=start, device=device))
            for tensor, start in ((storage.keys, 0), (storage.values, math.prod(token)))
        ]
        self._states = [
            (_bits(tensor), _odd((1, *tensor.shape[2:]), start=start, device=device))
            for tensor, start in ((storage.conv, 0), (storage.recurrent, math.prod(storage.conv.shape[2:])))
        ]
        self._layers_L = _odd((storage.conv.shape[0],), start=0, device=device)
        self._most_slots = max(1, _SEAL_NUMBERS // max(1, math.prod(token)))
        self.sums_S = torch.zeros(shape[1], dtype=torch.int64, device=device)
        self.state_sums_Z = torch.zeros(storage.recurrent.shape[1], dtype=torch.int64, device=device)

    def seal(self, pages: Sequence[SealRun], states: Sequence[StateSeal]) -> None:
        """See `SealedMemory.seal`. Waits for nothing on a GPU."""
        if pages:
            slots_N, sums_N = self._slot_sums(pages)
            self.sums_S[slots_N] = sums_N
        if states:
            units_M, sums_M = self._state_sums(states)
            self.state_sums_Z[units_M] = sums_M

    def broken(self, pages: Sequence[SealRun], states: Sequence[StateSeal]) -> list[Sealed]:
        """See `SealedMemory.broken`. Waits for the GPU, once where everything is in order."""
        slots_N, sums_N = self._slot_sums(pages)
        units_M, sums_M = self._state_sums(states)
        differs = torch.cat((self.sums_S[slots_N] != sums_N, self.state_sums_Z[units_M] != sums_M))
        if not bool(differs.any()):
            return []
        of_slots, of_states = differs.cpu().split([len(slots_N), len(units_M)])
        parts = of_slots.split([run.stop - run.start for run in pages])
        found: list[Sealed] = [run for run, part in zip(pages, parts, strict=True) if bool(part.any())]
        return found + [state for state, differs in zip(states, of_states.tolist(), strict=True) if differs]

    def _slot_sums(self, runs: Sequence[SealRun]) -> tuple[torch.Tensor, torch.Tensor]:
        """The slots of all runs, and what their fingerprints should be."""
        units_R, starts_R, stops_R, segments_R, offsets_R = _columns(runs, 5)
        lengths_R = stops_R - starts_R
        firsts_R = lengths_R.cumsum(0) - lengths_R
        slots_R = units_R * self._page_size + starts_R - firsts_R
        rows_2R = torch.stack((slots_R, _owners(segments_R, offsets_R - firsts_R)))
        rows_2N = rows_2R.repeat_interleave(lengths_R, dim=1)
        places_N = torch.arange(rows_2N.shape[1])
        rows_2N += torch.stack((places_N, places_N * _OFFSET_FACTOR))
        slots_N, owners_N = _sent(rows_2N, self._device)
        sums, start = [], 0
        while start < len(slots_N):
            part_N = self._token_sums(slots_N[start : start + self._most_slots])
            if part_N is not None:
                sums.append(part_N)
                start += self._most_slots
            else:
                self._most_slots //= 2
        return slots_N, torch.cat(sums) + owners_N if sums else owners_N

    def _token_sums(self, slots_N: torch.Tensor) -> torch.Tensor | None:
        """None if the device has no memory for so many slots at once."""
        try:
            keys_N, values_N = ((bits[:, slots_N] * odd).sum((0, 2, 3)) for bits, odd in self._tokens)
        except torch.OutOfMemoryError:
            if len(slots_N) == 1:
                raise
            return None
        return keys_N + values_N

    def _state_sums(self, states: Sequence[StateSeal]) -> tuple[torch.Tensor, torch.Tensor]:
        """The slots of all states, and what their fingerprints should be. One state at a time: they are large."""
        units_M, segments_M, lengths_M = _columns(states, 3)
        rows_2M = torch.stack((units_M, _owners(segments_M, lengths_M)))
        units_M, owners_M = _sent(rows_2M, self._device)
        sums = [self._state_sum(state.unit) for state in states]
        return units_M, torch.stack(sums) + owners_M if sums else owners_M

    def _state_sum(self, unit: int) -> torch.Tensor:
        conv_L, recurrent_L = ((bits[:, unit] * odd).flatten(1).sum(1) for bits, odd in self._states)
        return ((conv_L + recurrent_L) * self._layers_L).sum()


_SEAL_NUMBERS = 1 << 23  # How many numbers are read at once: bounds the temporary memory.
_SEGMENT_FACTOR, _OFFSET_FACTOR = 0x1E3779B97F4A7C15, 0x51B54A32D192ED03
_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as whole numbers."""
    return tensor.view(_BITS[tensor.dtype.itemsize])


def _odd(shape: Sequence[int], *, start: int, device: torch.device) -> torch.Tensor:
    """int64, another odd number for each place, from the `start`-th on."""
    places = torch.arange(start, start + math.prod(shape), device=device)
    odd: torch.Tensor = places * 0x5851F42D4C957F2D * 2 + 1
    return odd.view(tuple(shape))


def _columns(rows: Sequence[Sequence[int]], count: int) -> tuple[torch.Tensor, ...]:
    return torch.tensor(rows, dtype=torch.int64).view(-1, count).unbind(1)


def _owners(segments_N: torch.Tensor, offsets_N: torch.Tensor) -> torch.Tensor:
    """A number for each owner, modulo 2^64; linear in the offset."""
    return segments_N * _SEGMENT_FACTOR + offsets_N * _OFFSET_FACTOR + 1


def _sent(numbers: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy on the device that nobody waits for: out of ordinary memory it would wait for all that the GPU has to do."""
    return (numbers.pin_memory() if device.type == "cuda" else numbers).to(device, non_blocking=True)


def _by_page(slots: torch.Tensor, page_size: int) -> torch.Tensor:
    """[layers, S, G, D] as a view [pages, layers, page size, G, D]."""
    pages: torch.Tensor = slots.unflatten(1, (-1, page_size))
    return pages.transpose(0, 1)


def _runs(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Half-open intervals of indices over which ascending places follow each other without a gap."""
    start = 0
    for index in range(1, len(places) + 1):
        if index == len(places) or places[index] != places[index - 1] + 1:
            yield start, index
            start = index


def _host(shape: tuple[int, ...], like: torch.Tensor, pinned: bool) -> torch.Tensor:
    return torch.empty(shape, dtype=like.dtype, pin_memory=pinned)
