"""Octopus: one language model thinks in many branches over one graph of KV states.

The names below are the public interface; every other name may move. Each is imported at its first use, so that
`import octopus` stays light: it loads neither torch nor transformers nor triton.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octopus.attention.plan import Plan, lower
    from octopus.core.cursor import Cursor
    from octopus.core.errors import CapacityExceeded, InvariantViolation, OctopusError
    from octopus.core.graph import Graph
    from octopus.core.mount import Mount
    from octopus.core.segment import Segment
    from octopus.core.thread import Snapshot
    from octopus.models.backbone import Backbone
    from octopus.rollout.engine import Engine
    from octopus.rollout.episode import Episode
    from octopus.rollout.generation import Generation
    from octopus.rollout.thread import Thread

__version__ = "0.1.0"

_HOME = {
    "Backbone": "octopus.models.backbone",
    "CapacityExceeded": "octopus.core.errors",
    "Cursor": "octopus.core.cursor",
    "Engine": "octopus.rollout.engine",
    "Episode": "octopus.rollout.episode",
    "Generation": "octopus.rollout.generation",
    "Graph": "octopus.core.graph",
    "InvariantViolation": "octopus.core.errors",
    "Mount": "octopus.core.mount",
    "OctopusError": "octopus.core.errors",
    "Plan": "octopus.attention.plan",
    "Segment": "octopus.core.segment",
    "Snapshot": "octopus.core.thread",
    "Thread": "octopus.rollout.thread",
    "lower": "octopus.attention.plan",
}

__all__ = [
    "Backbone",
    "CapacityExceeded",
    "Cursor",
    "Engine",
    "Episode",
    "Generation",
    "Graph",
    "InvariantViolation",
    "Mount",
    "OctopusError",
    "Plan",
    "Segment",
    "Snapshot",
    "Thread",
    "__version__",
    "lower",
]


def __getattr__(name: str) -> object:
    """Import a public name at its first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'octopus' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
