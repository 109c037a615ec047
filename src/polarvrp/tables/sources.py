"""Where a study's numbers lie and how they are read: references, evaluations, Set-X costs, histories and tables."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from polarvrp.catalog.experiments import EXPERIMENTS
from polarvrp.catalog.methods import PUBLISHED_SIZES, SOLVERS
from polarvrp.catalog.scales import SCALES
from polarvrp.config.study import ExternalMethod
from polarvrp.errors import ConfigError, DataError
from polarvrp.files import exists, provenance, read_parquet
from polarvrp.problem.variants import TRAINING_VARIANTS, VARIANTS
from polarvrp.references.published import published_costs
from polarvrp.solutions.origin import SEVERAL, Origin, require_origin, set_digests
from polarvrp.solutions.solutions import read_solutions
from polarvrp.study.layout import STRICT_RULES, Layout
from polarvrp.study.metadata import recorded, require_recorded
from polarvrp.study.runs import RunSpec, parse_run
from polarvrp.tables.commands import own_command, workflow_command
from polarvrp.tables.frames import SCALE, arrow_schema, typed
from polarvrp.tables.labels import LABELS, catalog_labels
from polarvrp.tolerances import POLICY_TOLERANCE

TEST = "test"

_LOGGER = logging.getLogger(__name__)


class MissingResultsError(DataError):
    """Results that a table needs were not made yet."""


@dataclass(frozen=True, slots=True)
class InstanceSet:
    """One test set: a variant at a size."""

    variant: str
    num_customers: int


@dataclass(frozen=True, slots=True)
class Results:
    """The result files of one study.

    Attributes:
        root: Folder ``results``.
        scale: Scale of the study; the paper's has the published sizes only.
        runs: Runs to look at, None for all that have the results in question.
        reference_name: One of ``REFERENCES`` for gaps, None for the published one where there is one, else ours.
        labels: Label of each method that the study compares beside those of the catalog, by its stem.
        external: Methods whose imported solutions the main tables list.
        variants: Variants to look at, None for all.
        compared: Tables that ``paper_comparison`` reads, None for all that were built.
        protocols: Those of unseen variants to list (``study.layout.UNSEEN_SPLITS``), None for all that were solved by.
    """

    root: Path
    scale: str
    _: KW_ONLY
    runs: tuple[str, ...] | None = None
    reference_name: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    external: tuple[ExternalMethod, ...] = ()
    variants: tuple[str, ...] | None = None
    compared: tuple[str, ...] | None = None
    protocols: tuple[str, ...] | None = None

    @property
    def layout(self) -> Layout:
        """Paths below the root."""
        return Layout(self.root)

    @property
    def method_labels(self) -> dict[str, str]:
        """Label of each compared method by its stem, in the order of the printed tables; no label stands twice."""
        own = {method.method: method.label for method in self.external} | dict(self.labels)
        return {stem: label for stem, label in catalog_labels().items() if label not in own.values()} | own

    def has_size(self, num_customers: int) -> bool:
        """Whether the study has this size; files of another scale may lie in the same folder."""
        return not SCALES[self.scale].is_papers or num_customers in PUBLISHED_SIZES

    def has_variant(self, variant: str) -> bool:
        """Whether the study has this variant; solutions of others, by earlier models, may lie in the same folder."""
        return self.variants is None or variant in self.variants

    def evaluated_runs(self) -> list[RunSpec]:
        """Runs with evaluations of test sets."""
        return self._runs(
            lambda run: self.layout.evaluation(run, "*", "*").parent,
            lambda run: self.layout.evaluation(run.name, TRAINING_VARIANTS[0], run.num_customers),
        )

    def set_x_runs(self) -> list[RunSpec]:
        """Runs with costs on Set-X."""
        return self._runs(self.layout.set_x)

    def trained_runs(self) -> list[RunSpec]:
        """Runs with a finished training."""
        return self._runs(self.layout.metadata)

    def analysed_runs(self, name: str) -> list[RunSpec]:
        """Runs with the file of an analysis."""
        return self._runs(lambda run: self.layout.analysis(run, name))

    def evaluated_sets(self, run: RunSpec, variants: Iterable[str], protocol: str = STRICT_RULES) -> list[InstanceSet]:
        """Test sets of the run's own size, of these variants, that it was evaluated on by a protocol."""
        sets = [InstanceSet(variant, run.num_customers) for variant in filter(self.has_variant, variants)]
        return [test_set for test_set in sets if self._evaluation(run, test_set, protocol).is_file()]

    def solved_sets(self, solver: str, variants: Iterable[str]) -> list[InstanceSet]:
        """Test sets of these variants that a solver was run on."""
        pattern = self.layout.reference(TEST, solver, "*", "*")
        names = [path.stem.rpartition("-n") for path in pattern.parent.glob(pattern.name)]
        sizes = sorted({int(size) for _, _, size in names if size.isdecimal() and self.has_size(int(size))})
        sets = [InstanceSet(variant, size) for variant in filter(self.has_variant, variants) for size in sizes]
        return [test_set for test_set in sets if self._solutions(solver, test_set).is_file()]

    def evaluation(self, run: RunSpec, test_set: InstanceSet, protocol: str = STRICT_RULES) -> pd.DataFrame:
        """Costs and seconds of a run on one test set by a protocol, as ``read_costs``."""
        path = self._evaluation(run, test_set, protocol)
        origin = Origin(test_set.variant, test_set.num_customers, "run", run.name)
        return read_costs(path, origin, self.dataset(test_set), self.recorded(run, "fingerprint"))

    def same_model(self, run: RunSpec, test_set: InstanceSet, protocol: str) -> bool:
        """Whether a run's solutions by a protocol are those of the model and effort behind its strict ones."""
        paths = [self._evaluation(run, test_set, protocol), self._evaluation(run, test_set, STRICT_RULES)]
        said = [provenance(read_solutions(path)) for path in paths if path.is_file()]
        made = [
            (entry.get("model", {}).get("fingerprint"), entry.get("augmentations"), entry.get("mb_sets_b", True))
            for entry in said
        ]
        return len(made) == len(paths) and made[0] == made[1]

    def solved(self, solver: str, test_set: InstanceSet) -> pd.DataFrame:
        """Costs and seconds of a solver on one test set, as ``read_costs``."""
        return read_costs(self._solutions(solver, test_set), _origin(solver, test_set), self.dataset(test_set))

    def history(self, run: RunSpec) -> pd.DataFrame:
        """A run's training history, a row an epoch."""
        return read_frame(self.layout.history(run.name), ("epoch", "seconds"))

    def metadata(self, run: RunSpec) -> dict[str, Any]:
        """What a run's training recorded about itself.

        Raises:
            MissingResultsError: If it was not trained.
            DataError: If its file is unusable.
        """
        path = self.layout.metadata(run.name)
        if not exists(path):
            raise MissingResultsError(f"{path} does not exist; make it with: {workflow_command(self, path)}")
        return require_recorded(path, (), "delete it and train the run again")

    def specified(self, run: RunSpec, section: str, key: str) -> Any:
        """A value of the specification that a run was trained by.

        Raises:
            DataError: If the run's metadata is missing or lacks the value.
        """
        spec = self.metadata(run).get("spec")
        if not isinstance(spec, dict) or key not in spec.get(section, {}):
            path = self.layout.metadata(run.name)
            raise DataError(f"{path} has no spec.{section}.{key}; train the run again")
        return spec[section][key]

    def recorded(self, run: RunSpec, key: str) -> Any:
        """One entry of a run's metadata, None where the training is not at hand or did not record it."""
        return self.metadata(run).get(key) if self.layout.metadata(run.name).is_file() else None

    def of_model(self, run: RunSpec, path: Path, needed: Iterable[str]) -> pd.DataFrame:
        """A file with certain columns about a run's model: its costs on Set-X, or what an analysis found.

        Raises:
            DataError: If the file is unusable, or by another model than the run has now.
        """
        table = _read_table(path, needed)
        _require_model(path, table, self.recorded(run, "fingerprint"))
        frame: pd.DataFrame = table.to_pandas()
        return frame

    def table(self, name: str) -> pd.DataFrame:
        """A long table that was built at this scale, with the labels that it was built with.

        Raises:
            MissingResultsError: If it was not built at this scale.
            DataError: If it is unusable.
        """
        path, record = self.layout.table(name), EXPERIMENTS.get(name)
        if not path.is_file():
            raise MissingResultsError(f"{path} does not exist; make it with: {own_command(self, f'tables {name}')}")
        stored = _read_table(path, (SCALE,) if record is None else arrow_schema(record).names)
        frame = typed(stored)
        if self.scale not in set(frame[SCALE]):
            got = "none" if frame.empty else frame[SCALE].iloc[0]
            advice = f"make it with: {own_command(self, f'tables {name}')}"
            raise MissingResultsError(f"{path} is of scale {got}, not {self.scale}; {advice}")
        frame.attrs[LABELS] = dict(provenance(stored).get(LABELS, ()))
        return frame

    def _evaluation(self, run: RunSpec, test_set: InstanceSet, protocol: str) -> Path:
        return self.layout.unseen_evaluation(run.name, test_set.variant, test_set.num_customers, protocol)

    def dataset(self, test_set: InstanceSet) -> Path:
        return self.layout.dataset(TEST, test_set.variant, test_set.num_customers)

    def _solutions(self, solver: str, test_set: InstanceSet) -> Path:
        return self.layout.reference(TEST, solver, test_set.variant, test_set.num_customers)

    def _runs(
        self, path_of: Callable[[str], Path], target_of: Callable[[RunSpec], Path] | None = None
    ) -> list[RunSpec]:
        """Runs that have the file or folder in question; all of ``runs`` must, others must be of no other scale.

        Where it is a folder, ``target_of`` names a file that the workflow makes it with.
        """
        if self.runs is None:
            runs = self._of_scale(_named_runs(self.root, path_of("*")))
        else:
            runs = [parse_run(name) for name in self.runs]
            for run in runs:
                if not (path := path_of(run.name)).exists():
                    target = path if target_of is None else target_of(run)
                    raise MissingResultsError(f"{path} does not exist; make it with: {workflow_command(self, target)}")
        return sorted((run for run in runs if self.has_size(run.num_customers)), key=lambda run: run.name)

    def _of_scale(self, runs: Iterable[RunSpec]) -> list[RunSpec]:
        """Runs but those that say they were trained at another scale, as for two epochs at a size of the paper's."""
        sized = [run for run in runs if self.has_size(run.num_customers)]
        scales = {run: recorded(self.layout.metadata(run.name)).get("scale") for run in sized}
        others = sorted(run.name for run, scale in scales.items() if scale not in (None, self.scale))
        if others:
            names = ", ".join(others)
            _warn_once(f"{self.layout.model('')}: trained at another scale and left out: {names}; --runs takes them")
        return [run for run in sized if run.name not in others]


