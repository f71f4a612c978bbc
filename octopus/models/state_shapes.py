"""How large a recurrent layer's state and convolution columns are, from each family's own names for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Sizes = Mapping[str, int]
"""Fields of `KVShape` that describe one recurrent layer."""

StateShape = Callable[[Any], Sizes]
"""From a text configuration."""


def delta_state(config: Any) -> Sizes:
    """Gated DeltaNet: the convolution runs over queries, keys and values."""
    keys = config.linear_num_key_heads * config.linear_key_head_dim
    values = config.linear_num_value_heads * config.linear_value_head_dim
    return {
        "conv_columns": config.linear_conv_kernel_dim - 1,
        "conv_channels": 2 * keys + values,
        "value_heads": config.linear_num_value_heads,
        "key_dim": config.linear_key_head_dim,
        "value_dim": config.linear_value_head_dim,
    }


def granite_state(config: Any) -> Sizes:
    """Mamba-2 as Granite names it."""
    return _mamba_state(
        heads=config.mamba_n_heads, head_dim=config.mamba_d_head, state_size=config.mamba_d_state,
        groups=config.mamba_n_groups, kernel_size=config.mamba_d_conv,
    )  # fmt: skip


def nemotron_state(config: Any) -> Sizes:
    """Mamba-2 as Nemotron-H names it."""
    return _mamba_state(
        heads=config.mamba_num_heads, head_dim=config.mamba_head_dim, state_size=config.ssm_state_size,
        groups=config.n_groups, kernel_size=config.conv_kernel,
    )  # fmt: skip


def _mamba_state(*, heads: int, head_dim: int, state_size: int, groups: int, kernel_size: int) -> Sizes:
    """The convolution runs over values, keys and queries; groups of heads share the last two."""
    return {
        "conv_columns": kernel_size - 1,
        "conv_channels": heads * head_dim + 2 * groups * state_size,
        "value_heads": heads,
        "key_dim": state_size,
        "value_dim": head_dim,
    }
