"""Columns and types of a long table, as its record names them, in pandas and in Arrow."""

import pandas as pd
import pyarrow as pa

from polarvrp.catalog.experiments import TEXT, Experiment
from polarvrp.errors import DataError

SCALE = "scale"
"""Last column of every table."""

RUNS = "runs"
"""Column that a row function may add: name or names of the trained runs that a row was computed from."""


def arrow_schema(experiment: Experiment) -> pa.Schema:
    """Keys, then values, which may be null, then the scale, each with its type."""
    types = {**experiment.keys, **experiment.values, SCALE: TEXT}
    return pa.schema(pa.field(name, kind, nullable=name in experiment.values) for name, kind in types.items())


def arrow_table(frame: pd.DataFrame, experiment: Experiment) -> pa.Table:
    """The columns of a record, in its order and of its types.

    Raises:
        DataError: If a value is of another type.
    """
    try:
        table = pa.Table.from_pandas(frame, schema=arrow_schema(experiment), preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(
            f"table {experiment.name} got a value of another type: {error}; make its results again"
        ) from error
    return table.replace_schema_metadata()


def typed(table: pa.Table) -> pd.DataFrame:
    """A table of a record in pandas; missing numbers are NaN, missing whole numbers NA, missing text None."""
    frame: pd.DataFrame = table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    return frame
