"""A language model that runs on plans.

Letters: T rows, N chosen rows, C hidden channels, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from octopus.attention.backends import default_backend, refuse_paged_backend
from octopus.attention.plan import Plan
from octopus.attention.step_plan import StepPlan, lower_step
from octopus.core.errors import UnsupportedModel
from octopus.core.reservation import StateMove
from octopus.core.schedule import Stretch
from octopus.core.storage.kv import KVStorage
from octopus.models.binding import bind
from octopus.models.context import Context
from octopus.models.families import family_of, kv_shape, storage_ranks
from octopus.models.layers.choosing import default_layers, layers_named
from octopus.models.packed import PackedContext
from octopus.models.paged import PagedContext
from octopus.models.rotary import rotaries_of


class Backbone:
    """One causal language model of a listed family, run over packs and over a paged store.

    Takes the model as it is (dtype, device, weights) and binds our forwards on its modules, in place; from then on the
    model cannot be called but through here. Move or cast it before, wrap it (sharding) after.

    Args:
        model: As `load_model` gives it.
        paged_backend: What computes attention over stored keys, of `PAGED_BACKENDS`.
        layers: What computes norms, gated units and a pack's recurrences, of `LAYERS`; if none is named,
            `default_layers` names it.

    Attributes:
        model: The model.
        paged_backend, layers: As given; of the layers the name that is used.
        kv_shape: What a store for it must hold.
        rotaries: Rotary embedding of each layer; of no meaning for a recurrent one.

    Raises:
        UnsupportedModel: its family, its rotary embedding or a setting of it is not one that we run exactly.
        BackendUnavailable: the backend or the layers do not run where the model is.
    """

    def __init__(
        self, model: PreTrainedModel, *, paged_backend: str = "torch", layers: str | None = None
    ) -> None:
        family = family_of(model.config)
        if type(model).__name__ != family.model_class:
            raise UnsupportedModel(
                f"{type(model).__name__} is not supported; {family.name} is run as {family.model_class}, "
                "which AutoModelForCausalLM loads"
            )
        refuse_paged_backend(paged_backend, model.device)
        self.model = model
        self.paged_backend = paged_backend
        self.kv_shape = kv_shape(model.config)
        self.rotaries = rotaries_of(model)
        self.layers = layers or default_layers(model.device, model.dtype)
        self._ranks = storage_ranks(model.config)
        self._logits_divisor = float(getattr(model, "logits_scaling", 1))  # Granite's.
        self._layers = layers_named(self.layers, model.device, model.dtype)
        bind(model, self._layers)

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights and hidden states."""
        return self.model.dtype

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

    def packed(self, plan: Plan, *, backend: str | None = None) -> Tensor:
        """Hidden states [T, C] of a pack, after the final norm; differentiable.

        Args:
            plan: the pack.
            backend: name of the attention backend; without one, what `default_backend` names.

        Raises:
            BackendUnavailable: no attention backend of that name.
        """
        context = PackedContext(
            plan=plan,
            rotaries=self.rotaries,
            backend=backend or default_backend(self.device, self.dtype, self.kv_shape.head_dim),
            layers=self._layers,
            kernel_size=self.kv_shape.conv_columns + 1,
            device=self.device,
        )
        return self._hidden(plan.tokens_T, plan.positions_T, context)

    @torch.inference_mode()
    def paged(self, step: StepPlan, storage: KVStorage) -> Tensor:
        """Hidden states [T, C] of a batch, after the final norm; its keys, values and states go to `storage`."""
        context = PagedContext(
            step=step, storage=storage, rotaries=self.rotaries, ranks=self._ranks, backend=self.paged_backend
        )
        return self._hidden(step.tokens_T, step.positions_T, context)

    def advance(
        self, moves: Sequence[tuple[Stretch, StateMove]], storage: KVStorage, *, page_size: int
    ) -> Tensor:
        """Computes one batch of scheduled stretches: the hidden state of each one's last token, [N, C].

        Their pages and state slots are reserved; keys, values and states go to `storage`.
        """
        step = lower_step(moves, page_size=page_size)
        return self.paged(step, storage)[[run.stop - 1 for run in step.runs]]

    def logits(self, hidden_NC: Tensor) -> Tensor:
        """Logits [N, V] of chosen hidden states. Those of `paged` are inference tensors: call this in that mode too."""
        logits_NV = self.model.lm_head(hidden_NC)
        return logits_NV if self._logits_divisor == 1 else logits_NV / self._logits_divisor

    def _hidden(self, tokens_T: np.ndarray, positions_T: np.ndarray, context: Context) -> Tensor:
        ids_1T, positions_1T = (torch.from_numpy(x)[None].to(self.device) for x in (tokens_T, positions_T))
        if not len(tokens_T):  # the library's layers cannot take zero rows
            return self.model.get_input_embeddings()(ids_1T)[0]
        hidden_1TC: Tensor = self.model(
            input_ids=ids_1T, position_ids=positions_1T, use_cache=False, octopus=context
        )
        return hidden_1TC[0]
