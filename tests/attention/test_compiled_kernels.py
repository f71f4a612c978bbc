"""Every kernel compiles for Hopper, in the shapes of its table: no GPU is needed for that.

Catches what the interpreter cannot see: a type that only the compiler minds, more shared memory than a multiprocessor
has, a product that missed the tensor cores, and registers that do not suffice: then products wait for each other, and
the kernel takes half as long again while all its results stay right.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from triton import compiler, knobs
from triton.backends.compiler import GPUTarget

from octopus.attention.dag import gradient_kernels, packed_kernels, paged_kernels
from octopus.attention.dag.packed import kernel_table
from octopus.attention.dag.paged import PARTS, tile_shape

HOPPER = GPUTarget("cuda", 90, 32)
SHARED_BYTES = 227 * 1024
INTEGERS = ("tiles_N4", "spans_S7", "owners_E4", "slots_N", "slots_K", "parts_P", "part_starts_T")
SHORT_INTEGERS = ("items_I7", "item_starts_W", "blocks_B", "part_stop_P")
FLOATS = ("lse_HT", "dots_HT", "dq_HTD", "dk_NGMD", "dv_NGMD", "slots_NGMD", "sum_GLD", "lse_PH")


MOST_SPILLED_BYTES = 128  # A thread, and once a tile at most: the loops' own are in registers.


def compiled(
    kernel: Any,
    constants: dict[str, int],
    *,
    boxes: dict[str, int] | None = None,
    warps: int = 4,
    stages: int = 2,
) -> Any:
    """The kernel for bfloat16 inputs, all strides multiples of 16; `boxes` has the rows that descriptors load."""

    def type_of(name: str) -> str:
        if name in constants:
            return "constexpr"
        if boxes and name in boxes:
            return f"tensordesc<bf16[1, {boxes[name]}, {constants['DIM']}]>"
        if name in INTEGERS or name in SHORT_INTEGERS:
            return "*i64" if name in INTEGERS else "*i32"
        if name in FLOATS:
            return "*fp32"
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
            if type_of(name)[0] in "*i"
        },
    )
    return compiler.compile(source, target=HOPPER, options={"num_warps": warps, "num_stages": stages})


def check(made: Any, folder: Path) -> None:
    """Fits a multiprocessor, uses its tensor cores, and has registers enough for several products under way."""
    assert made.metadata.shared <= SHARED_BYTES
    assert "wgmma.mma_async" in made.asm["ptx"]
    (folder / "kernel.ptx").write_text(made.asm["ptx"])
    command = [knobs.nvidia.ptxas.path, "-v", "--gpu-name=sm_90a", folder / "kernel.ptx", "-o", folder / "cubin"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "serialized" not in said, said
    spilled = [int(count) for count in re.findall(r"(\d+) bytes spill", said)]
    assert spilled and max(spilled) <= MOST_SPILLED_BYTES, said


def slow(value: int) -> Any:
    """A value for `make full`."""
    return pytest.param(value, marks=pytest.mark.slow)


@pytest.mark.parametrize("dim", [128, slow(64), slow(256)])
def test_packed_kernels_compile(dim: int, tmp_path: Path) -> None:
    table = kernel_table(dim)
    for kernel, blocks in (
        (packed_kernels.attend_spans, table.forward),
        (gradient_kernels.query_gradients, table.queries),
        (gradient_kernels.key_gradients, table.keys),
        (gradient_kernels.value_gradients, table.values),
    ):
        constants = {"SHARE": 4, "DIM": dim, "OWN": table.own, "OTHER": blocks.other, "REST": blocks.rest}
        boxes = dict.fromkeys(("q_desc", "d_desc", "k_desc", "v_desc"), blocks.other)
        check(compiled(kernel, constants, boxes=boxes, warps=blocks.warps, stages=blocks.stages), tmp_path)
    compiled(gradient_kernels.row_dots, {"DIM": dim, "BLOCK": 16})
    compiled(gradient_kernels.sum_slots, {"DIM": dim, "OWN": table.own, "ROWS": 16})


@pytest.mark.parametrize("dim", [256, slow(64), slow(128)])
def test_paged_kernels_compile(dim: int, tmp_path: Path) -> None:
    shape = tile_shape(dim)
    constants = {"SHARE": 4, "DIM": dim, "WIDTH": dim, "FEW_M": shape.few_m, "MANY_M": shape.many_m}
    constants |= {"BLOCK_N": shape.block, "SINGLE_N": shape.singles}
    boxes = {"few_q_desc": shape.few_m, "many_q_desc": shape.many_m, "k_desc": shape.block, "v_desc": shape.block}
    check(
        compiled(paged_kernels.attend_tiles, constants, boxes=boxes, warps=shape.warps, stages=shape.stages), tmp_path
    )
    compiled(paged_kernels.join_parts, {"DIM": dim, "WIDTH": dim, "BLOCK_P": PARTS}, warps=1)


def test_too_few_registers_are_noticed(tmp_path: Path) -> None:
    """The test of the tests: with half the warps, a sum needs more registers of a thread than there are."""
    constants = {"SHARE": 4, "DIM": 256, "OWN": 128, "OTHER": 64, "REST": 16}
    boxes = dict.fromkeys(("k_desc", "v_desc"), 64)
    made = compiled(packed_kernels.attend_spans, constants, boxes=boxes, warps=4, stages=2)
    with pytest.raises(AssertionError, match="spill"):
        check(made, tmp_path)
