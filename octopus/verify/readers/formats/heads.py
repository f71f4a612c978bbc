"""Heads: from a model's configuration or from numbers that stand alone, and what a probe or a dump shows of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from octopus.verify.facets import Heads, Rotary
from octopus.verify.inputs import Hints, Unreadable
from octopus.verify.readers.bag import Bag
from octopus.verify.readers.formats.hf_config import DEFAULT_THETA, heads_of, parse_config
from octopus.verify.readers.part import Format, Part

SIZES = ("num_heads", "num_kv_heads", "head_dim", "max_positions", "tensor_parallel")
ROTARY = ("rope_theta", "rotary_dim", "interleaved")
SEEN = ("used_heads", "rank_heads", "expanded_shape", "head_gradient")
MAX_HEADS = 2**16
LARGEST_THETA = 1e300


def read(bag: Bag, hints: Hints) -> list[Part]:
    """One part, from `config` or `num_heads`; of a key cache with `rope_theta` the heads are those of the cache."""
    notes: tuple[str, ...] = ()
    if "config" in bag.tables:
        config, notes = parse_config(bag.tables["config"])
        heads = heads_of(config)
    elif bag.first("num_heads") or (bag.first("k_rot") and bag.first("rope_theta", "rotary_dim")):
        heads = _plain(bag)
    elif bag.first(*SEEN):
        raise Unreadable(f"{bag.first(*SEEN)} needs config.json or num_heads, num_kv_heads and head_dim beside it")
    else:
        return []
    return [Part(fields={"heads": replace(heads, **_more(bag))}, notes=notes)]


def _plain(bag: Bag) -> Heads:
    keys = bag.array("k_rot")
    cached = (0, 0) if keys is None or keys.ndim < 2 else (keys.shape[1], keys.shape[-1])
    query = bag.number("num_heads")
    key_value = bag.number("num_kv_heads")
    dim = bag.number("head_dim")
    query = cached[0] if query is None else query
    key_value = cached[0] or query if key_value is None else key_value
    dim = cached[1] if dim is None else dim
    if not (0 <= query <= MAX_HEADS and 0 <= key_value <= MAX_HEADS and 0 <= dim <= MAX_HEADS):
        raise Unreadable("num_heads, num_kv_heads and head_dim are out of all bounds")
    rotary = None
    if bag.first(*ROTARY):
        theta, interleaved = bag.array("rope_theta"), bag.number("interleaved")
        rotary_dim = bag.number("rotary_dim")
        base = DEFAULT_THETA if theta is None or theta.size != 1 else float(theta.reshape(-1)[0])
        if not 0 < base < LARGEST_THETA or not (rotary_dim is None or 0 <= rotary_dim <= dim):
            raise Unreadable("rope_theta and rotary_dim are out of all bounds")
        rotary = Rotary(
            dim=dim if rotary_dim is None else rotary_dim,
            theta=base,
            interleaved=None if interleaved is None else bool(interleaved),
        )
    return Heads(query=query, key_value=key_value, dim=dim, max_positions=bag.number("max_positions"), rotary=rotary)


def _more(bag: Bag) -> dict[str, Any]:
    """Fields that come besides the sizes."""
    found: dict[str, Any] = {}
    used, ranks, shape = bag.integers("used_heads"), bag.integers("rank_heads"), bag.integers("expanded_shape")
    gradient, parallel = bag.array("head_gradient"), bag.number("tensor_parallel")
    if used is not None:
        found["used_H"] = used.reshape(-1)
    if ranks is not None:
        if ranks.ndim != 2:
            raise Unreadable("rank_heads is [ranks, heads], filled up with -1")
        found["rank_heads"] = tuple(tuple(int(head) for head in row if head >= 0) for row in ranks)
    if shape is not None:
        if shape.shape != (4,):
            raise Unreadable("expanded_shape is batch, heads, tokens, dim")
        found["expanded_shape"] = tuple(int(size) for size in shape)
    if gradient is not None:
        if gradient.ndim != 2:
            raise Unreadable("head_gradient is [query heads, key/value heads]")
        found["gradient_HG"] = gradient
    if parallel is not None:
        found["tensor_parallel"] = parallel
    return found


FORMAT = Format(name="heads", names=("config", *SIZES, *ROTARY, *SEEN), read=read)
