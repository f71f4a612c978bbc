"""Weights of which every rank holds a share, through FSDP2 (`fully_shard`).

Between steps a rank holds its share of the weights, of the gradient and of the optimizer's state. Rollouts and passes
run on whole weights: `whole` gathers them once for all passes of a step, and no pass holds a collective, so that a pass
that dies on one rank leaves no other rank waiting inside its own. `reduce_gradients` then brings the gradients of all
ranks together, once a step. What this costs is the memory of whole weights and whole gradients during a step; rollouts
need whole weights on each rank anyway. What it saves is an all-gather for each layer and pass.

A model that is not sharded is one without such modules: for it nothing here does anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn import Module
from transformers import PreTrainedModel

from octopus.train.parallel.ranks import Ranks


def shard(model: PreTrainedModel, ranks: Ranks, *, compute_dtype: torch.dtype | None = None) -> None:
    """Shards a model that a `Backbone` has taken over, in place: each layer by itself, and the rest together.

    Tied embeddings stay one weight. Make the optimizer afterwards. Nothing is done in a process alone.

    Args:
        model: On its device, with the same weights on every rank.
        ranks: Those that share it.
        compute_dtype: Of passes and rollouts; gradients are then added up over ranks in the weights' own dtype. None
            keeps the weights' dtype.
    """
    if not ranks.grouped:
        return
    mesh = init_device_mesh(ranks.device.type, (ranks.size,))
    policy = MixedPrecisionPolicy(
        param_dtype=compute_dtype,
        reduce_dtype=None if compute_dtype is None else model.dtype,
        cast_forward_inputs=False,  # It would copy our context, which is a dataclass, for every layer, and cast in it.
    )
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    for module in _sharded(model):
        module.set_reshard_after_forward(False, recurse=False)
        # Sums, not means: what a loss term weighs is made from the counts of all ranks.
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)
    _keep_gradients(model, here=True)


@contextmanager
def whole(model: Module) -> Iterator[None]:
    """Within it every rank holds all weights, as plain parameters. A collective at the beginning. Not to be nested."""
    for module in _sharded(model):
        module.unshard()
    try:
        yield
    finally:
        for module in _sharded(model):
            module.reshard()


def reduce_gradients(model: Module, empty_pass: Callable[[], Any]) -> None:
    """Adds up the gradients that all ranks have gathered in their passes; each is left with its share of the sum.

    FSDP does that in a backward pass, so one is run that adds nothing, on every rank: also on one that was idle, or
    whose last pass died.

    Args:
        model: The model.
        empty_pass: Forward and backward that reach every weight and leave all gradients as they are.
    """
    if not _sharded(model):
        return
    _keep_gradients(model, here=False)
    empty_pass()
    _keep_gradients(model, here=True)


def abandon_pass(model: Module) -> None:
    """Ends a forward or backward that an error cut short. Its gradients must not be used.

    After an error autograd does not call what FSDP has queued for the end of the backward pass, and FSDP would wait for
    it for ever; so it is called here.
    """
    if isinstance(model, FSDPModule):
        model._get_fsdp_state()._root_post_backward_final_callback()


def _keep_gradients(model: Module, *, here: bool) -> None:
    for module in _sharded(model):
        module.set_requires_gradient_sync(not here, recurse=False)
        module.set_reshard_after_backward(not here, recurse=False)


def _sharded(model: Module) -> list[FSDPModule]:
    return [module for module in model.modules() if isinstance(module, FSDPModule)]