@lru_cache(maxsize=256)
def _warn_once(text: str) -> None:
    """A line of the log that several tables would repeat."""
    _LOGGER.warning(text)


def _named_runs(root: Path, pattern: Path) -> list[RunSpec]:
    """Runs of the paths below ``root`` that match; one that is named after no run is reported and left out."""
    wanted = pattern.relative_to(root)
    position = next(place for place, part in enumerate(wanted.parts) if "*" in part)
    runs = []
    for path in root.glob(str(wanted)):
        name = path.relative_to(root).parts[position]
        if name.startswith("."):
            continue
        try:
            runs.append(parse_run(name.removesuffix(".parquet")))
        except ConfigError as error:
            folder = root.joinpath(*wanted.parts[:position])
            _LOGGER.warning("%s is left out: %s", folder / name, error)
    return runs


@lru_cache(maxsize=len(VARIANTS) * len(PUBLISHED_SIZES) * len(SOLVERS))
def published(test_set: InstanceSet, solver: str) -> pd.DataFrame:
    """Published costs of a solver on one test set of 50 or 100 customers; their seconds were not published."""
    costs = published_costs(test_set.variant, test_set.num_customers, solver)
    return pd.DataFrame({"cost": costs, "seconds": float("nan")}).rename_axis("instance")


