"""Triton's interpreter at the speed that tests need: it computes the same, without making the same things anew.

Each operation makes types with their shapes, names and tables of numbers anew, each call of a device function patches
Triton's language once more, and each sum of integers is made twice, to look for overflows that nobody is told of
unless kernels are debugged. Together that is more than half of its time.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any


def quicken_interpreter() -> None:
    """Change the interpreter of all kernels that this process will run."""
    from triton import language
    from triton.language import core
    from triton.runtime import interpreter

    interpreter.interpreter_builder.options = replace(interpreter.interpreter_builder.options, sanitize_overflow=False)
    make_block_type, patch_language, numpy_dtype = (
        core.block_type.__init__,
        interpreter._patch_lang,
        functools.cache(interpreter._get_np_dtype),
    )

    @functools.cache
    def block_of(shape: tuple[int, ...]) -> Any:
        block = object.__new__(core.block_type)
        make_block_type(block, core.int32, list(shape))
        return block

    def initialize_block_type(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = shape.value if isinstance(shape, core.constexpr) else shape
        block = block_of(tuple(size.value if isinstance(size, core.constexpr) else size for size in sizes))
        self.element_ty, self.shape, self.numel = element_ty, block.shape, block.numel
        self.name = block.name.replace("int32", str(element_ty))

    @functools.cache
    def constants_of(shape: tuple[int, ...]) -> tuple[Any, Any]:
        return core.tuple([core.constexpr(size) for size in shape]), core.constexpr(math.prod(shape))

    def initialize_tensor(self: Any, handle: Any, type: Any) -> None:
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = constants_of(tuple(type.shape) if type.is_block() else ())

    def numpy_dtype_of(dtype: Any) -> Any:
        scalar = dtype.scalar
        return numpy_dtype(core.uint64 if scalar.is_ptr() else scalar)

    @functools.cache
    def languages_of(function: Callable[..., Any]) -> list[Any]:
        return [module for module in (language, core) if module in function.__globals__.values()]

    def patch_language_once(function: Callable[..., Any]) -> Any:
        patched = not any(core.is_builtin(module.load) for module in languages_of(function))
        return interpreter._LangPatchScope() if patched else patch_language(function)

    core.block_type.__init__ = initialize_block_type
    core.tensor.__init__ = initialize_tensor
    interpreter._get_np_dtype = numpy_dtype_of
    interpreter._patch_lang = patch_language_once
