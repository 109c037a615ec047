# mypy: disable-error-code="import-untyped, untyped-decorator, no-untyped-def"
"""Matrix product and mask value of all kernels."""

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)

EXCLUDED = tl.constexpr(-1.0e9)
"""Score of what a softmax leaves out; not minus infinity, so that rows without anything stay finite."""


@triton.jit
def product(left, right):
    """``left @ right`` of bfloat16 or float32 operands, summed in float32 without rounding operands to TF32."""
    if INTERPRETED:  # the interpreter would multiply the bits of bfloat16 numbers
        left, right = left.to(tl.float32), right.to(tl.float32)
    return tl.dot(left, right, input_precision="ieee")
