"""``polarvrp generate``: write a test or validation set."""

import argparse
from pathlib import Path

from polarvrp.errors import ConfigError, DataError


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
    from polarvrp.problem.datasets import write_arrays
    from polarvrp.problem.numpy_generator import GENERATOR_VERSION, generate_arrays
    from polarvrp.problem.variants import parse_variant

    if options.output.suffix != ".npz":
        raise ConfigError(f"--output must end in .npz, got {options.output}")
    variant = parse_variant(options.variant)
    metadata = {
        "variant": variant.name,
        "num_customers": options.num_customers,
        "instances": options.instances,
        "seed": options.seed,
        "generator_version": GENERATOR_VERSION,
    }
    _require_same_set(options.output, metadata)
    arrays = generate_arrays(variant, options.num_customers, options.instances, options.seed)
    write_arrays(options.output, arrays, metadata)
    print(
        f"{options.output}: {options.instances} instances of {variant.name} with {options.num_customers} customers, "
        f"seed {options.seed}"
    )
    return 0


def _require_same_set(path: Path, metadata: dict[str, object]) -> None:
    from polarvrp.problem.datasets import read_metadata

    if not path.exists():
        return
    found = read_metadata(path)
    if found is None:
        raise DataError(f"{path} exists and does not say how it was made; move it away or choose another --output")
    changed = [
        f"{key} {found.get(key)} instead of {value}" for key, value in metadata.items() if found.get(key) != value
    ]
    if changed:
        raise DataError(f"{path} holds another set ({', '.join(changed)}); move it away or choose another --output")
