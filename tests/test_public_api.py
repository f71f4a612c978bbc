"""The public surface is pinned, and importing it is cheap.

Catches a renamed or dropped public name, and a heavy import that crept into `import octopus`.
"""

import subprocess
import sys

import octopus

NAMES = {
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
}
FRESH_IMPORT = """
import sys, time
start = time.perf_counter()
import octopus
seconds = time.perf_counter() - start
heavy = {"torch", "triton", "transformers", "networkx", "numpy"} & set(sys.modules)
print(seconds, *sorted(heavy))
"""


def test_names_are_pinned() -> None:
    assert set(octopus.__all__) == NAMES
    assert set(dir(octopus)) == NAMES


def test_every_name_resolves() -> None:
    for name in NAMES:
        assert getattr(octopus, name) is not None


def test_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(octopus, "Octopod")


def test_import_is_light_and_fast() -> None:
    best_seconds = float("inf")
    for _ in range(5):
        run = subprocess.run([sys.executable, "-c", FRESH_IMPORT], capture_output=True, text=True, check=True)
        seconds, *heavy = run.stdout.split()
        assert heavy == []
        best_seconds = min(best_seconds, float(seconds))
    assert best_seconds < 0.3
