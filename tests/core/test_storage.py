"""Tensors that go to host memory and come back, and their fingerprints."""

from __future__ import annotations

import pytest
import torch

from octopus.core.host import Transfer
from octopus.core.seals import SealRun, StateSeal
from octopus.core.segment import Segment
from octopus.core.storage.host import HostStorage
from octopus.core.storage.kv import KVShape, KVStorage
from octopus.core.storage.seals import TensorSeals

PAGE = 4
SHAPE = KVShape(
    attention_layers=2,
    kv_heads=2,
    head_dim=8,
    recurrent_layers=3,
    conv_columns=3,
    conv_channels=10,
    value_heads=2,
    key_dim=4,
    value_dim=6,
)


def filled(dtype: torch.dtype) -> KVStorage:
    storage = KVStorage(SHAPE, num_slots=6 * PAGE, num_states=4, dtype=dtype, device="cpu")
    generator = torch.Generator().manual_seed(0)
    for tensor in (storage.keys, storage.values, storage.conv, storage.recurrent):
        tensor.copy_(torch.randn(tensor.shape, generator=generator))
    return storage


def transfer(kind: str, pages: dict[int, tuple[int, int]], states: dict[int, tuple[int, int]]) -> Transfer:
    segment = Segment(index=7, parent=None, start_position=0, writer=0, opened_at=0, weights_version=0)

    def complete(one: Transfer, ok: bool) -> bool:
        one.ok = ok
        return True

    return Transfer(kind, segment, pages, states, complete)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_what_went_comes_back_bit_by_bit(dtype: torch.dtype) -> None:
    """Catches: a layer that is left out, pages and slots mixed up, a fingerprint that stays behind."""
    storage = filled(dtype)
    seals = TensorSeals(storage, page_size=PAGE)
    host = HostStorage(storage, seals, pages=4, states=2, page_size=PAGE)
    runs = [SealRun(1, 0, 4, 7, 0), SealRun(4, 0, 3, 7, 4)]
    states = [StateSeal(2, 7, 7)]
    seals.seal(runs, states)
    slots = [*range(4, 8), *range(16, 19), *range(12, 16)]
    moved = [*range(8, 12), *range(3), *range(20, 24)]
    before = [storage.keys[:, slots], storage.values[:, slots], storage.conv[:, [2]], storage.recurrent[:, [2]]]
    out = transfer("offload", {0: (1, 2), 1: (4, 0), 2: (3, 3)}, {7: (2, 1)})
    host.start(out)
    assert out.done and out.ok
    for tensor in (storage.keys, storage.values, storage.conv, storage.recurrent):
        tensor.zero_()
    back = transfer("restore", {0: (2, 2), 1: (0, 0), 2: (5, 3)}, {7: (3, 1)})
    host.start(back)
    after = [storage.keys[:, moved], storage.values[:, moved], storage.conv[:, [3]], storage.recurrent[:, [3]]]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert seals.broken([SealRun(2, 0, 4, 7, 0), SealRun(0, 0, 3, 7, 4)], [StateSeal(3, 7, 7)]) == []
    swapped = [SealRun(0, 0, 3, 7, 0), SealRun(2, 0, 3, 7, 4)]
    assert seals.broken(swapped, [StateSeal(3, 7, 6)]) == [*swapped, StateSeal(3, 7, 6)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_any_flipped_bit_is_found(dtype: torch.dtype) -> None:
    """Catches: weights with a zero or an even number among them, a sum in floating point, a tensor left out."""
    storage = filled(dtype)
    seals = TensorSeals(storage, page_size=PAGE)
    run, other, state = SealRun(1, 0, 4, 7, 0), SealRun(2, 0, 4, 7, 4), StateSeal(1, 7, 8)
    seals.seal([run, other], [state])
    generator = torch.Generator().manual_seed(1)
    integer = {2: torch.int16, 4: torch.int32, 8: torch.int64}

    def flip(tensor: torch.Tensor) -> None:
        flat = tensor.view(integer[tensor.dtype.itemsize])
        place = tuple(int(torch.randint(size, (1,), generator=generator)) for size in flat.shape)
        bit = int(torch.randint(8 * tensor.dtype.itemsize, (1,), generator=generator))
        flat[place] ^= torch.tensor(1, dtype=flat.dtype) << bit

    for tensor in (storage.keys, storage.values):
        for _ in range(20):
            kept = tensor.clone()
            flip(tensor[:, 4:8])
            assert seals.broken([run, other], [state]) == [run]
            tensor.copy_(kept)
    for tensor in (storage.conv, storage.recurrent):
        for _ in range(20):
            kept = tensor.clone()
            flip(tensor[:, 1:2])
            assert seals.broken([run, other], [state]) == [state]
            tensor.copy_(kept)
    assert seals.broken([run, other], [state]) == []


def test_slots_are_sealed_one_by_one() -> None:
    """Catches: a fingerprint of a whole page, which the next token of a decode step breaks."""
    storage = filled(torch.float32)
    storage.keys[:, 6:8] = torch.nan  # Never written.
    seals = TensorSeals(storage, page_size=PAGE)
    seals.seal([SealRun(1, 0, 2, 7, 8)], [])
    storage.keys[:, 6] = 1.0
    assert seals.broken([SealRun(1, 0, 2, 7, 8)], []) == []
    seals.seal([SealRun(1, 2, 3, 7, 10)], [])
    assert seals.broken([SealRun(1, 0, 3, 7, 8)], []) == []
    assert seals.broken([SealRun(1, 0, 4, 7, 8)], []) == [SealRun(1, 0, 4, 7, 8)]
