"""Descriptors by which kernels load boxes of rows: no address takes a register.

Letters: G heads, N rows, D head dimension.
"""

from __future__ import annotations

import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor


def loadable(rows_GND: Tensor) -> bool:
    """Whether descriptors can load it: rows lie in one piece, at places of their own that are multiples of 16 bytes."""
    steps = [stride * rows_GND.element_size() for stride in rows_GND.stride()[:2]]
    apart = all(step or size == 1 for step, size in zip(steps, rows_GND.shape, strict=False))
    return rows_GND.stride(2) == 1 and apart and not any(at % 16 for at in (rows_GND.data_ptr(), *steps))


def boxes(rows_GND: Tensor, rows: int) -> TensorDescriptor:
    """For loading so many rows of a head at once. Dimensions beyond a head's are read as 0.

    Raises:
        ValueError: It is not loadable.
    """
    if not loadable(rows_GND):
        came = f"{list(rows_GND.shape)} of {rows_GND.dtype} with strides {rows_GND.stride()}"
        raise ValueError(
            f"expected rows in one piece each that begin at multiples of 16 bytes, came {came}; copy it, or use "
            "another backend"
        )
    return TensorDescriptor.from_tensor(rows_GND, [1, rows, triton.next_power_of_2(rows_GND.shape[2])])
