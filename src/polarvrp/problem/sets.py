"""Generated sets as files that say how they were made and are never overwritten by another set."""

from pathlib import Path
from typing import Any

import numpy as np

from polarvrp.errors import DataError
from polarvrp.files import exists
from polarvrp.outputs import require_output
from polarvrp.problem.archives import read_arrays, read_metadata, write_arrays
from polarvrp.problem.numpy_generator import GENERATOR_VERSION, generate_arrays
from polarvrp.problem.variants import parse_variant


def write_set(path: Path, variant: str, num_customers: int, num_instances: int, seed: int) -> None:
    """Generate a set and write it with its provenance.

    Args:
        path: Final path; the same set may be there already.
        variant: Name of the variant.
        num_customers: n.
        num_instances: Instances to keep.
        seed: 1234 gives the published test sets, 4321 the published validation sets.

    Raises:
        ConfigError: If there is no such variant or a number is out of bounds.
        DataError: If ``path`` holds another set.
    """
    known = parse_variant(variant)
    metadata = _origin(known.name, num_customers, num_instances, seed)
    require_output(path, ".npz", metadata)
    write_arrays(path, generate_arrays(known, num_customers, num_instances, seed), metadata)


def ensure_set(path: Path, variant: str, num_customers: int, num_instances: int, seed: int) -> None:
    """Write a set where it is missing, else verify that the file holds it; arguments as ``write_set``.

    A file that does not say how it was made, such as a published one, is compared by its content.

    Raises:
        ConfigError: If there is no such variant or a number is out of bounds.
        DataError: If ``path`` holds another set.
    """
    if not exists(path):
        write_set(path, variant, num_customers, num_instances, seed)
        return
    known, found = parse_variant(variant), read_metadata(path)
    if found is not None:
        origin = _origin(known.name, num_customers, num_instances, seed).items()
        changed = [f"{key} {found.get(key)} instead of {value}" for key, value in origin if found.get(key) != value]
        fault = f"another set ({', '.join(changed)})" if changed else None
    else:
        stored, wanted = read_arrays(path), generate_arrays(known, num_customers, num_instances, seed)
        is_same = stored.keys() == wanted.keys() and all(np.array_equal(stored[key], wanted[key]) for key in wanted)
        fault = None if is_same else f"other instances than seed {seed} draws"
    if fault is not None:
        raise DataError(f"{path} holds {fault}; move it away or name your own sets with --validation")


def _origin(variant: str, num_customers: int, num_instances: int, seed: int) -> dict[str, Any]:
    """What a file says about how its set was drawn."""
    return {
        "variant": variant,
        "num_customers": num_customers,
        "instances": num_instances,
        "seed": seed,
        "generator_version": GENERATOR_VERSION,
    }
