"""All tables and figures of a study as one HTML page that needs nothing beside itself, and no network."""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader

from polarvrp.catalog.experiments import EXPERIMENTS, Experiment
from polarvrp.errors import ConfigError
from polarvrp.files import write_text
from polarvrp.outputs import marked
from polarvrp.tables.build import print_experiment
from polarvrp.tables.commands import own_command, workflow_command
from polarvrp.tables.formats import scale_warning
from polarvrp.tables.printing import PrintedTable, to_html
from polarvrp.tables.sources import MissingResultsError, Results


@dataclass(frozen=True, slots=True)
class Section:
    """One experiment on the page.

    Attributes:
        experiment: Its record.
        tables: Its printed tables, each with its HTML.
        figure: Address of its picture with the picture in it, empty for none.
    """

    experiment: Experiment
    tables: Sequence[tuple[PrintedTable, str]]
    figure: str


def write_report(results: Results, output: Path, names: Sequence[str] = ()) -> None:
    """Write the page from the tables and figures that were built.

    Args:
        results: Where tables and figures lie.
        output: HTML file.
        names: Experiments to show; each must have its table and figure. None given: whatever was built.

    Raises:
        ConfigError: If a name is unknown.
        MissingResultsError: If a named experiment lacks its table or figure, or nothing was built at this scale.
        DataError: If a table is unusable.
    """
    for name in names:
        if name not in EXPERIMENTS:
            raise ConfigError(f"unknown experiment {name!r}; there are {', '.join(EXPERIMENTS)}")
    sections = list(_sections(results, names))
    if not sections:
        raise MissingResultsError(
            f"{results.root} holds no tables or figures of scale {results.scale}; make them with: "
            f"{workflow_command(results, 'tables figures')}"
        )
    environment = Environment(loader=PackageLoader("polarvrp.tables"), autoescape=True, trim_blocks=True)
    page = environment.get_template("report.html.jinja")
    note = scale_warning(results.scale) or f"Scale {results.scale}: the full study."
    rendered = page.render(sections=sections, note=note, scale=results.scale)
    write_text(output, f"{rendered}\n<!-- {marked({'report': results.scale})} -->\n")


def _sections(results: Results, names: Sequence[str]) -> Iterator[Section]:
    """Sections in the order of the catalog; without names those that have anything to show."""
    for experiment in (EXPERIMENTS[name] for name in EXPERIMENTS if not names or name in names):
        tables = _tables(results, experiment, required=bool(names))
        # A picture without a table of this scale beside it may be of another.
        shown = tables or experiment.rows is None
        figure = _figure(results, experiment, required=bool(names)) if shown else ""
        if tables or figure:
            yield Section(experiment, tables, figure)


def _tables(results: Results, experiment: Experiment, required: bool) -> list[tuple[PrintedTable, str]]:
    if experiment.rows is None:
        return []
    try:
        printed = print_experiment(results.table(experiment.name), experiment)
    except MissingResultsError:
        if required:
            raise
        return []
    return [(table, to_html(table, f"{experiment.name}_{place}")) for place, table in enumerate(printed)]


def _figure(results: Results, experiment: Experiment, required: bool) -> str:
    path = results.layout.figure(experiment.name)
    if experiment.figure is None or not (path.is_file() or required):
        return ""
    if not path.is_file():
        command = own_command(results, f"figures {experiment.name}")
        raise MissingResultsError(f"{path} does not exist; make it with: {command}")
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
