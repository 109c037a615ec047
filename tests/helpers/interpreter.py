"""Triton's interpreter at the speed that tests need.

At each call of a device function it looks through all members of Triton's language for builtins that are not patched
yet, which takes a third of its time. Which members are builtins does not change, so here they are looked up once.
"""

import functools
import inspect
from typing import Any


def look_up_builtins_once() -> None:
    """Replace the look-up of all kernels that this process will interpret."""
    from triton.language.core import is_builtin
    from triton.runtime import interpreter

    @functools.cache
    def builtins_of(package: Any) -> list[str]:
        return [name for name, member in inspect.getmembers(package) if is_builtin(member)]

    def patch_builtin(package: Any, builder: Any, scope: Any) -> None:
        for name in builtins_of(package):
            member = getattr(package, name)
            if is_builtin(member):
                interpreter._patch_attr(package, name, member, builder, scope)

    interpreter._patch_builtin = patch_builtin
