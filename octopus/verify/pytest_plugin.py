"""A pytest plugin: `assert_isolated(fn, batch, graph)`, as a fixture or imported from here.

    def test_packing(assert_isolated):
        assert_isolated(lambda ids: model(ids).logits, ids, {"document_ids": [0, 0, 0, 1, 1]})

pytest loads this module wherever the package is installed, so it imports nothing else until it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest


def assert_isolated(fn: Callable[[Any], Any], batch: Any, graph: Any, *, rows: Sequence[int] | None = None) -> None:
    """Asserts that no row of `fn(batch)` moves by a single bit when a row changes that must not influence it.

    Args:
        fn: Takes the batch and returns one row a token (or a list of such, one a layer).
        batch: Token ids `[T]` or `[1, T]`, embeddings `[T, C]` or `[1, T, C]`, or a mapping with `input_ids`.
        graph: Who may see whom: predecessors, a mapping such as `{"document_ids": [...]}`, `{"cu_seqlens": [...]}` or
            `{"segments": ..., "mounts": ...}`, or a bool matrix.
        rows: The rows to change; all where not given. `fn` runs once for each, and twice more.

    Raises:
        AssertionError: names the first row that moved, or says that nothing was shown.
    """
    from octopus.verify.isolated import require_isolated

    __tracebackhide__ = True
    require_isolated(fn, batch, graph, rows=rows)


@pytest.fixture(name="assert_isolated")
def _assert_isolated() -> Callable[..., None]:
    """The function itself."""
    return assert_isolated
