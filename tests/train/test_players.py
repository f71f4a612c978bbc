"""Engines and players are made as the configuration says."""

import pytest
import tiny_policy

from octopus.core.errors import BackendUnavailable
from octopus.train.job_config import RolloutConfig
from octopus.train.players import new_engine


def test_the_backend_of_rollouts_is_the_engines() -> None:
    """Catches: `rollout.backend` read and dropped."""
    with pytest.raises(BackendUnavailable, match="'triton' for stored keys"):
        new_engine(tiny_policy.model(), tiny_policy.codec(), RolloutConfig(backend="triton"))
