"""Scripts of ``benchmarks/`` as modules of a test."""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@contextmanager
def loaded_script(name: str) -> Iterator[ModuleType]:
    """A script, importable by its name meanwhile, as processes that it starts need it."""
    specification = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    try:
        specification.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[name]
