"""Every kernel compiles for Hopper, in the shapes of its table: no GPU is needed for that.

Catches what the interpreter cannot see: a type that only the compiler minds, more shared memory than a multiprocessor
has, a product that missed the tensor cores.
"""

from __future__ import annotations

from typing import Any

import pytest
from triton import compiler
from triton.backends.compiler import GPUTarget

from octopus.attention.dag import packed_kernels, paged_kernels
from octopus.attention.dag.packed import Blocks, kernel_table
from octopus.attention.dag.paged import PARTS, tile_shape

HOPPER = GPUTarget("cuda", 90, 32)
SHARED_BYTES = 227 * 1024
INTEGERS = ("tiles_N4", "spans_S7", "owners_E4", "items_I5", "slots_N", "slots_K", "parts_P", "part_starts_T")
INTEGERS += ("reader_view_R", "reader_stop_R")
FLOATS = ("lse_HT", "dots_HT", "dq_HTD", "dk_NGMD", "dv_NGMD", "slots_NGMD", "sum_GLD", "out_PHD", "lse_PH")


def compiled(kernel: Any, constants: dict[str, int], *, warps: int = 4, stages: int = 2) -> Any:
    """The kernel for bfloat16 inputs, all strides multiples of 16."""

    def type_of(name: str) -> str:
        if name in constants:
            return "constexpr"
        if name in INTEGERS or name in FLOATS:
            return "*i64" if name in INTEGERS else "*fp32"
        if name.rsplit("_", 1)[-1].isupper():
            return "*bf16"
        return "fp32" if name == "scale" else "i32"

    source = compiler.ASTSource(
        fn=kernel,
        signature={name: type_of(name) for name in kernel.arg_names},
        constexprs={(kernel.arg_names.index(name),): value for name, value in constants.items()},
        attrs={
            (place,): [["tt.divisibility", 16]]
            for place, name in enumerate(kernel.arg_names)
            if type_of(name) not in ("constexpr", "fp32")
        },
    )
    return compiler.compile(source, target=HOPPER, options={"num_warps": warps, "num_stages": stages})


def slow(value: int) -> Any:
    """A value for `make full`."""
    return pytest.param(value, marks=pytest.mark.slow)


def run_as(blocks: Blocks) -> dict[str, int]:
    return {"warps": blocks.warps, "stages": blocks.stages}


@pytest.mark.parametrize("dim", [128, slow(64), slow(256)])
def test_packed_kernels_compile(dim: int) -> None:
    table, shape = kernel_table(dim), {"SHARE": 4, "DIM": dim}
    for kernel, blocks, queries_own in (
        (packed_kernels.attend_spans, table.forward, True),
        (packed_kernels.query_gradients, table.queries, True),
        (packed_kernels.key_gradients, table.keys, False),
        (packed_kernels.value_gradients, table.values, False),
    ):
        rows, keys = (table.own, blocks.other) if queries_own else (blocks.other, table.own)
        made = compiled(kernel, shape | {"BLOCK_M": rows, "BLOCK_N": keys}, **run_as(blocks))
        assert made.metadata.shared <= SHARED_BYTES, kernel
        assert "wgmma.mma_async" in made.asm["ptx"], kernel
    compiled(packed_kernels.row_dots, {"DIM": dim, "BLOCK": 16})
    compiled(packed_kernels.sum_slots, {"DIM": dim, "BLOCK": table.own, "ROWS": 16})


@pytest.mark.parametrize("dim", [256, slow(64), slow(128)])
def test_paged_kernels_compile(dim: int) -> None:
    shape = tile_shape(dim)
    constants = {"SHARE": 4, "DIM": dim, "WIDTH": dim}
    sizes = {name: getattr(shape, name.lower()) for name in ("FEW_M", "FEW_N", "MANY_M", "MANY_N")}
    made = compiled(paged_kernels.attend_tiles, constants | sizes, warps=shape.warps, stages=shape.stages)
    assert made.metadata.shared <= SHARED_BYTES, shape
    assert "wgmma.mma_async" in made.asm["ptx"], shape
    compiled(paged_kernels.join_parts, {"DIM": dim, "WIDTH": dim, "BLOCK_P": PARTS})
