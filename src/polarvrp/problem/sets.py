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


def require_set(path: Path, variant: str, num_customers: int, num_instances: int, seed: int) -> None:
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
        metadata = _origin(known.name, num_customers, num_instances, seed)
        _require_same_origin(path, found, metadata, "name your own sets with --validation")
        return
    stored, wanted = read_arrays(path), generate_arrays(known, num_customers, num_instances, seed)
    if stored.keys() != wanted.keys() or not all(np.array_equal(stored[name], wanted[name]) for name in wanted):
        raise DataError(
            f"{path} holds other instances than seed {seed} draws; move it away or name your own sets with --validation"
        )


def _origin(variant: str, num_customers: int, num_instances: int, seed: int) -> dict[str, Any]:
    """What a file says about how its set was drawn."""
    return {
        "variant": variant,
        "num_customers": num_customers,
        "instances": num_instances,
        "seed": seed,
        "generator_version": GENERATOR_VERSION,
    }


def _require_same_origin(path: Path, found: dict[str, Any], wanted: dict[str, Any], advice: str) -> None:
    changed = [f"{key} {found.get(key)} instead of {value}" for key, value in wanted.items() if found.get(key) != value]
    if changed:
        raise DataError(f"{path} holds another set ({', '.join(changed)}); move it away or {advice}")
