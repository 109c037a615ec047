"""``polarvrp generate``: write a test or validation set."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--variant", required=True, metavar="V", help="e.g. CVRP, OVRPBLTW, MDVRPMBTW")
    parser.add_argument("--num-customers", required=True, type=int, metavar="N")
    parser.add_argument("--instances", required=True, type=int, metavar="K", help="number of instances")
    parser.add_argument(
        "--seed",
        required=True,
        type=int,
        metavar="S",
        help="1234 gives the published test sets, 4321 the validation sets",
    )
    parser.add_argument("--output", required=True, type=Path, metavar="FILE.npz")


def execute(options: argparse.Namespace) -> int:
    """Write the set and print what it is; a file that holds another set is never overwritten."""
    from polarvrp.problem.sets import write_set
    from polarvrp.problem.variants import parse_variant

    name = parse_variant(options.variant).name
    write_set(options.output, name, options.num_customers, options.instances, options.seed)
    print(
        f"{options.output}: {options.instances} instances of {name} with {options.num_customers} customers, "
        f"seed {options.seed}"
    )
    return 0
