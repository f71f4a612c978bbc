"""House style that a linter does not know: sizes, forbidden constructs, docstrings of tests.

Catches a file or function that outgrew its screen, an error swallowed by a broad except, steering by environment
variables, and paths of one machine.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "octopus").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 60
BROAD = {"Exception", "BaseException"}
MACHINE_PATH = re.compile(r"""["'\s(]/(work|tmp|home|root|opt|mnt)/""")


def findings(source: str) -> Iterator[str]:
    """Yield what a source file does that the house style forbids."""
    if source.count("\n") > MAX_FILE_LINES:
        yield f"more than {MAX_FILE_LINES} lines"
    if MACHINE_PATH.search(source):
        yield "names a path of one machine"
    tree = ast.parse(source)
    if ast.get_docstring(tree) is None:
        yield "no module docstring"
    for node in ast.walk(tree):
        yield from node_findings(node)


def node_findings(node: ast.AST) -> Iterator[str]:
    """Yield what one syntax node does that the house style forbids."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > MAX_FUNCTION_LINES:
            yield f"{node.name} has {lines} lines"
    if isinstance(node, ast.ExceptHandler):
        caught = {part.id for part in ast.walk(node.type) if isinstance(part, ast.Name)} if node.type else BROAD
        if caught & BROAD:
            yield f"line {node.lineno}: broad except"
    if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}:
        yield f"line {node.lineno}: environment variable"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_source_is_tidy(path: Path) -> None:
    assert list(findings(path.read_text())) == []


def test_no_two_files_of_tests_have_one_name() -> None:
    """Catches: a name taken twice, of which pytest collects one file and refuses the other."""
    names = [path.name for path in TESTS if path.name != "__init__.py"]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_tests_say_what_they_are(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize(
    "source",
    [
        '"""Doc."""\n' + "x = 1\n" * 300,
        '"""Doc."""\ndef f():\n' + "    x = 1\n" * 60,
        '"""Doc."""\ntry:\n    x = 1\nexcept:\n    x = 2\n',
        '"""Doc."""\ntry:\n    x = 1\nexcept (KeyError, Exception):\n    x = 2\n',
        '"""Doc."""\nimport os\nx = os.environ["X"]\n',
        '"""Doc."""\nx = "' + "/home" + '/someone/model"\n',
        "x = 1\n",
    ],
)
def test_the_test_sees_a_fault(source: str) -> None:
    assert list(findings(source))
