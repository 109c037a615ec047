"""What a record of an experiment says: runs, table, figure, and what they are computed from."""

from dataclasses import dataclass
from typing import TypeVar

from polarvrp.catalog.methods import OWN, Method
from polarvrp.errors import ConfigError

Part = TypeVar("Part")

INTEGER, REAL, TEXT = "int64", "float64", "string"
"""Types of columns, as Arrow names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The picture of an experiment.

    Attributes:
        title: Heading of the picture.
        caption: What it shows, for reports.
        draw: Dotted path of a function ``(Results, Experiment) -> matplotlib Figure``.
    """

    title: str
    caption: str
    draw: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Every backbone of the paper's grids along one axis.

    Attributes:
        axis: ``paradigm`` or ``encoder``, the attribute of a run that varies.
        paradigm: The one paradigm of a grid of encoders.
        values: Values along the axis, where it is not all of them.
    """

    axis: str
    paradigm: str | None = None
    values: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Trainings of one backbone that differ in one value; its values stand in ``sweeps`` of the configuration.

    Attributes:
        setting: The swept setting, which is also the attribute of a run that holds it.
        section: Section of a training's specification that holds it: ``training`` or ``model``.
        column: Its column in the table.
        symbol: As tables print that column.
        encoder: Encoder of the trainings.
        paradigms: Their paradigms; a column where there is more than one.
        backbone: Their backbone.
    """

    setting: str
    section: str
    column: str
    symbol: str
    encoder: str
    paradigms: tuple[str, ...] = ("polar",)
    backbone: str = str(OWN.backbone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One comparison of runs: a table, a figure, or both.

    Attributes:
        name: Of its files and of the workflow's target.
        title: Heading of the printed table.
        caption: What is compared, over what, against which reference, and what bold means; for reports.
        runs: Dotted path of a function ``(StudyConfig, Experiment) -> list[RunSpec]``: the runs that it compares.
        rows: Dotted path of a function ``(Results, Experiment) -> DataFrame`` with the columns below; None for an
            experiment that is a figure alone.
        render: Dotted path of a function ``(DataFrame, Experiment) -> list of printed tables``.
        keys: Key columns and their types; rows come sorted by them, in the paper's order.
        values: Value columns and their types; values may be missing.
        needs: What it is computed from: solutions of the ``training_variants`` or the ``unseen_variants``, by its runs
            and as references; with ``masked_flags`` those of the latter without flags too, where the study asks for
            both; those by ``solvers`` that gaps do not need, where they are there or made anyway; those of
            ``shipped`` models with the references of their sizes, or with ``shipped_routes`` without these and of all
            variants; those of other ``efforts``; the ``test_sets`` themselves;
            ``set_x`` costs; ``histories`` of its runs; an analysis of each of them, ``margins``, ``experts`` or
            ``embeddings``; ``architectures`` without any run; other ``tables``.
        group: ``main`` tables, ``ablation`` grids and sweeps, ``analysis`` of trained models, or ``summary``.
        grid: Set for a grid.
        sweep: Set for a sweep.
        methods: Its own rows, where it compares a fixed few methods.
        paper: Dotted path of a function ``(DataFrame, Experiment) -> DataFrame`` of the paper's numbers beside ours;
            None where the paper prints none. The first argument has no rows where the table was not built.
        figure: Its picture.
    """

    name: str
    title: str
    caption: str
    runs: str
    rows: str | None = None
    render: str | None = None
    keys: dict[str, str]
    values: dict[str, str]
    needs: tuple[str, ...]
    group: str = "main"
    grid: Grid | None = None
    sweep: Sweep | None = None
    methods: tuple[Method, ...] = ()
    paper: str | None = None
    figure: Figure | None = None


def grid_of(experiment: Experiment) -> Grid:
    """The grid of an experiment that is one.

    Raises:
        ConfigError: If its record has none.
    """
    return _part(experiment, experiment.grid, "grid")


def sweep_of(experiment: Experiment) -> Sweep:
    """The sweep of an experiment that is one.

    Raises:
        ConfigError: If its record has none.
    """
    return _part(experiment, experiment.sweep, "sweep")


def _part(experiment: Experiment, part: Part | None, kind: str) -> Part:
    if part is None:
        raise ConfigError(f"experiment {experiment.name} is no {kind}; its record must have one")
    return part