def reference_of(layout: Layout, test_set: InstanceSet, name: str | None = None) -> pd.Series | None:
    """Costs that gaps on a test set are measured against.

    Args:
        layout: Of the results that hold the test set and its references.
        test_set: The set.
        name: One of ``REFERENCES``; None for the published ones at their sizes, else our PyVRP's where it was run.

    Returns:
        Cost of each instance, float64, indexed by instance; its name is one of ``catalog.methods.REFERENCES``.

    Raises:
        MissingResultsError: If a reference was asked for that this set does not have.
    """
    found = name or ("published-pyvrp" if test_set.num_customers in PUBLISHED_SIZES else "pyvrp")
    if found == "published-pyvrp":
        return published(test_set, "pyvrp")["cost"].rename(found)
    path = layout.reference(TEST, found, test_set.variant, test_set.num_customers)
    if path.is_file():
        instances = layout.dataset(TEST, test_set.variant, test_set.num_customers)
        return _reference_costs(path, path.stat().st_mtime_ns, _origin(found, test_set), instances).rename(found)
    if name is None:
        return None
    how = "--best-of" if found == "best_known" else f"--solver {found}"
    raise MissingResultsError(f"{path} does not exist; make it with `polarvrp reference INSTANCES.npz {how} ...`")


def _origin(solver: str, test_set: InstanceSet) -> Origin:
    """What the place of a solver's file says of its rows."""
    method = SEVERAL if solver == "best_known" else solver
    return Origin(test_set.variant, test_set.num_customers, "solver", method)


