"""Mutations: small changes of a source that its tests ought to notice."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
BOUNDS = {"min": "max", "max": "min"}
SPARED_CALLS = {"invariant", "NamedTuple", "TypeVar"}
"""Calls whose arguments are left alone; of `invariant`, only the message is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutation:
    """One change of a source: what is changed in which line, and its number among all changes of that source.

    `text`, `what` and `nth` name it wherever the line has moved to: it is the nth such change of a line that reads so.
    """

    line: int
    text: str
    what: str
    nth: int
    number: int


def mutations(source: str) -> list[Mutation]:
    """All mutations of a module."""
    lines = source.splitlines()
    found: list[Mutation] = []
    seen: Counter[tuple[str, str]] = Counter()
    for number, (node, what, _) in enumerate(_all_changes(ast.parse(source))):
        line = getattr(node, "lineno", 0)
        text = lines[line - 1].strip()
        seen[text, what] += 1
        found.append(Mutation(line=line, text=text, what=what, nth=seen[text, what], number=number))
    return found


def mutated(source: str, mutation: Mutation) -> str:
    """The source with this mutation, without its comments."""
    tree = ast.parse(source)
    node, _, change = list(_all_changes(tree))[mutation.number]
    changed = copy.deepcopy(tree, {id(node): change})  # A copy in which the change stands in for the node.
    return ast.unparse(ast.fix_missing_locations(changed))


def _all_changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str, ast.AST]]:
    spared = _spared(tree)
    for node in ast.walk(tree):
        if id(node) not in spared:
            for what, change in _changes(node):
                yield node, what, change


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in COMPARISONS:
            other = COMPARISONS[type(operator)]()
            yield f"{_name(operator)} -> {_name(other)}", ast.Compare(node.left, [other], node.comparators)
        case ast.BinOp(op=arithmetic) if type(arithmetic) in OPERATORS and not _is_text(node):
            swapped = OPERATORS[type(arithmetic)]()
            yield f"{_name(arithmetic)} -> {_name(swapped)}", ast.BinOp(node.left, swapped, node.right)
        case ast.BoolOp():
            joined = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield f"{_name(node.op)} -> {_name(joined)}", ast.BoolOp(joined, node.values)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield f"without {_name(node.op)}", node.operand
        case ast.Constant(value=bool(value)):
            yield f"{value} -> {not value}", ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield f"{value} -> {value + 1}", ast.Constant(value + 1)
        case ast.Call(func=ast.Name(id=name)) if name in BOUNDS:
            yield f"{name} -> {BOUNDS[name]}", ast.Call(ast.Name(BOUNDS[name], ast.Load()), node.args, node.keywords)
        case _:
            yield from _statement_changes(node)


def _statement_changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Delete() | ast.Raise():
            yield f"without `{ast.unparse(node)[:40]}`", ast.Pass()
        case ast.Assign(targets=[ast.Attribute()]) | ast.Assign(targets=[ast.Subscript()]):
            yield f"without `{ast.unparse(node)[:40]}`", ast.Pass()
        case ast.If():
            yield "if -> if not", ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
        case ast.IfExp():
            yield "the other branch", ast.IfExp(node.test, node.orelse, node.body)
        case ast.Continue():
            yield "continue -> break", ast.Break()
        case ast.Break():
            yield "break -> continue", ast.Continue()
        case ast.Return(value=ast.expr()) if not isinstance(node.value, ast.Constant):
            yield "return None", ast.Return(ast.Constant(None))


def _spared(tree: ast.AST) -> set[int]:
    """The ids of nodes that say nothing about behaviour: annotations, docstrings, slots, messages, `__repr__`."""
    spared: set[int] = set()
    for node in ast.walk(tree):
        for part in _silent_parts(node):
            spared.update(id(inner) for inner in ast.walk(part))
    return spared


def _silent_parts(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from [node.returns] if node.returns else []
        yield from node.decorator_list
        if node.name in ("__repr__", "shortage"):
            yield from node.body
    elif isinstance(node, ast.arg):
        yield from [node.annotation] if node.annotation else []
    elif isinstance(node, ast.AnnAssign):
        yield node.annotation
    elif isinstance(node, ast.ClassDef):
        yield from [*node.bases, *node.decorator_list]
    elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        yield from node.exc.args
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SPARED_CALLS:
        yield from node.args[1:] if _named(node.func, "invariant") else node.args
    elif _is_silent(node):
        yield node


def _is_silent(node: ast.AST) -> bool:
    """Whether all of it says nothing about behaviour."""
    match node:
        case ast.If():
            return _named(node.test, "TYPE_CHECKING")
        case ast.Assign():
            return _named(node.targets[0], "__slots__")
    return isinstance(node, ast.JoinedStr)


def _named(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in (node.left, node.right)
    )


def _name(operator: ast.AST) -> str:
    return type(operator).__name__
