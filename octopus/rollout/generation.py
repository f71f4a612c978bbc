"""What one call of `generate` produced for one thread."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Generation:
    """Sampled tokens, as they were sampled.

    Attributes:
        text: The decoded tokens, special tokens left out.
        tokens: Token ids, the stop token included if one ended it.
        log_probabilities: Natural log-probability of each token under the model at temperature 1.
        stopped: Whether a stop token ended it, and not the token limit.
    """

    text: str
    tokens: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    stopped: bool
