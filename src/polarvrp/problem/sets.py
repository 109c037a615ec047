"""Generated sets as files that say how they were made and are never overwritten by another set."""

from pathlib import Path
from typing import Any

from polarvrp.errors import DataError
from polarvrp.problem.datasets import read_metadata, write_arrays
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
    metadata = {
        "variant": known.name,
        "num_customers": num_customers,
        "instances": num_instances,
        "seed": seed,
        "generator_version": GENERATOR_VERSION,
    }
    _require_same_set(path, metadata)
    write_arrays(path, generate_arrays(known, num_customers, num_instances, seed), metadata)


def _require_same_set(path: Path, metadata: dict[str, Any]) -> None:
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
