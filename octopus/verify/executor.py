"""An episode executed token by token in time order, with autograd kept: the yardstick for packed passes.

Everything here is written a second time, on purpose another way: each reading token rotates the *keys* it sees to
their effective positions (the packed pass rotates queries), recurrent layers take one *step* per token from the state
its path predecessor left (the packed pass scans chunks), and nothing knows of segments, slices or rows. It runs in
the dtype of the weights and reads them from an unmodified causal model of the Hugging Face library.

Letters: N visible tokens, H query heads, G key/value heads, R query heads per key/value head, L = N + R, D head dim,
K key heads, M value heads per key head, Dk/Dv their dims, C channels, P positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, silu, softplus

from octopus.verify.executor_feed import Feed, feed_of, nemotron_feed
from octopus.verify.executor_mamba import Mamba
from octopus.verify.executor_parts import (
    GEMMA,
    GRANITE,
    NEMOTRON,
    QWEN3_NEXT,
    QWEN35,
    Norm,
    Projection,
    unchanged,
    unit_mean_square,
)
from octopus.verify.oracle import OracleToken

FAMILIES = ("llama", "qwen3", QWEN35, GEMMA, QWEN3_NEXT, GRANITE, NEMOTRON)
FIXED_ROPE_TYPES = ("default", "linear", "llama3", "yarn")


def execute(model: nn.Module, tokens: Sequence[OracleToken]) -> tuple[Tensor, Tensor]:
    """Run the tokens one after another, each over what it sees.

    Args:
        model: a causal language model of a listed family; only its weights, its configuration and its tables of
            inverse rotary frequencies are used.
        tokens: in time order; `predecessor` and `visible` refer to earlier entries by index.

    Returns:
        The hidden states after the final norm [tokens, hidden] and the logits [tokens, vocabulary].

    Raises:
        ValueError: the model is of another family, or the frequencies of its rotary embedding are not fixed.
    """
    net: Any = model
    if net.config.model_type not in FAMILIES:
        raise ValueError(f"{net.config.model_type} is not one of {', '.join(FAMILIES)}")
    positions = max((p for token in tokens for _, p in token.visible), default=0) + 1
    kinds = getattr(net.config, "layer_types", None) or ["full_attention"] * len(net.model.layers)
    rotaries = {kind: _Rotary(net, kind, positions) for kind in kinds}
    layers = [_Layer(layer, net.config) for layer in net.model.layers]
    final_norm = Norm(net.model.norm_f if net.config.model_type == NEMOTRON else net.model.norm, net.config)
    table = net.get_input_embeddings()
    values = torch.tensor([token.value for token in tokens], dtype=torch.long, device=table.weight.device)
    # Where a family names a padding token, the library gives that token's row no gradient.
    embedded = embedding(values, table.weight, padding_idx=table.padding_idx)
    if net.config.model_type == GEMMA:
        embedded = embedded * table.embed_scale.to(embedded.dtype)
    if net.config.model_type == GRANITE:
        embedded = embedded * net.config.embedding_multiplier
    hidden = []
    for token, x in zip(tokens, embedded, strict=True):
        seen = {kind: rotary.seen_by(token) for kind, rotary in rotaries.items()}
        for kind, layer in zip(kinds, layers, strict=True):
            x = layer.step(x, seen[kind])
        hidden.append(final_norm(x))
    hidden_TC = torch.stack(hidden)
    logits_TV = hidden_TC @ net.lm_head.weight.T
    return hidden_TC, logits_TV / net.config.logits_scaling if net.config.model_type == GRANITE else logits_TV


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """A token's predecessor and the tokens it sees, with the rotations of their keys and of its own R queries."""

    predecessor: int | None
    ids: list[int]
    cos_LD: Tensor
    sin_LD: Tensor
    partner_D: Tensor

    def rotate(self, x_GLD: Tensor) -> Tensor:
        """The keys to where the token sees them, the queries to where it stands."""
        return x_GLD * self.cos_LD + x_GLD.index_select(-1, self.partner_D) * self.sin_LD


