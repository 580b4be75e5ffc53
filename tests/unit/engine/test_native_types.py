"""engine_ext/_native.pyi has what the native module has."""

import ast
from pathlib import Path

import pytest

from engine_ext.base.native import load_native

TYPES = ast.parse((Path(__file__).resolve().parents[3] / "engine_ext" / "_native.pyi").read_text())
CLASSES = [node for node in TYPES.body if isinstance(node, ast.ClassDef)]


def typed(body: list[ast.stmt]) -> set[str]:
    """Public names that are declared."""
    declared = (ast.FunctionDef, ast.ClassDef)
    names = {node.name for node in body if isinstance(node, declared)}
    names |= {ast.unparse(node.target) for node in body if isinstance(node, ast.AnnAssign)}
    return {name for name in names if not name.startswith("_")}


def public(owner: object) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


def test_the_module_has_them() -> None:
    assert typed(TYPES.body) == public(load_native())


@pytest.mark.parametrize("declared", CLASSES, ids=lambda node: node.name)
def test_a_class_has_them(declared: ast.ClassDef) -> None:
    assert typed(declared.body) == public(getattr(load_native(), declared.name))
