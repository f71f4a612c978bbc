"""Nothing in the package reads a format that runs code, whoever wrote the file.

Catches: a pickle in any of its shapes (its own modules, a library's wrapper, a flag that lets one in, a collective that
sends one, weights that are none of safetensors), an unsafe YAML loader, a text that is evaluated, a model whose own
code is trusted.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = [path for folder in ("octopus", "scripts", "fuzz") for path in sorted((ROOT / folder).rglob("*.py"))]

MODULES = {
    "pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "dbm", "jsonpickle", "yaml",
    "ruamel", "pandas",
}  # fmt: skip
CALLS = {"eval", "exec", "compile", "__import__", "execfile"}
METHODS = {
    "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list", "send_object_list",
    "recv_object_list", "read_pickle", "unsafe_load", "full_load",
}  # fmt: skip
"""Of `torch.distributed`, pandas and yaml."""
FLAGS = {"allow_pickle", "trust_remote_code", "shell"}
"""Arguments that may only ever be False."""


def findings(source: str) -> Iterator[str]:
    """What a source does that could run a file's code."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        yield from imports(node)
        if isinstance(node, ast.Call):
            yield from call(node)
        # The one thing that is wanted of pickle's module: the error that torch's refusal comes as.
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pickle" and node.attr != "UnpicklingError":
            yield f"pickle.{node.attr}"


def imports(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            root = alias.name.split(".")[0]
            if root in MODULES and not (root == "pickle" and alias.asname is None):
                yield f"import {alias.name}"
    if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in MODULES:
        yield f"from {node.module} import"


def call(node: ast.Call) -> Iterator[str]:
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    name = ast.unparse(node.func)
    if name in CALLS or name.rpartition(".")[2] in METHODS:
        yield name
    if name == "torch.load" and not _is(given.get("weights_only"), True):
        yield "torch.load without weights_only"
    if name in ("numpy.load", "np.load"):
        yield name
    for flag in FLAGS & given.keys():
        if not _is(given[flag], False):
            yield f"{flag}={ast.unparse(given[flag])}"
    owner = name.removesuffix(".from_pretrained")
    if owner != name and owner.startswith("Auto") and not _is(given.get("trust_remote_code"), False):
        yield f"{name} without trust_remote_code=False, which would ask"
    # Weights in another format than safetensors would be a pickle.
    if name.endswith("ForCausalLM.from_pretrained") and not _is(given.get("use_safetensors"), True):
        yield f"{name} without use_safetensors"


def _is(node: ast.expr | None, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_runs_what_it_reads(path: Path) -> None:
    assert list(findings(path.read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle as p",
        "import pickle\npickle.loads(b'')",
        "import pickle\nreader = pickle.Unpickler",
        "from pickle import loads",
        "def f():\n    import joblib",
        "import torch\ntorch.load('x')",
        "import torch\ntorch.load('x', weights_only=False)",
        "import torch\nsafe = True\ntorch.load('x', weights_only=safe)",
        "import numpy as np\nnp.load('x')",
        "index.load('x', allow_pickle=True)",
        "import torch.distributed as dist\ndist.all_gather_object([], 1)",
        "eval('1')",
        "from yaml import load",
        "AutoConfig.from_pretrained('x', trust_remote_code=True)",
        "AutoTokenizer.from_pretrained('x')",
        "AutoModelForCausalLM.from_pretrained('x', trust_remote_code=False)",
        "subprocess.run('x', shell=True)",
    ],
)
def test_the_test_sees_it(source: str) -> None:
    assert list(findings(source))


@pytest.mark.parametrize("source", ["model.eval()", "re.compile('x')", "torch.load(f, weights_only=True)"])
def test_and_nothing_else(source: str) -> None:
    assert not list(findings(source))
