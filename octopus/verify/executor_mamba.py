"""Mamba-2, one token at a time: as its paper writes it, one head's state a matrix of values by state entries.

Letters: H heads, G groups, M heads of a group, V head dimension, K state size, C channels, W kernel size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from octopus.verify.executor_parts import Projection, norm_epsilon, unit_mean_square


class Mamba:
    """One step from the state and the convolution columns of the path predecessor."""

    def __init__(self, module: Any, config: Any) -> None:
        self.module, self.epsilon = module, norm_epsilon(config)
        self.heads, self.groups, self.limits = module.num_heads, module.n_groups, module.time_step_limit
        self.project, self.out = Projection.of(module.in_proj), Projection.of(module.out_proj)
        channels, _, width = module.conv1d.weight.shape
        self.inner = len(module.norm.weight)
        self.norm_size = getattr(module.norm, "group_size", self.inner)
        self.sizes = (self.inner, channels, self.heads)
        state_size = (channels - self.inner) // (2 * self.groups)
        zeros = module.A_log.new_zeros
        self.empty = [zeros(channels)] * (width - 1), zeros(self.heads, self.inner // self.heads, state_size)
        self.left: list[tuple[list[Tensor], Tensor]] = []

    def step(self, x: Tensor, predecessor: int | None) -> Tensor:
        """The layer's output for the next token, which leaves columns and a state to its successors."""
        columns, state_HVK = self.empty if predecessor is None else self.left[predecessor]
        gate, column, pace = self.project(x)[0].split(self.sizes)
        columns = [*columns, column]
        kernel_CW = self.module.conv1d.weight.squeeze(1)
        mixed = (torch.stack(columns, dim=1) * kernel_CW).sum(dim=1)
        mixed = silu(mixed if self.module.conv1d.bias is None else mixed + self.module.conv1d.bias)
        x_HV = mixed[: self.inner].view(self.heads, -1)
        b_2GMK = mixed[self.inner :].view(2, self.groups, 1, -1).expand(-1, -1, self.heads // self.groups, -1)
        b_HK, c_HK = b_2GMK.flatten(1, 2).unbind()

        dt_H = softplus(pace + self.module.dt_bias).clamp(*self.limits)
        kept_H = (-dt_H * self.module.A_log.exp()).exp()
        state_HVK = kept_H[:, None, None] * state_HVK + torch.einsum("h,hv,hk->hvk", dt_H, x_HV, b_HK)
        self.left.append((columns[1:], state_HVK))
        y_HV = torch.einsum("hvk,hk->hv", state_HVK, c_HK) + self.module.D[:, None] * x_HV

        grouped = (y_HV.flatten() * silu(gate)).view(-1, self.norm_size)
        return self.out(unit_mean_square(grouped, self.epsilon).flatten() * self.module.norm.weight)[0]
