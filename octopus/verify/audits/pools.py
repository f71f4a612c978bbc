"""A page pool at one moment: counts, free list, conservation, gauges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from octopus.verify.audits.audit import Audit
from octopus.verify.case import Case, known
from octopus.verify.facets import PoolState
from octopus.verify.findings import Finding, Witness
from octopus.verify.rules import finding


def pool(case: Case) -> Iterator[Finding]:
    """OCT701, OCT702, OCT705 and OCT708."""
    state = known(case.subject.pool)
    for code, message, segments in pool_faults(state):
        yield finding(code, message, subject=case.subject, witness=Witness(actual=message), segments=segments)


def pool_faults(state: PoolState) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """`(code, sentence, what it is about)` for everything that does not add up."""
    for page in state.pages:
        holders = len(set(page.holders))
        if page.count != holders:
            named = ", ".join(page.holders[:4]) or "nobody"
            yield "OCT701", f"page {page.page} counts {page.count} holders, {holders} hold it ({named})", ("counts",)
    held = {page.page for page in state.pages if page.holders or page.count}
    for number, times in Counter(state.free).items():
        if times > 1:
            yield "OCT702", f"page {number} is {times} times in the free list", ("twice free",)
        if number in held:
            yield "OCT702", f"page {number} is free and held", ("free and held",)
        if not 0 <= number < state.capacity:
            yield "OCT702", f"page {number} is in the free list of a pool of {state.capacity}", ("no such page",)
    elsewhere = held.union(state.free, state.fenced, state.loading)
    lost = [number for number in range(state.capacity) if number not in elsewhere]
    if lost:
        yield "OCT702", f"{len(lost)} pages are neither held nor free, the first is {lost[0]}", ("lost",)
    total = len(held) + len(state.free) + len(state.fenced) + len(state.loading)
    if total != state.capacity:
        parts = f"{len(held)} held, {len(state.free)} free, {len(state.fenced)} fenced, {len(state.loading)} loading"
        yield "OCT705", f"{parts}: {total} of {state.capacity} pages", ("conservation",)
    counted = {"capacity": state.capacity, "used": len(held), "free": len(state.free)}
    for name, value in (state.metrics or {}).items():
        if name in counted and counted[name] != value:
            yield "OCT708", f"the gauge {name} says {value}, the pool has {counted[name]}", (name,)


AUDITS = (Audit(name="pool", codes=("OCT701", "OCT702", "OCT705", "OCT708"), needs=("pool",), run=pool),)
