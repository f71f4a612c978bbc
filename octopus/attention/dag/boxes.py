"""Descriptors by which kernels load boxes of rows: no address takes a register.

Letters: G heads, N rows, D head dimension.
"""

from __future__ import annotations

import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor


def boxes(rows_GND: Tensor, rows: int) -> TensorDescriptor:
    """For loading so many rows of a head at once. Dimensions beyond a head's are read as 0.

    Raises:
        ValueError: Rows do not begin at multiples of 16 bytes, from where alone they can be loaded.
    """
    dim, size = rows_GND.shape[-1], rows_GND.element_size()
    if any(at % 16 for at in (rows_GND.data_ptr(), *(stride * size for stride in rows_GND.stride()[:2]))):
        raise ValueError(
            f"expected a head dimension that fills a multiple of 16 bytes, got {dim} of {rows_GND.dtype}; "
            "use the torch backend"
        )
    return TensorDescriptor.from_tensor(rows_GND, [1, rows, triton.next_power_of_2(dim)])
