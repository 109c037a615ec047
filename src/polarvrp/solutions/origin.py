"""What a file of solutions is of: one variant, size and method, and the instances that its digests name."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from polarvrp.errors import DataError
from polarvrp.files import exists, provenance
from polarvrp.outputs import require_kept, require_output
from polarvrp.problem.datasets import read_instances
from polarvrp.problem.instances import instance_digests
from polarvrp.solutions.solutions import Key, key_of, read_solutions

DIGESTS = "fingerprints"
"""Entry of the provenance that holds a digest of each solved instance, by its position in the set.

Its name is that of the first files, those of shipped models among them, which must go on being compared.
"""

SEVERAL = "the best of several"
"""Method of a file whose rows are the best known ones, whoever found them."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What all rows of a file of solutions have in common.

    Attributes:
        variant: Name of the variant.
        num_customers: n.
        key: Whether a solver or a trained run solved.
        method: Which; ``SEVERAL`` for any.
    """

    variant: str
    num_customers: int
    key: Key
    method: str


def require_solutions_output(
    path: Path,
    origin: Origin,
    digests: Mapping[int, str],
    inputs: list[Path],
    written: Collection[int] | None = None,
) -> None:
    """``outputs.require_output`` for a file of solutions, all of whose instances must be written again.

    Args:
        path: What the user named.
        origin: Of what will be written.
        digests: Of its instances, by position in the set.
        inputs: Files that are read.
        written: Positions that it will hold, if others than those of ``digests``.

    Raises:
        ConfigError: If the output is no ``.parquet`` file or an input.
        DataError: If another file is there, or one that holds further instances, or nothing can be written.
    """
    subject = {**_subject(origin), "set": "this"}
    require_output(path, ".parquet", subject, inputs, stated=lambda found: _stated(found, digests))
    require_instances_kept(path, digests if written is None else written)


def require_instances_kept(path: Path, written: Collection[int]) -> None:
    """Refuse to replace a file of solutions, where one is there, by one without some of its instances.

    Args:
        path: Of the file.
        written: Positions of the instances that it will hold.

    Raises:
        DataError: If an instance would be gone.
    """
    require_kept(path, lambda found: read_solutions(found)["instance"].to_pylist(), written, "instance ")


def _subject(origin: Origin) -> dict[str, Any]:
    return {"variant": origin.variant, "num_customers": origin.num_customers, "method": origin.method}


def _stated(path: Path, digests: Mapping[int, str]) -> dict[str, Any] | None:
    """Subject of a file that is there, and whether its instances are those of ``digests``."""
    try:
        table = read_solutions(path)
    except DataError:
        return None
    said = provenance(table)
    values = [table[name].unique().to_pylist() for name in ("variant", "num_customers", key_of(table))]
    if any(len(found) != 1 for found in values[:2]):
        return None
    method = SEVERAL if "sources" in said or len(values[2]) > 1 else values[2][0]
    is_same = _first_difference(said, digests) is None
    return _subject(Origin(values[0][0], values[1][0], "solver", method)) | {"set": "this" if is_same else "another"}


def require_origin(path: Path, table: pa.Table, origin: Origin, instances: Path) -> None:
    """Refuse rows that are not what the file's place says.

    Args:
        path: Of the table, for messages.
        table: Of ``read_solutions``.
        origin: What its rows must be of.
        instances: Their set; looked at if it is at hand.

    Raises:
        DataError: If rows are of another variant, size, method or set, or of an instance that the set does not have.
    """
    if origin.key not in table.column_names:
        raise DataError(f"{path} has no column {origin.key}; is it in the right place?")
    wanted = {"variant": origin.variant, "num_customers": origin.num_customers, origin.key: origin.method}
    for name, value in wanted.items():
        strange = [found for found in table[name].unique().to_pylist() if value not in (found, SEVERAL)]
        if strange:
            raise DataError(f"{path} holds {name} {strange[0]} instead of {value}; is it in the right place?")
    if pc.any(pc.invert(pc.is_finite(table["cost"]))).as_py():
        raise DataError(f"{path} holds a cost that is not finite; make it again")
    digests = set_digests(instances) if exists(instances) else None
    numbers = table["instance"].to_pylist()
    for number in (min(numbers, default=0), max(numbers, default=0)):
        if number < 0 or (digests and number not in digests):
            held = f", {instances} {len(digests)}" if digests else ""
            raise DataError(f"{path} holds instance {number}{held}; make it again")
    require_same_instances(path, table, digests or {}, instances)


def require_same_instances(path: Path, table: pa.Table, digests: Mapping[int, str], instances: Path | str) -> None:
    """Refuse solutions of other instances than those of a set; files of others, without digests, pass.

    Args:
        path: Of the table, for messages.
        table: Of ``read_solutions``.
        digests: Of instances of the set, by position; the others are not looked at.
        instances: The set, for messages.

    Raises:
        DataError: If an instance is another one.
    """
    different = _first_difference(provenance(table), digests)
    if different is not None:
        raise DataError(f"{path} solves another instance {different} than {instances} holds; make one of both again")


def set_digests(path: Path) -> Mapping[int, str]:
    """Digest of each instance of a set, by its position.

    Raises:
        DataError: If the file is unusable.
    """
    return _digests_of(path.resolve(), path.stat().st_mtime_ns)


@lru_cache(maxsize=256)
def _digests_of(path: Path, _changed_ns: int) -> Mapping[int, str]:
    return dict(enumerate(instance_digests(read_instances(path))))


def _first_difference(said: Mapping[str, Any], digests: Mapping[int, str]) -> int | None:
    """An instance whose digest is another one in the provenance of a file than in ``digests``; None if there is none.

    Files of others have no digests, and are told by what they hold alone.
    """
    stored = said.get(DIGESTS)
    pairs = stored.items() if isinstance(stored, dict) else ()
    known = ((int(number), value) for number, value in pairs if number.isdecimal())
    return next((number for number, value in known if digests.get(number, value) != value), None)