class _Rotary:
    """Tables of one kind of layer for every position; dims that are not rotary have cosine 1 and sine 0."""

    def __init__(self, net: Any, kind: str, positions: int) -> None:
        weight, config = net.lm_head.weight, net.config
        frequencies, factor = _frequencies(net, kind)
        dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        half = len(frequencies)
        angles = torch.arange(positions, dtype=torch.float64, device=weight.device)[:, None] * frequencies
        cos, sin, rest = angles.cos() * factor, angles.sin() * factor, angles.new_zeros(positions, dim - 2 * half)
        self.cos_PD = torch.cat([cos, cos, rest + 1], dim=1).to(weight.dtype)
        self.sin_PD = torch.cat([-sin, sin, rest], dim=1).to(weight.dtype)
        partners = [*range(half, 2 * half), *range(half), *range(2 * half, dim)]
        self.partner_D = torch.tensor(partners, device=weight.device)
        self.group = config.num_attention_heads // config.num_key_value_heads
        self.window = config.sliding_window if kind == "sliding_attention" else positions

    def seen_by(self, token: OracleToken) -> _Seen:
        near = [(i, p) for i, p in token.visible if p > token.position - self.window]
        positions = [p for _, p in near] + [token.position] * self.group
        return _Seen(
            predecessor=token.predecessor,
            ids=[i for i, _ in near],
            cos_LD=self.cos_PD[positions],
            sin_LD=self.sin_PD[positions],
            partner_D=self.partner_D,
        )


def _frequencies(net: Any, kind: str) -> tuple[Tensor, float]:
    """Of one kind of layer, and what cosines and sines are multiplied by; none without positions in attention."""
    module = getattr(net.model, "rotary_emb", None)
    if module is None:
        return net.lm_head.weight.new_zeros(0, dtype=torch.float64), 1.0
    sets = net.config.rope_parameters
    if (rope_type := sets.get(kind, sets)["rope_type"]) not in FIXED_ROPE_TYPES:
        raise ValueError(f"rope type {rope_type} is not supported")
    prefix = f"{kind}_" if kind in sets else ""
    return getattr(module, f"{prefix}inv_freq").double(), getattr(module, f"{prefix}attention_scaling")


class _Layer:
    """One decoder layer with what its tokens have left behind."""

    def __init__(self, module: Any, config: Any) -> None:
        self.residual = config.residual_multiplier if config.model_type == GRANITE else 1
        self.mixer: _Attention | _DeltaNet | Mamba | None = _mixer(module, config)
        self.feed: Feed | None = None
        self.after_mixer = self.after_feed = unchanged
        if config.model_type == NEMOTRON:
            self.before_mixer = self.before_feed = Norm(module.norm, config)
            if self.mixer is None:
                self.feed = nemotron_feed(module.mixer, config)
            return
        self.before_mixer = Norm(module.input_layernorm, config)
        self.before_feed = Norm(module.post_attention_layernorm, config)
        if config.model_type == GEMMA:
            self.after_mixer = self.before_feed
            self.before_feed = Norm(module.pre_feedforward_layernorm, config)
            self.after_feed = Norm(module.post_feedforward_layernorm, config)
        self.feed = feed_of(module, config)

    def step(self, x: Tensor, token: _Seen) -> Tensor:
        if isinstance(self.mixer, Mamba):
            x = x + self.residual * self.mixer.step(self.before_mixer(x), token.predecessor)
        elif self.mixer is not None:
            x = x + self.residual * self.after_mixer(self.mixer.step(self.before_mixer(x), token))
        if self.feed is not None:
            x = x + self.residual * self.after_feed(self.feed(self.before_feed(x)))
        return x


def _mixer(layer: Any, config: Any) -> _Attention | _DeltaNet | Mamba | None:
    """What a layer's tokens see each other through, if anything."""
    for name in ("self_attn", "linear_attn", "mamba", "mixer"):
        module = getattr(layer, name, None)
        if hasattr(module, "q_proj"):
            return _Attention(module, config)
        if hasattr(module, "A_log"):
            return Mamba(module, config) if hasattr(module, "D") else _DeltaNet(module, config)
    return None


