"""Fingerprints of what a store holds.

Letters: S token slots, Z state slots, L recurrent layers, R runs, N slots and M states of one call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from octopus.core.seals import Sealed, SealRun, StateSeal
from octopus.core.storage.kv import KVStorage, sent


class TensorSeals:
    """Fingerprints of a store's slots and states: a `SealedMemory`.

    A fingerprint is the sum, modulo 2^64, of the bits of every number times an odd number of its place: one number that
    changes always changes it. For whom a slot was written is added, so that what lies in another's place is found too.

    Attributes:
        sums_S: Fingerprint of each slot.
        state_sums_Z: Fingerprint of each state.
    """

    def __init__(self, storage: KVStorage, *, page_size: int) -> None:
        device, shape = storage.device, storage.keys.shape
        self._page_size = page_size
        self._storage, self._device = storage, device
        token = (shape[0], 1, *shape[2:])
        self._odd_of_tokens = [_odd(token, start=start, device=device) for start in (0, math.prod(token))]
        self._odd_of_states = [
            _odd((1, *tensor.shape[2:]), start=start, device=device)
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
        slots_N, owners_N = sent(rows_2N, self._device)
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
            tensors = zip((self._storage.keys, self._storage.values), self._odd_of_tokens, strict=True)
            keys_N, values_N = ((_bits(tensor)[:, slots_N] * odd).sum((0, 2, 3)) for tensor, odd in tensors)
        except torch.OutOfMemoryError:
            if len(slots_N) == 1:
                raise
            return None
        return keys_N + values_N

    def _state_sums(self, states: Sequence[StateSeal]) -> tuple[torch.Tensor, torch.Tensor]:
        """The slots of all states, and what their fingerprints should be. One state at a time: they are large."""
        units_M, segments_M, lengths_M = _columns(states, 3)
        rows_2M = torch.stack((units_M, _owners(segments_M, lengths_M)))
        units_M, owners_M = sent(rows_2M, self._device)
        sums = [self._state_sum(state.unit) for state in states]
        return units_M, torch.stack(sums) + owners_M if sums else owners_M

    def _state_sum(self, unit: int) -> torch.Tensor:
        tensors = zip((self._storage.conv, self._storage.recurrent), self._odd_of_states, strict=True)
        conv_L, recurrent_L = ((_bits(tensor)[:, unit] * odd).flatten(1).sum(1) for tensor, odd in tensors)
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
