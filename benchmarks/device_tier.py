"""The pinned host tier at the page and state sizes of a 4B hybrid: there, back, verified; a fault in a copy is found.

There is no model: the store holds random bits, and a step that "computes" leaves them as they are.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from figures import Figures

from octopus.core.graph import Graph
from octopus.core.host import HostTier
from octopus.core.pool import NO_PAGE, PagePool, StatePool, unit_of
from octopus.core.seals import Seals
from octopus.core.storage.host import HostStorage
from octopus.core.storage.kv import KVShape, KVStorage
from octopus.core.storage.seals import TensorSeals
from octopus.core.thread import Thread

PAGE = 16
QWEN35_4B = KVShape(
    attention_layers=8,
    kv_heads=4,
    head_dim=256,
    recurrent_layers=24,
    conv_columns=3,
    conv_channels=8192,
    value_heads=32,
    key_dim=128,
    value_dim=128,
)
TINY = KVShape(
    attention_layers=2,
    kv_heads=2,
    head_dim=16,
    recurrent_layers=2,
    conv_columns=3,
    conv_channels=32,
    value_heads=2,
    key_dim=8,
    value_dim=8,
)


@dataclass(frozen=True, kw_only=True)
class World:
    """A graph over a store full of random bits, with a host tier.

    Attributes:
        graph: A root and its children.
        storage: What they hold on the device.
        host: What they hold in host memory.
        threads: The children.
        pages: Of each child at first; each lap appends a token, so that its state is needed again.
    """

    graph: Graph
    storage: KVStorage
    host: HostStorage
    threads: list[Thread]
    pages: int

    @classmethod
    def build(cls, shape: KVShape, device: str, *, threads: int, pages: int) -> World:
        """A root, and `threads` children with `pages` pages and a state each."""
        storage = KVStorage(
            shape,
            num_slots=2 * threads * (pages + 2) * PAGE,
            num_states=2 * threads + 4,
            dtype=torch.bfloat16,
            device=device,
        )
        for tensor in (storage.keys, storage.values, storage.conv, storage.recurrent):
            tensor.normal_()
        seals = TensorSeals(storage, page_size=PAGE)
        tier = {"pages": threads * (pages + 1), "states": threads}
        host = HostStorage(storage, seals, page_size=PAGE, **tier)
        graph = Graph(
            pages=PagePool(2 * threads * (pages + 2), page_size=PAGE),
            states=StatePool(2 * threads + 4),
            host=HostTier(copier=host, **tier),
            seals=Seals(seals, rate=0.0),
        )
        root = graph.thread()
        graph.append(root, [1] * PAGE)
        children = graph.fork(root, threads)
        for number, child in enumerate(children):
            graph.append(child, [number] * (pages * PAGE))
        world = cls(graph=graph, storage=storage, host=host, threads=children, pages=pages)
        world.compute(children)
        return world

    def compute(self, threads: list[Thread]) -> None:
        """One step: whatever lies in the memory is taken for the result."""
        with self.graph.begin_step(threads) as step:
            for wave in step.waves:
                for stretch in wave:
                    step.state_move(stretch)
                    step.publish(stretch)

    def contents(self, thread: Thread) -> list[torch.Tensor]:
        """A copy of a child's first pages and of its state."""
        segment, length = thread.cursor
        units = torch.tensor(
            [unit_of(page) for page in segment.pages[: self.pages]], device=self.storage.keys.device
        )
        slots_N = (units[:, None] * PAGE + torch.arange(PAGE, device=units.device)).flatten()
        state = unit_of(segment.states[length])
        tokens = [self.storage.keys[:, slots_N], self.storage.values[:, slots_N]]
        return [*tokens, self.storage.conv[:, state].clone(), self.storage.recurrent[:, state].clone()]

    def wipe_free(self) -> None:
        """All device memory that the children do not hold becomes NaN: what comes back must have been copied."""
        held = {unit_of(page) for s in self.graph.segments for page in s.pages if page != NO_PAGE}
        free = [unit for unit in range(self.storage.keys.shape[1] // PAGE) if unit not in held]
        for tensor in (self.storage.keys, self.storage.values):
            tensor.unflatten(1, (-1, PAGE))[:, free] = torch.nan
        held = {unit_of(slot) for s in self.graph.segments for slot in s.states.values()}
        free = [unit for unit in range(self.storage.conv.shape[1]) if unit not in held]
        for tensor in (self.storage.conv, self.storage.recurrent):
            tensor[:, free] = torch.nan


def synchronize(device: str) -> None:
    """Waits for the device."""
    if device == "cuda":
        torch.cuda.synchronize()


def measure(figures: Figures, device: str, small: bool, log: list[str]) -> None:
    """There and back for all children at once, then faults in the host's copies."""
    shape, pages = (TINY, 4) if small else (QWEN35_4B, 96)
    world = World.build(shape, device, threads=12, pages=pages)
    graph, case = world.graph, "host_tier"
    before = [world.contents(child) for child in world.threads]
    for lap in ("first", "second"):  # The first one also touches the pinned memory.
        round_trip(figures, world, f"{case}/{lap}", device)
    if device == "cuda":
        while_computing(figures, world, f"{case}/while the device computes")
    same = all(
        all(torch.equal(_integer(a), _integer(b)) for a, b in zip(world.contents(child), kept, strict=True))
        for child, kept in zip(world.threads, before, strict=True)
    )
    figures.gate(case, "what comes back is what went, bit by bit", same)
    counters = graph.stats().counters
    figures.gate(case, "every page was verified", counters.seals_checked >= 2 * 12 * (pages + 1), counters)
    figures.gate(case, "nothing was found broken", counters.seals_broken == 0, counters)
    del before
    plant(figures, world)
    graph.audit()
    log += ["## host tier", "", *(f"{k} = {v}" for k, v in graph.stats().flat().items() if v), ""]


def round_trip(figures: Figures, world: World, case: str, device: str) -> None:
    """All children leave and come back, and go on by a token each."""
    graph, shape, pages = world.graph, world.storage.shape, len(world.threads[0].cursor.segment.pages)
    child_bytes = pages * PAGE * shape.bytes_per_token(torch.bfloat16) + shape.bytes_per_state(torch.bfloat16)
    held = len(world.threads) * child_bytes
    figures.say(case, "bytes", held, "B")
    free = graph.stats().pages.free
    synchronize(device)
    started = time.perf_counter()
    for child in world.threads:
        graph.preempt(child)
    launched, under_way = time.perf_counter() - started, graph.stats()
    graph.wait_transfers(30.0)
    there = time.perf_counter() - started
    figures.say(case, "offload_launch", launched, "s")
    figures.say(case, "offload", held / there, "B/s")
    gone = under_way.pages.free - free + under_way.pages_in_transfer
    figures.gate(case, "a page under copy is nobody's", gone == len(world.threads) * pages, under_way)
    there_now = sum(
        len(c.cursor.segment.host_pages) + len(c.cursor.segment.host_states) for c in world.threads
    )
    figures.gate(
        case, "pages and states are all there", there_now == len(world.threads) * (pages + 1), there_now
    )
    world.wipe_free()
    for child in world.threads:
        graph.append(child, [0])
    synchronize(device)
    started = time.perf_counter()
    world.compute(world.threads)
    synchronize(device)
    figures.say(case, "restore_verified", held / (time.perf_counter() - started), "B/s")


def while_computing(figures: Figures, world: World, case: str) -> None:
    """What leaves is what the device computes before: copies wait for everything launched, and `preempt` for them."""
    a = torch.randn(8_192, 8_192, device="cuda", dtype=torch.bfloat16)
    synchronize("cuda")
    done = torch.cuda.Event()
    for _ in range(200):  # A third of a second.
        a @ a
    done.record()
    first, *others = world.threads
    world.graph.preempt(first)
    figures.gate(case, "copies come after it", done.query())
    for child in others:
        world.graph.preempt(child)
    gone = all(child.preempted for child in world.threads) and world.graph.stats().transfers == 0
    figures.gate(case, "all are gone when it returns", gone, world.graph.stats())
    for child in world.threads:
        world.graph.append(child, [0])
    world.compute(world.threads)


def plant(figures: Figures, world: World) -> None:
    """A flipped bit in a host page, one in a host state, two host pages exchanged: each found, and computed again."""
    for name in ("flipped bit in a page", "flipped bit in a state", "exchanged pages"):
        graph, child = world.graph, world.threads[0]
        graph.preempt(child)
        graph.wait_transfers(30.0)
        segment = child.cursor.segment
        units = [unit_of(handle) for handle in segment.host_pages.values()]
        keys, states = world.host.pages[0], world.host.states[1]
        if name == "exchanged pages":
            for host in world.host.pages:
                host[units[:2]] = host[units[1::-1]].clone()
        else:
            unit = unit_of(next(iter(segment.host_states.values()))) if "state" in name else units[1]
            flat = _integer(states if "state" in name else keys)[unit].view(-1)
            flat[len(flat) // 3] ^= 1
        before = graph.stats().counters
        graph.append(child, [0])
        world.compute([child])
        after = graph.stats().counters
        found = after.seals_broken > before.seals_broken and after.restores_failed > before.restores_failed
        figures.gate("host_tier", f"{name} is found", found, after)


def _integer(x: torch.Tensor) -> torch.Tensor:
    return x.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[x.dtype.itemsize])