class _Attention:
    """Attention of one token over the keys it sees, each rotated to its effective position."""

    def __init__(self, module: Any, config: Any) -> None:
        self.heads = config.num_key_value_heads
        self.query_key_value = Projection.of(module.q_proj, module.k_proj, module.v_proj)
        self.out = Projection.of(module.o_proj)
        self.gated = config.model_type in (QWEN35, QWEN3_NEXT)
        self.query_norm = self.key_norm = unchanged
        if hasattr(module, "q_norm"):
            self.query_norm, self.key_norm = Norm(module.q_norm, config), Norm(module.k_norm, config)
        self.scale = (getattr(config, "query_pre_attn_scalar", None) or module.head_dim) ** -0.5
        if config.model_type == GRANITE:
            self.scale = config.attention_multiplier
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def step(self, x: Tensor, token: _Seen) -> Tensor:
        query, key, value = self.query_key_value(x)
        key_G1D = key.view(self.heads, 1, -1)
        dim = key_G1D.shape[-1]
        if self.gated:
            query_GRD, gate_GRD = query.view(self.heads, -1, 2 * dim).chunk(2, dim=-1)
        else:
            query_GRD = query.view(self.heads, -1, dim)
        query_GRD = self.query_norm(query_GRD)
        self.keys.append(self.key_norm(key_G1D))
        self.values.append(value.view(self.heads, 1, -1))

        rotated_GLD = token.rotate(torch.cat([*(self.keys[i] for i in token.ids), query_GRD], dim=1))
        key_GND, query_GRD = rotated_GLD.split([len(token.ids), query_GRD.shape[1]], dim=1)
        value_GND = torch.cat([self.values[i] for i in token.ids], dim=1)
        scores_GRN = query_GRD @ key_GND.mT * self.scale
        out_GRD = scores_GRN.softmax(dim=-1) @ value_GND
        return self.out((out_GRD * gate_GRD.sigmoid() if self.gated else out_GRD).flatten())[0]


class _DeltaNet:
    """The gated delta rule, one step from the state and the convolution columns of the path predecessor."""

    def __init__(self, module: Any, config: Any) -> None:
        self.module, self.epsilon = module, config.rms_norm_eps
        if config.model_type == QWEN3_NEXT:
            self.inputs = _sorted_maps(module)
        else:
            self.inputs = Projection.of(module.in_proj_qkv, module.in_proj_z, module.in_proj_b, module.in_proj_a)
        self.out = Projection.of(module.out_proj)
        self.kernel_CW = module.conv1d.weight[:, 0]
        self.rate = -module.A_log.exp()
        keys, values = config.linear_num_key_heads, config.linear_num_value_heads
        shape = (keys, values // keys, config.linear_key_head_dim, config.linear_value_head_dim)
        channels, width = self.kernel_CW.shape
        self.empty = [self.rate.new_zeros(channels)] * (width - 1), self.rate.new_zeros(shape)
        self.left: list[tuple[list[Tensor], Tensor]] = []

    def step(self, x: Tensor, token: _Seen) -> Tensor:
        columns, state_KMDkDv = self.empty if token.predecessor is None else self.left[token.predecessor]
        column, gate, write, decay = self.inputs(x)
        columns = [*columns, column]
        mixed = silu((torch.stack(columns, dim=1) * self.kernel_CW).sum(dim=1))

        keys, _, key_dim, value_dim = state_KMDkDv.shape
        pair_2K11Dk = mixed[: 2 * keys * key_dim].view(2, keys, 1, 1, key_dim)
        pair_2K11Dk = pair_2K11Dk * (pair_2K11Dk.square().sum(dim=-1, keepdim=True) + 1e-6).rsqrt()
        query_K11Dk, key_K11Dk = pair_2K11Dk.unbind()
        value_KM1Dv = mixed[2 * keys * key_dim :].view(keys, -1, 1, value_dim)
        decay = (self.rate * softplus(decay + self.module.dt_bias)).exp()

        state_KMDkDv = state_KMDkDv * decay.view(keys, -1, 1, 1)
        error_KM1Dv = value_KM1Dv - key_K11Dk @ state_KMDkDv
        state_KMDkDv = state_KMDkDv + key_K11Dk.mT * (error_KM1Dv * write.sigmoid().view(keys, -1, 1, 1))
        self.left.append((columns[1:], state_KMDkDv))

        out = query_K11Dk * key_dim**-0.5 @ state_KMDkDv
        normed = unit_mean_square(out, self.epsilon) * self.module.norm.weight
        return self.out(normed.flatten() * silu(gate))[0]


def _sorted_maps(module: Any) -> Projection:
    """Qwen3-Next's, sorted: its own lie key head by key head, each with its value heads."""
    per_key = module.num_v_heads // module.num_k_heads * module.head_v_dim
    blocks = module.in_proj_qkvz.weight.view(module.num_k_heads, -1, module.hidden_size)
    q, k, v, z = blocks.split([module.head_k_dim, module.head_k_dim, per_key, per_key], dim=1)
    b, a = module.in_proj_ba.weight.view(module.num_k_heads, 2, -1, module.hidden_size).unbind(dim=1)
    q, k, v, z, b, a = (x.flatten(0, 1) for x in (q, k, v, z, b, a))
    return Projection([torch.cat([q, k, v]), z, b, a])
