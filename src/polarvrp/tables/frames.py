"""Columns and types of a long table, as its record names them, in pandas and in Arrow."""

import pandas as pd
import pyarrow as pa

from polarvrp.catalog.experiments import INTEGER, REAL, TEXT, Experiment
from polarvrp.errors import DataError

SCALE = "scale"
"""Last column of every table."""

RUNS = "runs"
"""Column that a row function may add: name or names of the trained runs that a row was computed from."""

_PANDAS = {TEXT: "object", INTEGER: "Int64", REAL: "float64"}


def column_types(experiment: Experiment) -> dict[str, str]:
    """Keys, then values, then the scale, each with its type."""
    return {**experiment.keys, **experiment.values, SCALE: TEXT}


def arrow_schema(experiment: Experiment) -> pa.Schema:
    """Schema of the Parquet file; values may be null."""
    return pa.schema(
        pa.field(name, kind, nullable=name in experiment.values) for name, kind in column_types(experiment).items()
    )


def typed(frame: pd.DataFrame, experiment: Experiment) -> pd.DataFrame:
    """The frame's columns in the order and with the types of its record; what is missing is NaN or NA.

    Raises:
        DataError: If a value is of another type.
    """
    types = {name: _PANDAS[kind] for name, kind in column_types(experiment).items()}
    try:
        return frame[list(types)].astype(types)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"table {experiment.name} got a value of another type: {error}; make its results again"
        ) from error


def arrow_table(frame: pd.DataFrame, experiment: Experiment) -> pa.Table:
    """A typed frame as an Arrow table of ``arrow_schema``.

    Raises:
        DataError: If a value is of another type.
    """
    try:
        return pa.Table.from_pandas(frame, schema=arrow_schema(experiment), preserve_index=False)
    except (pa.ArrowException, TypeError) as error:
        raise DataError(
            f"table {experiment.name} got a value of another type: {error}; make its results again"
        ) from error
