"""A foreign stack on a device: the self-test's library model with FlexAttention for its attention function.

Letters: B = 1, H query heads, G key/value heads, T rows, D head dimension, R rows and C columns of blocks, V
vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch._functorch.config
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from octopus.attention.exports import dense_view
from octopus.attention.plan import Plan
from octopus.verify.executor import execute
from octopus.verify.functional.kernel import LibraryAttention, wrapped_attention
from octopus.verify.functional.stack import Stack, StackRotary
from octopus.verify.selftest.bench import Bench, Planted
from octopus.verify.selftest.episodes import Episode
from octopus.verify.selftest.fault import FOREIGN, Fault
from octopus.verify.selftest.models import tiny_llama
from octopus.verify.tolerance import Measured, Yardstick, measure, shake

BLOCK = 128
"""Rows of one of the kernel's blocks; a row is padded to whole blocks, as the kernels want it."""


def attend(q_BHTD: Tensor, k_BGTD: Tensor, v_BGTD: Tensor, seen_TT: Tensor, scale: float) -> Tensor:
    """FlexAttention under a block mask whose element mask is a table; every block is a partial one."""

    def mask_mod(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return seen_TT[query, key]

    length = q_BHTD.shape[2]
    blocks = length // BLOCK
    count_BHR = torch.full((1, 1, blocks), blocks, dtype=torch.int32, device=q_BHTD.device)
    columns_C = torch.arange(blocks, dtype=torch.int32, device=q_BHTD.device)
    indices_BHRC = columns_C.expand(1, 1, blocks, blocks).contiguous()
    block_mask = BlockMask.from_kv_blocks(
        count_BHR, indices_BHRC, BLOCK_SIZE=BLOCK, mask_mod=mask_mod, seq_lengths=(length, length)
    )
    out_BHTD: Tensor = flex_attention(
        q_BHTD, k_BGTD, v_BGTD, block_mask=block_mask, scale=scale, enable_gqa=True
    )
    return out_BHTD


def attend_densely(q_BHTD: Tensor, k_BGTD: Tensor, v_BGTD: Tensor, seen_TT: Tensor, scale: float) -> Tensor:
    """The same by its definition: FlexAttention has no backward pass on a CPU."""
    return functional.scaled_dot_product_attention(
        q_BHTD, k_BGTD, v_BGTD, attn_mask=seen_TT, scale=scale, enable_gqa=True
    )


class FlexAttention:
    """Stands where the library's attention function does.

    One compiled variant a dtype and head dimension: forward and backward together, whoever needs which.
    """

    def __init__(self, device: str) -> None:
        """Compiled on a GPU; on a CPU a dense stand-in, which only tries out the rest of this file."""
        torch._functorch.config.donated_buffer = False  # Else a backward pass could run once only.
        self._attend = (
            torch.compile(attend, dynamic=False, fullgraph=True) if device == "cuda" else attend_densely
        )

    def __call__(
        self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, **settings: Any
    ) -> tuple[Tensor, None]:
        """See `LibraryAttention`; the mask is a boolean table [1, 1, T, T]."""
        length, wanted = q.shape[2], torch.is_grad_enabled()
        padding = -length % BLOCK
        seen_TT = functional.pad(mask[0, 0], (0, padding, 0, padding))
        seen_TT[length:, 0] = True  # So that no row is blind.
        with torch.enable_grad():
            padded = [functional.pad(x, (0, 0, 0, padding)) for x in (q, k, v)]
            leaves = [x if x.requires_grad else x.detach().requires_grad_() for x in padded]
            out = (
                self._attend(*leaves, seen_TT, settings["scaling"])[:, :, :length]
                .transpose(1, 2)
                .contiguous()
            )
        return (out if wanted else out.detach()), None

    def instead_of(self, function: LibraryAttention) -> LibraryAttention:
        """For `wrapped_attention`."""
        return self


@dataclass(frozen=True, kw_only=True, eq=False)
class FlexBench(Bench):
    """The foreign stack of the self-test with FlexAttention for its attention function, on a device.

    Attributes:
        device: Where it runs.
        head_dim: Of its attention.
        attention: What stands in for the library's function.
    """

    device: str
    head_dim: int
    attention: FlexAttention

    @cached_property
    def yardstick(self) -> Yardstick:
        """Each path alone through the library's own kernels on the device; exact: token by token on the CPU."""
        return Yardstick(rerun=self._alone_on_device, exact=self._exact)

    @contextmanager
    def planted(self, fault: Fault | None, dtype: torch.dtype) -> Iterator[Planted]:
        """See `Bench.planted`. The yardstick is computed first: it is none of FlexAttention's."""
        self.yardstick.noise(dtype)
        model, _ = self._stack(dtype, self.episode.plan)
        with wrapped_attention(model, self.attention.instead_of), super().planted(fault, dtype) as planted:
            yield planted

    def _stack(self, dtype: torch.dtype, told: Plan) -> tuple[nn.Module, Stack]:
        if dtype not in self._models:
            self._models[dtype] = tiny_llama(dtype, head_dim=self.head_dim).to(self.device)
        return self._models[dtype], device_stack(self._models[dtype], told, self.device)

    def _alone_on_device(self, dtype: torch.dtype, seed: int | None) -> Measured:
        model = tiny_llama(dtype, head_dim=self.head_dim).to(self.device)
        if seed is not None:
            shake(model, seed)
        return self._measured(model, _alone(model, self.episode, self.device))

    def _exact(self) -> Measured:
        model = tiny_llama(torch.float64, head_dim=self.head_dim)
        return self._measured(model, execute(model, self.episode.tokens)[1][self.episode.rows_I.argsort()])

    def _measured(self, model: nn.Module, logits_TV: Tensor) -> Measured:
        return measure(model, logits_TV, self.loss(logits_TV))


def device_stack(model: Any, plan: Plan, device: str) -> Stack:
    """The library's model on a device, given a table of who sees whom and position ids, as tree training does."""
    seen_TT, _ = dense_view(plan)
    mask = torch.from_numpy(seen_TT)[None, None].to(device)
    positions = torch.from_numpy(plan.positions_T)[None].to(device)

    def run(tokens_T: Tensor) -> Tensor:
        ids = tokens_T[None].to(device)
        logits_TV: Tensor = model(
            input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False
        ).logits[0]
        return logits_TV

    rotary = StackRotary(
        inverse_frequencies_R=model.model.rotary_emb.inv_freq.double().cpu().numpy(),
        theta=float(model.config.rope_parameters["rope_theta"]),
        inside=False,
    )
    return Stack(
        name=FOREIGN,
        model=model,
        run=run,
        tokens_T=torch.from_numpy(plan.tokens_T),
        rotaries=(rotary,) * len(model.model.layers),
    )


def _alone(model: Any, episode: Episode, device: str) -> Tensor:
    """Every path as a row of its own; a token on several paths is taken from the first."""
    rows: dict[int, Tensor] = {}
    for leaf in sorted(set(range(len(episode.tokens))) - {token.predecessor for token in episode.tokens}):
        path: list[int] = []
        at: int | None = leaf
        while at is not None:
            path.insert(0, at)
            at = episode.tokens[at].predecessor
        ids = torch.tensor([[episode.tokens[i].value for i in path]], device=device)
        for i, logits_V in zip(path, model(input_ids=ids, use_cache=False).logits[0], strict=True):
            rows.setdefault(int(episode.rows_I[i]), logits_V)
    return torch.stack([rows[row] for row in range(len(rows))])
