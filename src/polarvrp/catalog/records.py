"""What records have in common: functions named by dotted paths, found when they are used."""

import importlib
from typing import Any


def resolve(path: str) -> Any:
    """The object that a record names.

    Args:
        path: ``package.module:attribute``.
    """
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)
