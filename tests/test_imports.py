"""The arrows between packages, read from the source of every file.

Catches an import against the arrows anywhere: at the top, inside a function, or for types only.
"""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "octopus"
FILES = sorted(PACKAGE.rglob("*.py"))

# What each package may import besides itself.
ARROWS: dict[str, set[str]] = {
    "core": set(),
    "attention": {"core"},
    "models": {"core", "attention"},
    "retrieval": set(),
    "rollout": {"core", "models", "retrieval"},
    "train": {"core", "attention", "models", "retrieval", "rollout"},
    "verify": {"core", "attention", "models", "retrieval", "rollout", "train"},
    "": {"core", "attention", "models", "retrieval", "rollout", "train", "verify"},  # octopus/*.py
}
HEAVY = {"torch", "numpy", "transformers", "triton", "networkx", "safetensors"}


def imported_modules(source: str) -> set[str]:
    """Return the dotted names of all modules a source imports, wherever the statement stands.

    `from a import b` may import the module `a.b`, so both names are returned.
    """
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the arrows"
            found |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def package_of(dotted: str) -> str:
    """Return `core` for `octopus.core.graph` and the empty string for `octopus` and `octopus.cli`."""
    parts = dotted.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ARROWS else ""


def violations(name: str, source: str) -> list[str]:
    """Return the forbidden imports of the file `name` (relative to the package folder)."""
    own = name.split("/")[0] if "/" in name else ""
    modules = imported_modules(source)
    ours = {package_of(module) for module in modules if module.split(".")[0] == "octopus"}
    # `octopus` itself reaches everything, so only the top level may name it without a sub-package.
    ours -= {"" for module in modules if package_of(module)}
    bad = [f"{name} imports {package or 'octopus'}" for package in sorted(ours - ARROWS[own] - {own})]
    if name == "verify/oracle.py" and ours:
        bad.append(f"{name} imports ours: {sorted(ours)}")
    heavy = {module.split(".")[0] for module in modules} & HEAVY
    if own == "core" and heavy - ({"torch"} if name.startswith("core/storage/") else set()):
        bad.append(f"{name} imports {sorted(heavy)}")
    return bad


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_arrows_hold(path: Path) -> None:
    assert violations(path.relative_to(PACKAGE).as_posix(), path.read_text()) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("core/graph.py", "import octopus.attention.plan"),
        ("core/graph.py", "import numpy"),
        ("core/graph.py", "def f():\n    import torch"),
        ("attention/plan.py", "from octopus.models import backbone"),
        ("retrieval/corpus.py", "from octopus.core.graph import Graph"),
        ("train/step.py", "if TYPE_CHECKING:\n    from octopus.verify.oracle import Oracle"),
        ("train/step.py", "def f():\n    from octopus import verify"),
        ("verify/oracle.py", "from octopus.core.graph import Graph"),
        ("rollout/engine.py", "from octopus.train.step import packed_step"),
        ("core/graph.py", "import octopus"),
    ],
)
def test_the_test_sees_a_forbidden_import(name: str, source: str) -> None:
    assert violations(name, source)


def test_allowed_imports_pass() -> None:
    assert violations("core/storage/kv.py", "import torch") == []
    assert violations("train/step.py", "from octopus.models.backbone import Backbone") == []
    assert violations("cli.py", "def f():\n    from octopus.train import trainer") == []
