"""Our own Hypothesis profiles.

Hypothesis loads a profile named `ci` by itself where CI=true, which would make every run the same; the names here are
ones it does not know, and a profile is always named by who runs it.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, settings
from hypothesis.database import DirectoryBasedExampleDatabase


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """How much one run of the state machine does."""

    name: str
    examples: int
    steps: int
    repeats_itself: bool

    def settings(self) -> settings:
        """As Hypothesis wants it. Without `repeats_itself`, examples are drawn by the seed of the run."""
        return settings(
            max_examples=self.examples,
            stateful_step_count=self.steps,
            derandomize=self.repeats_itself,
            database=None if self.repeats_itself else DirectoryBasedExampleDatabase(".hypothesis/examples"),
            deadline=None,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow],
            phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink],
        )


SMOKE = Profile(name="octopus-smoke", examples=60, steps=50, repeats_itself=True)
EXPLORE = Profile(name="octopus-explore", examples=300, steps=60, repeats_itself=False)