@lru_cache(maxsize=len(VARIANTS) * len(PUBLISHED_SIZES))
def _reference_costs(path: Path, changed_ns: int, origin: Origin, instances: Path) -> pd.Series:
    """Costs in a file of solutions, read once for all methods and again after a change."""
    costs = read_costs(path, origin, instances)["cost"]
    unusable = costs[(costs <= 0) | (costs == np.inf)]
    if len(unusable):
        got = f"{unusable.iloc[0]:g} for instance {unusable.index[0]}"
        raise DataError(f"{path}: reference costs must be positive, got {got}; solve it again")
    return costs


def read_costs(path: Path, origin: Origin, instances: Path, model: str | None = None) -> pd.DataFrame:
    """Costs and seconds in a file of solutions.

    Args:
        path: The file.
        origin: What its place says of its rows.
        instances: Their set, which may be absent.
        model: Fingerprint of the model that must have solved them, None for any.

    Returns:
        Columns ``cost`` and ``seconds``, float64, missing where nothing was found or measured; indexed by instance, the
        position in the set, ascending. Costs of tours that break a rule are missing, and so are those of instances that
        the set at hand has and the file does not.

    Raises:
        DataError: If the file is unusable, names an instance twice, or holds rows of something else.
    """
    table = read_solutions(path)
    require_origin(path, table, origin, instances)
    _require_model(path, table, model)
    numbers = pd.Index(table["instance"].to_numpy(), name="instance")
    frame = pd.DataFrame({name: table[name].to_numpy() for name in ("cost", "seconds")}, index=numbers)
    if not frame.index.is_unique:
        raise DataError(
            f"{path} has {len(frame)} rows for {frame.index.nunique()} instances; delete it and make it again"
        )
    broken = np.nan_to_num(table["max_violation"].to_numpy()) > POLICY_TOLERANCE
    if broken.any() and provenance(table).get("protocol") != "published":
        _LOGGER.warning("%s: %d of %d tours break a rule and are left out", path, broken.sum(), len(broken))
        frame.loc[broken, "cost"] = np.nan
    if exists(instances) and len(frame) < (held := len(set_digests(instances))):
        _LOGGER.warning("%s: %d of %d instances are not there and are left out", path, held - len(frame), held)
        absent = pd.Index(range(held)).difference(frame.index)
        nothing = pd.DataFrame({"cost": np.nan, "seconds": 0.0}, index=absent)
        frame = pd.concat([frame, nothing]).rename_axis("instance")
    return frame.sort_index()


def _require_model(path: Path, table: pa.Table, fingerprint: str | None) -> None:
    """Refuse what is by another model, or of another training, than the present one of a run, as far as both say it.

    Raises:
        DataError: If it is.
    """
    said = provenance(table)
    found = None if fingerprint is None else said.get("model", said.get("history", {})).get("fingerprint")
    if found not in (None, fingerprint):
        raise DataError(
            f"{path} is by a model of fingerprint {found}, but the run's is {fingerprint}; make it again or move it "
            "away"
        )


def read_frame(path: Path, needed: Iterable[str]) -> pd.DataFrame:
    """A Parquet file that must have certain columns; numbers that are missing are NaN.

    Raises:
        DataError: If the file is missing, truncated, or lacks a column.
    """
    frame: pd.DataFrame = _read_table(path, needed).to_pandas()
    return frame


def _read_table(path: Path, needed: Iterable[str]) -> pa.Table:
    if not exists(path):
        raise MissingResultsError(f"{path} does not exist; run the command that makes it")
    table: pa.Table = read_parquet(path)
    lacking = [name for name in needed if name not in table.column_names]
    if lacking:
        raise DataError(f"{path} lacks the columns {', '.join(lacking)}; delete it and make it again")
    return table
