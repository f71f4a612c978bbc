"""The optimizer: which weights it moves, which of them decay, and how fast at each step."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import torch
from torch.distributed.tensor import DTensor
from torch.nn import Embedding, Module, Parameter

from octopus.core.errors import ConfigError
from octopus.train.config import OptimizerConfig


def trainable(model: Module) -> dict[str, Parameter]:
    """The weights that are trained, by name, tied ones once: all of a model, or those of its adapter."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def new_optimizer(model: Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """AdamW (arXiv 1711.05101) over the trainable weights of a model, at its highest learning rate.

    A group of what decays and one of what does not, each only if there is any. A group holds the names of its weights
    under `param_names`.

    Raises:
        ConfigError: The package for 8-bit moments is missing, or the model is sharded: their saves are one process's.
    """
    embeddings = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, Embedding)
        for parameter in module.parameters(recurse=False)
    }
    decaying: list[tuple[str, Parameter]] = []
    steady: list[tuple[str, Parameter]] = []
    for name, parameter in trainable(model).items():
        decays = parameter.ndim > 1 and (config.decay_embeddings or id(parameter) not in embeddings)
        (decaying if decays else steady).append((name, parameter))
    if config.moments == "8bit" and any(isinstance(one, DTensor) for one in trainable(model).values()):
        raise ConfigError('optimizer.moments = "8bit" is for one process, this model is sharded; use "full"')
    groups = ((decaying, config.weight_decay), (steady, 0.0))
    return _adamw(config)(
        [{"params": named, "weight_decay": decay} for named, decay in groups if named],
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
    )


def _adamw(config: OptimizerConfig) -> Callable[..., torch.optim.Optimizer]:
    if config.moments == "full":
        return torch.optim.AdamW
    if find_spec("torchao") is None:
        raise ConfigError('optimizer.moments = "8bit" needs the package torchao; install octopus-kv[8bit]')
    from torchao.optim import AdamW8bit

    return partial(AdamW8bit, bf16_stochastic_round=True)


def learning_rate(config: OptimizerConfig, *, step: int, steps: int) -> float:
    """The learning rate of one step. It depends on the step's number alone, so a resume has nothing to restore.

    Args:
        config: Highest rate, warm-up, and how it falls.
        step: From 1.
        steps: Number of steps in all. What is left of the rate falls to `final_share` right after the last of them.
    """
    if step <= config.warmup_steps:
        return config.learning_rate * step / config.warmup_steps
    done = min(1.0, (step - 1 - config.warmup_steps) / max(1, steps - config.warmup_steps))
    if config.schedule == "constant":
        left = 1.0
    elif config.schedule == "linear":
        left = 1.0 - done
    else:
        left = (1.0 + math.cos(math.pi * done)) / 2
    return config.learning_rate * (config.final_share + (1.0 - config.final_share) * left)


def set_learning_rate(optimizer: torch.optim.Optimizer, config: OptimizerConfig, *, step: int, steps: int) -> None:
    """Sets the learning rate of one step. See `learning_rate`."""
    rate = learning_rate(config, step=step, steps=steps)
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):  # The 8-bit optimizer is compiled around it.
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
