"""The order of the package's rooms, which imports only go down; what stays light; where tolerances stand; how large
modules and functions are.

Imports inside functions count too.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "polarvrp"
LAYERS = (
    ("errors", "tolerances", "seeds", "files", "outputs", "progress", "machine", "workers"),
    ("problem",),
    ("catalog",),
    ("config",),
    ("study",),
    ("environment", "model", "solutions"),
    ("solvers",),
    ("decoding", "local_search", "references"),
    ("training", "evaluation"),
    ("analysis", "library"),
    ("tables",),
    ("release",),
    ("api", "cli"),
)
LAYER = {room: height for height, rooms in enumerate(LAYERS) for room in rooms}
BESIDE = {("files", "errors"), ("outputs", "errors"), ("outputs", "files")}
"""Imports between rooms of one layer, in the one direction that the code needs."""

FACE = {"", "__main__"}
"""The package itself, whose names are loaded when they are used, and its entry point."""

KERNEL = "a kernel is one program: what it holds in registers cannot be handed on"
LONG_FUNCTIONS = {
    "decoding.fused.kernels.rollout.decide": KERNEL,
    "decoding.fused.kernels.rollout.rollout": KERNEL,
    "decoding.fused.kernels.scoring.glimpse_backward": KERNEL,
    "decoding.fused.kernels.scoring.pointer_backward": KERNEL,
    "decoding.fused.rollout.fused_rollout": "one launch, one line for each argument of its kernel",
    "model.kernels.short_attention.attention_backward": KERNEL,
}


class Import(NamedTuple):
    """An import of one module of the package by another, wherever it stands."""

    importer: str
    imported: str
    line: int


def module_name(path: Path) -> str:
    """Dotted name below the package; the package itself has none."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").removesuffix(".")


TREES = {module_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def imported_names(node: ast.AST) -> Iterator[str]:
    """Modules that a statement imports; a name taken from a package counts as a module where it is one."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        for alias in node.names:
            submodule = f"{node.module}.{alias.name}"
            yield submodule if submodule.removeprefix("polarvrp.") in TREES else str(node.module)


def imports_within_the_package() -> Iterator[Import]:
    for importer, tree in TREES.items():
        for node in ast.walk(tree):
            for name in imported_names(node):
                if name.partition(".")[0] == "polarvrp":
                    yield Import(importer, name.removeprefix("polarvrp").removeprefix("."), getattr(node, "lineno", 0))


def goes_down(edge: Import) -> bool:
    importer, imported = (name.partition(".")[0] for name in edge[:2])
    if importer in FACE or imported in ("", importer):
        return True
    return LAYER[imported] < LAYER[importer] or (importer, imported) in BESIDE


def test_every_room_has_a_layer() -> None:
    assert {name.partition(".")[0] for name in TREES} - FACE <= set(LAYER)


def test_contributing_lists_the_layers() -> None:
    page = (PACKAGE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page.partition("\n## Where things are\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| ", table, re.M)
    assert tuple(tuple(re.findall(r"\w+", row)) for row in rows) == LAYERS


def test_imports_go_down() -> None:
    assert [edge for edge in imports_within_the_package() if not goes_down(edge)] == []


def test_no_import_between_neighbours_is_listed_in_vain() -> None:
    rooms = {tuple(name.partition(".")[0] for name in edge[:2]) for edge in imports_within_the_package()}
    assert rooms >= BESIDE


def test_the_package_gives_its_rooms_nothing_but_its_version() -> None:
    taken = [
        (importer, alias.name)
        for importer, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "polarvrp"
        for alias in node.names
        if alias.name not in TREES and alias.name != "__version__"
    ]
    assert taken == []


@pytest.mark.parametrize("code", ["import polarvrp", "from polarvrp.cli.main import main; main(['--help'])"])
def test_neither_the_package_nor_its_help_loads_anything_heavy(code: str) -> None:
    heavy = "{'torch', 'pandas', 'pyarrow', 'ortools', 'pyvrp', 'wandb', 'matplotlib'}"
    code = f"import atexit, sys; atexit.register(lambda: print(sorted({heavy} & set(sys.modules))));" + code
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_tolerances_stand_in_their_module_alone() -> None:
    named = {
        module: re.findall(r"^\w*(?:TOLERANCE|EXCESS)\w* = ", ast.unparse(tree), re.M) for module, tree in TREES.items()
    }
    assert [module for module, names in named.items() if names] == ["tolerances"]


def test_modules_have_at_most_400_lines() -> None:
    """Triton kernels may have more."""
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in PACKAGE.rglob("*.py")}
    assert [path for path, count in lines.items() if count > 400 and path.parent.name != "kernels"] == []


def functions_of_code_lines(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Functions with their lines, docstrings not counted."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            documented = ast.get_docstring(node) is not None
            docstring = int(first.end_lineno or 0) - first.lineno + 1 if documented else 0
            yield node.name, int(node.end_lineno or 0) - node.lineno + 1 - docstring


def test_functions_have_at_most_50_lines_of_code() -> None:
    long = {
        f"{module}.{name}"
        for module, tree in TREES.items()
        for name, count in functions_of_code_lines(tree)
        if count > 50
    }
    assert long == set(LONG_FUNCTIONS)
