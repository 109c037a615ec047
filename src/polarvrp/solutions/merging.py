"""Files of solved stretches of a set put together as one."""

from collections.abc import Sequence
from pathlib import Path

from polarvrp.errors import DataError
from polarvrp.files import provenance
from polarvrp.solutions.origin import DIGESTS, Origin, require_solutions_output
from polarvrp.solutions.rows import SolutionRow
from polarvrp.solutions.solutions import key_of, read_solutions, solution_rows, write_solutions


def merge_solutions(paths: Sequence[Path], output: Path) -> None:
    """Write the rows of several files of one method as one file, in the order of the instances.

    Args:
        paths: Files of disjoint instances of one variant and size.
        output: Path of the merged file; its provenance is that of the first, with the digests of all.

    Raises:
        ConfigError: If the output is one of the files, or no ``.parquet`` file.
        DataError: If a file is unusable, belongs to another method, variant or size, or an instance occurs twice, or
            the output is there and holds something else or more.
    """
    if not paths:
        raise DataError("nothing to merge: name at least one file of solutions")
    tables = [read_solutions(path) for path in paths]
    key = key_of(tables[0])
    origin: dict[int, Path] = {}
    rows: list[SolutionRow] = []
    wanted: tuple[str, int, str] | None = None
    for path, table in zip(paths, tables, strict=True):
        if key not in table.column_names:
            raise DataError(f"{path} has no column {key}, unlike {paths[0]}; references and evaluations do not mix")
        for row in solution_rows(table):
            got = (row.variant, row.num_customers, row.method)
            wanted = wanted or got
            if got != wanted:
                raise DataError(f"{path} holds {got}, but {paths[0]} holds {wanted}; merge the chunks of one set only")
            if row.instance in origin:
                raise DataError(f"instance {row.instance} is in both {origin[row.instance]} and {path}; drop one")
            origin[row.instance] = path
            rows.append(row)
    rows.sort(key=lambda row: row.instance)
    said = [provenance(table) for table in tables]
    digests = {number: value for one in said for number, value in one.get(DIGESTS, {}).items()}
    if wanted is not None:
        known = {int(number): value for number, value in digests.items()}
        require_solutions_output(output, Origin(wanted[0], wanted[1], key, wanted[2]), known, [*paths], origin)
    write_solutions(output, rows, key, said[0] | ({DIGESTS: digests} if digests else {}))
