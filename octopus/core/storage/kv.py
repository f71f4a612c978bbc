"""Keys, values and recurrent states, addressed by slot number.

Letters: S token slots, Z state slots, G key/value heads, D head dimension, W convolution columns, C convolution
channels, H value heads, Dk and Dv key and value dimension of a recurrent head, L recurrent layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True)
class KVShape:
    """What a model keeps for each token (attention layers) and for each state (recurrent layers).

    A model without recurrent layers leaves the second group at 0; its states take no memory.
    """

    attention_layers: int
    kv_heads: int
    head_dim: int

    recurrent_layers: int = 0
    conv_columns: int = 0  # kernel size - 1
    conv_channels: int = 0
    value_heads: int = 0
    key_dim: int = 0
    value_dim: int = 0

    def bytes_per_token(self, dtype: torch.dtype) -> int:
        """Bytes of one token's keys and values in all attention layers, kept in `dtype`."""
        return self.attention_layers * 2 * self.kv_heads * self.head_dim * dtype.itemsize

    def bytes_per_state(self, dtype: torch.dtype) -> int:
        """Bytes of one recurrent state of all layers: convolution columns in `dtype`, the rest in its compute dtype."""
        conv = self.conv_columns * self.conv_channels * dtype.itemsize
        recurrent = self.value_heads * self.key_dim * self.value_dim * _compute_dtype(dtype).itemsize
        return self.recurrent_layers * (conv + recurrent)


class KVStorage:
    """Keys, values and recurrent states of all layers. Who owns which slot is decided elsewhere.

    Nothing is initialised: a slot that was never written holds anything, NaN included, and must not be read. Whoever
    works on the tensors asks for them each time: those that were given back are others than those that come again.

    Attributes:
        shape: What is kept of each token and state.
        device: Where.
        keys: [attention layers, S, G, D], each rotated to its token's own position.
        values: [attention layers, S, G, D].
        conv: [recurrent layers, Z, W, C], the last W columns before the convolution, oldest first.
        recurrent: [recurrent layers, Z, H, Dk, Dv] in `promote(dtype, float32)`.
        released: Whether the memory is given back; the tensors then have no slots.
    """

    def __init__(
        self,
        shape: KVShape,
        *,
        num_slots: int,
        num_states: int,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        self.shape = shape
        self.device = torch.device(device)
        self._dtype = dtype
        self._sizes = num_slots, num_states
        self.take_back()

    @property
    def bytes(self) -> int:
        """Bytes of all four tensors, also while they are given back."""
        token, state = self.shape.bytes_per_token(self._dtype), self.shape.bytes_per_state(self._dtype)
        return self._sizes[0] * token + self._sizes[1] * state

    def release(self) -> None:
        """Gives the memory back. What it held is lost."""
        self.keys, self.values, self.conv, self.recurrent = self._tensors(0, 0)
        self.released = True

    def take_back(self) -> None:
        """Allocates the memory. An error of the allocation leaves all as it was."""
        self.keys, self.values, self.conv, self.recurrent = self._tensors(*self._sizes)
        self.released = False

    def _tensors(self, num_slots: int, num_states: int) -> tuple[torch.Tensor, ...]:
        shape, dtype = self.shape, self._dtype
        token = (shape.attention_layers, num_slots, shape.kv_heads, shape.head_dim)
        state = (shape.recurrent_layers, num_states)
        head = (shape.value_heads, shape.key_dim, shape.value_dim)
        return (
            torch.empty(token, dtype=dtype, device=self.device),
            torch.empty(token, dtype=dtype, device=self.device),
            torch.empty(*state, shape.conv_columns, shape.conv_channels, dtype=dtype, device=self.device),
            torch.empty(*state, *head, dtype=_compute_dtype(dtype), device=self.device),
        )


def _compute_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def sent(numbers: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy on the device that nobody waits for: from ordinary memory it would wait for all that the GPU has to do."""
    return (numbers.pin_memory() if device.type == "cuda" else numbers).to(device, non_blocking=True)
