"""Building tables from the results that exist, and writing each as Parquet, CSV, Markdown and LaTeX."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from polarvrp import __version__
from polarvrp.catalog.experiments import EXPERIMENTS, Experiment, tables
from polarvrp.catalog.records import resolve
from polarvrp.errors import ConfigError
from polarvrp.files import write_parquet, write_text
from polarvrp.study.layout import TABLE_SUFFIXES
from polarvrp.study.runs import parse_run
from polarvrp.study.specs import TABLE_CODE_VERSION
from polarvrp.tables.commands import command_for, workflow_command
from polarvrp.tables.formats import scale_warning
from polarvrp.tables.frames import RUNS, SCALE, arrow_table, typed
from polarvrp.tables.labels import LABELS
from polarvrp.tables.latex import to_latex
from polarvrp.tables.printing import PrintedTable, to_markdown
from polarvrp.tables.sources import MissingResultsError, Results

_LOGGER = logging.getLogger(__name__)


def build_tables(results: Results, names: Sequence[str] = ()) -> list[Path]:
    """Build tables into the folder ``tables`` beside the results.

    Args:
        results: Where the numbers lie.
        names: Tables to build; each must have its results. None given: all that have them, others are logged.

    Returns:
        Paths of the written files.

    Raises:
        ConfigError: If a name is unknown.
        MissingResultsError: If a named table lacks results, or no table has any.
        DataError: If a result file is unusable.
    """
    for name in (*names, *(results.compared or ())):
        if name not in tables():
            raise ConfigError(f"unknown table {name!r}; there are {', '.join(tables())}")
    paths: list[Path] = []
    for experiment in (EXPERIMENTS[name] for name in tables() if not names or name in names):
        try:
            paths += write_table(results, experiment, build_table(results, experiment))
        except MissingResultsError as error:
            if names:
                raise
            _LOGGER.info("%s left out: %s", experiment.name, error)
    if not paths:
        raise MissingResultsError(
            f"{results.root} holds no results to build tables from; make them with: "
            f"{workflow_command(results, 'tables')}"
        )
    return paths


def build_table(results: Results, experiment: Experiment) -> pd.DataFrame:
    """A long table with the columns and types of its record.

    Returns:
        The table; its attribute ``labels`` holds the label of each compared method by its stem, ``runs`` the names of
        the trained runs that it was computed from.

    Raises:
        MissingResultsError: If nothing it is made from exists.
        DataError: If a result file is unusable.
    """
    rows: pd.DataFrame = resolve(str(experiment.rows))(results, experiment)
    if rows.empty:
        raise MissingResultsError(
            f"table {experiment.name} has no results under {results.root} at scale {results.scale}; "
            f"make them with: {command_for(results, experiment)}"
        )
    frame = typed(arrow_table(rows.assign(**{SCALE: results.scale}), experiment))
    frame.attrs[LABELS] = results.method_labels
    frame.attrs[RUNS] = sorted(set(rows[RUNS].dropna().explode())) if RUNS in rows else []
    return frame


def print_experiment(frame: pd.DataFrame, experiment: Experiment) -> list[PrintedTable]:
    """A long table as people read it, with the warning of its scale."""
    printed: list[PrintedTable] = resolve(str(experiment.render))(frame, experiment)
    return [replace(table, warning=scale_warning(frame[SCALE].iloc[0])) for table in printed]


def write_table(results: Results, experiment: Experiment, frame: pd.DataFrame) -> list[Path]:
    """Write one table in each of ``TABLE_SUFFIXES``; the same rows give the same bytes."""
    paths = [results.layout.table(experiment.name, suffix) for suffix in TABLE_SUFFIXES]
    provenance = {
        "table": experiment.name,
        "scale": results.scale,
        "code": TABLE_CODE_VERSION,
        "polarvrp": __version__,
        "gap_percent": "mean over instances of 100 (cost - reference) / reference",
        "fingerprints": {run: results.recorded(parse_run(run), "fingerprint") for run in frame.attrs[RUNS]},
        LABELS: list(frame.attrs[LABELS].items()),
    }
    table = arrow_table(frame, experiment)
    printed = print_experiment(frame, experiment)
    write_parquet(paths[0], table, provenance)
    write_text(paths[1], frame.to_csv(index=False, lineterminator="\n"))
    write_text(paths[2], to_markdown(printed))
    write_text(paths[3], to_latex(printed))
    return paths
