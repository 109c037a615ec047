"""What the compiler makes of the rollout kernels, on any machine: registers, spills, shared memory.

    python benchmarks/kernels.py --num-customers 50 100

One line for each kernel, head and size, compiled for ``--capability`` (90: H100, H200) in bfloat16 or float32.
"""

import argparse
import itertools
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from polarvrp.decoding.fused import rollout as fused_rollout
from polarvrp.decoding.fused.kernels import rollout as kernels
from polarvrp.decoding.fused.kernels.memory import Scratch
from polarvrp.decoding.fused.kernels.pointer import Tables, Weights
from polarvrp.decoding.fused.kernels.rollout import Record, Tours
from polarvrp.decoding.fused.kernels.rules import Problem
from polarvrp.decoding.fused.packing import block_of

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
"""Comes with Triton."""

OPERANDS = {"bf16": torch.bfloat16, "fp32": torch.float32}
HEADS = ("plain", "gated", "reld")
WIDTH, ATTENTION_HEADS, HIDDEN = 128, 8, 512
ALIGNED = [["tt.divisibility", 16]]
RECORD = Record("*i32", "*i32", "*i32", "*i32", "*fp32", "*i64")
INFERENCE = {"sampled": False, "recorded": False, "ramped": False, "length": 1}
"""Constants of greedy tours without decisions; an argument that is 1 is one."""

TOURS = Tours("*i64", "*fp32", "*fp32", "*i1", "*i1")
PROBLEM = Problem("*fp32", "*i32", "*fp32", "*fp32", "*fp32", "*i32")


@dataclass(frozen=True, slots=True)
class Resources:
    """What a kernel takes.

    Attributes:
        registers: Of a thread.
        stack_bytes: Of a thread: what did not fit into registers.
        shared_bytes: Of a program.
    """

    registers: int
    stack_bytes: int
    shared_bytes: int


def main() -> None:
    """Compile and print."""
    options = parse()
    print(f"{'kernel':<24}{'nodes':>6}{'warps':>6}{'registers':>10}{'stack B':>9}{'shared B':>10}")
    for num_customers, head in itertools.product(options.num_customers, (*options.heads, "replay")):
        num_nodes = num_customers + options.num_depots
        if head == "replay":
            found = compile_replay(num_nodes, options.num_depots, options.capability, options.warps)
        else:
            constants = {"num_depots": options.num_depots, "stages": options.stages}
            constants |= {"hidden_block": options.hidden_block} | (INFERENCE if options.greedy else {})
            found = compile_rollout(head, num_nodes, options.operands, constants, options.capability, options.warps)
        numbers = f"{found.registers:>10}{found.stack_bytes:>9}{found.shared_bytes:>10}"
        print(f"{head:<24}{num_nodes:>6}{options.warps:>6}{numbers}", flush=True)


def parse() -> argparse.Namespace:
    """Options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-customers", type=int, nargs="+", default=[50, 100])
    parser.add_argument("--num-depots", type=int, default=1)
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=HEADS)
    parser.add_argument("--operands", choices=OPERANDS, default="bf16")
    parser.add_argument("--capability", type=int, default=90)
    parser.add_argument("--greedy", action="store_true", help="as inference builds tours, not trainings")
    parser.add_argument("--warps", type=int, default=fused_rollout.WARPS)
    parser.add_argument("--stages", type=int, default=fused_rollout.STAGES)
    parser.add_argument("--hidden-block", type=int, default=fused_rollout.HIDDEN_BLOCK)
    return parser.parse_args()


def compile_rollout(
    head: str, num_nodes: int, operands: str, constants: dict[str, Any], capability: int, warps: int
) -> Resources:
    """The rollout of networks of full size.

    Args:
        head: One of ``HEADS``.
        num_nodes: N.
        operands: Of matrix products, ``bf16`` or ``fp32``.
        constants: Departures from the usual constants of compilation.
        capability: Of the GPU, 90 is 9.0.
        warps: Of a program.
    """
    of_operands, of_floats = f"*{operands}", "*fp32"
    arguments = {
        "problem": PROBLEM,
        "tables": Tables(*[of_operands] * 6, of_floats),
        "weights": Weights(
            **dict.fromkeys(Weights._fields, of_operands)
            | dict.fromkeys(("norm_glimpse", "norm_output", "ramp"), of_floats)
        ),
        "starts": "*i64",
        "seed": "*i64",
        "tours": TOURS,
        "record": RECORD,
        "scratch": Scratch("*fp32", "*i64", "*i64"),
        **dict.fromkeys(("first_instance", "greedy_row", "num_nodes", "num_rows", "num_actions", "length"), "i32"),
    }
    rows, node_block = fused_rollout.ROWS[OPERANDS[operands]], block_of(num_nodes)
    constants = {
        "num_forced": 1,
        "num_depots": 1,
        "strict": True,
        "remaining": False,
        "head_kind": head,
        "ramped": True,
        "masking": "hard",
        "sampled": True,
        "recorded": True,
        "width": WIDTH,
        "heads": ATTENTION_HEADS,
        "hidden": HIDDEN,
        "hidden_block": fused_rollout.HIDDEN_BLOCK,
        "node_block": node_block,
        "rows": rows,
        "chunk": min(rows, fused_rollout.MASK_ROWS),
        "stages": fused_rollout.STAGES,
    } | constants
    return compiled(kernels.rollout, arguments, constants, capability, warps)


def compile_replay(num_nodes: int, num_depots: int, capability: int, warps: int) -> Resources:
    """The replay; arguments as of :func:`compile_rollout`."""
    arguments = {
        "problem": PROBLEM,
        "actions": "*i64",
        "tours": TOURS,
        "record": RECORD,
        **dict.fromkeys(("num_free", "num_nodes", "num_rows", "num_actions", "length"), "i32"),
    }
    constants = {"num_depots": num_depots, "strict": True, "node_block": block_of(num_nodes)}
    return compiled(kernels.replay, arguments, constants | {"rows": 16}, capability, warps)


def compiled(
    kernel: Any, arguments: dict[str, Any], constants: dict[str, Any], capability: int, warps: int
) -> Resources:
    """Resources of a kernel.

    Args:
        kernel: Not one of the interpreter's.
        arguments: Types of arguments, pointers aligned as PyTorch's are.
        constants: Constants of compilation.
        capability: Of the GPU.
        warps: Of a program.
    """
    aligned = {}
    for place, kind in enumerate(arguments.values()):
        if isinstance(kind, tuple):
            aligned |= {(place, inner): ALIGNED for inner in range(len(kind))}
        elif kind.startswith("*"):
            aligned[(place,)] = ALIGNED
    signature = arguments | dict.fromkeys(constants, "constexpr")
    source = ASTSource(kernel, signature, constants, aligned)
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps})
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        usage = subprocess.run([CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    registers, stack = re.search(r"REG:(\d+) STACK:(\d+)", usage).groups()
    return Resources(int(registers), int(stack), made.metadata.shared)


if __name__ == "__main__":
    main()
