"""Where a study's numbers lie and how they are read: references, evaluations, Set-X costs and training histories."""

import json
import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from polarvrp.catalog.methods import PUBLISHED_SIZES, SOLVERS
from polarvrp.errors import ConfigError, DataError
from polarvrp.problem.variants import VARIANTS
from polarvrp.references.published import published_costs
from polarvrp.solutions.solutions import read_solutions
from polarvrp.study.runs import RunSpec, parse_run
from polarvrp.tables.paper import PAPER_SCALE

REFERENCES = ("published-pyvrp", "pyvrp", "best_known")
"""What gaps can be taken to; ``best_known`` files are those of ``polarvrp reference --best-of``."""

TEST = "test"

_LOGGER = logging.getLogger(__name__)


class MissingResultsError(DataError):
    """Results that a table needs were not made yet."""


@dataclass(frozen=True, slots=True)
class InstanceSet:
    """One test set: a variant at a size."""

    variant: str
    num_customers: int

    @property
    def file_name(self) -> str:
        return f"{self.variant}-n{self.num_customers}.parquet"


@dataclass(frozen=True, slots=True)
class Costs:
    """What one method reached on one test set.

    Attributes:
        by_instance: Exact cost of each instance, None where nothing was found; keys are positions in the set.
        seconds: Summed over the whole set, None where it was not measured.
    """

    by_instance: Mapping[int, float | None]
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Reference:
    """What gaps on one test set are measured against.

    Attributes:
        name: One of ``REFERENCES``.
        by_instance: Its costs.
    """

    name: str
    by_instance: Mapping[int, float | None]

    @property
    def is_published(self) -> bool:
        return self.name.startswith("published-")


@dataclass(frozen=True, slots=True)
class Results:
    """The result files of one study.

    Attributes:
        root: Folder ``results``.
        scale: Scale of the study; ``paper`` has sizes 50 and 100 only, and the published solutions for reference.
        only: Runs to look at, None for all that have the results in question.
        against: One of ``REFERENCES`` for gaps, None for the scale's own.
    """

    root: Path
    scale: str
    only: tuple[str, ...] | None = None
    against: str | None = None

    def has_size(self, num_customers: int) -> bool:
        """Whether the study has this size; files of another scale may lie in the same folder."""
        return self.scale != PAPER_SCALE or num_customers in PUBLISHED_SIZES

    def evaluated_runs(self) -> list[RunSpec]:
        """Runs with evaluations of test sets."""
        return self._runs("evaluations/test", "{run}", "evaluate")

    def set_x_runs(self) -> list[RunSpec]:
        """Runs with costs on Set-X."""
        return self._runs("set_x", "{run}.parquet", "set_x")

    def trained_runs(self) -> list[RunSpec]:
        """Runs with a finished training."""
        return self._runs("models", "{run}/metadata.json", "train")

    def evaluated_sets(self, run: RunSpec, variants: Iterable[str]) -> list[InstanceSet]:
        """Test sets of the run's own size, of these variants, that it was evaluated on."""
        sets = [InstanceSet(variant, run.num_customers) for variant in variants]
        return [test_set for test_set in sets if self._evaluation(run, test_set).is_file()]

    def solved_sets(self, solver: str, variants: Iterable[str]) -> list[InstanceSet]:
        """Test sets of these variants that a solver was run on."""
        folder = self.root / "references" / TEST / solver
        names = [path.stem.rpartition("-n") for path in folder.glob("*-n*.parquet")]
        sizes = sorted({int(size) for _, _, size in names if size.isdecimal() and self.has_size(int(size))})
        sets = [InstanceSet(variant, size) for variant in variants for size in sizes]
        return [test_set for test_set in sets if (folder / test_set.file_name).is_file()]

    def evaluation(self, run: RunSpec, test_set: InstanceSet) -> Costs:
        """Costs of a run on one test set."""
        return read_costs(self._evaluation(run, test_set))

    def solved(self, solver: str, test_set: InstanceSet) -> Costs:
        """Costs of a solver on one test set."""
        return read_costs(self.root / "references" / TEST / solver / test_set.file_name)

    def reference(self, test_set: InstanceSet) -> Reference | None:
        """What gaps on a test set are measured against.

        By default the published solutions at scale ``paper``, else our PyVRP where it was run.

        Raises:
            MissingResultsError: If a reference was asked for that this set does not have.
        """
        name = self.against or ("published-pyvrp" if self.scale == PAPER_SCALE else "pyvrp")
        if name == "published-pyvrp":
            return Reference(name, published(test_set, "pyvrp").by_instance)
        path = self.root / "references" / TEST / name / test_set.file_name
        if path.is_file():
            return Reference(name, read_costs(path).by_instance)
        if self.against is None:
            return None
        how = "--best-of" if name == "best_known" else f"--solver {name}"
        raise MissingResultsError(f"{path} does not exist; make it with `polarvrp reference INSTANCES.npz {how} ...`")

    def history(self, run: RunSpec) -> list[dict[str, Any]]:
        """Rows of a run's training history, one an epoch."""
        return read_rows(self.root / "models" / run.name / "history.parquet", ("epoch", "seconds"))

    def metadata(self, run: RunSpec) -> dict[str, Any]:
        """What a run's training recorded about itself."""
        return _read_json(self._metadata(run))

    def specified(self, run: RunSpec, section: str, key: str) -> Any:
        """A value of the specification that a run was trained by.

        Raises:
            DataError: If the run's metadata is missing or lacks the value.
        """
        spec = self.metadata(run).get("spec")
        if not isinstance(spec, dict) or key not in spec.get(section, {}):
            raise DataError(f"{self._metadata(run)} has no spec.{section}.{key}; train the run again")
        return spec[section][key]

    def recorded(self, run: RunSpec, key: str) -> Any:
        """One entry of a run's metadata, None where the training is not at hand or did not record it."""
        return self.metadata(run).get(key) if self._metadata(run).is_file() else None

    def set_x(self, run: RunSpec) -> list[dict[str, Any]]:
        """A run's rows on Set-X, one an instance."""
        return read_rows(self.root / "set_x" / f"{run.name}.parquet", ("instance", "best_known", "cost"))

    def _metadata(self, run: RunSpec) -> Path:
        return self.root / "models" / run.name / "metadata.json"

    def _evaluation(self, run: RunSpec, test_set: InstanceSet) -> Path:
        return self.root / "evaluations" / TEST / run.name / test_set.file_name

    def _runs(self, folder: str, pattern: str, target: str) -> list[RunSpec]:
        """Runs whose file ``folder/pattern`` exists; all of ``only`` must."""
        base = self.root / folder
        if self.only is None:
            runs = _named_runs(base, [path.relative_to(base).parts[0] for path in base.glob(pattern.format(run="*"))])
        else:
            runs = [parse_run(name) for name in self.only]
            for run in runs:
                path = base / pattern.format(run=run.name)
                if not path.exists():
                    raise MissingResultsError(f"{path} does not exist; make it with: snakemake --cores all {target}")
        return sorted((run for run in runs if self.has_size(run.num_customers)), key=lambda run: run.name)


def _named_runs(base: Path, names: Iterable[str]) -> list[RunSpec]:
    """Runs of the entries of a folder; an entry that names none is reported and left out."""
    runs = []
    for name in names:
        if name.startswith("."):
            continue
        try:
            runs.append(parse_run(name.removesuffix(".parquet")))
        except ConfigError as error:
            _LOGGER.warning("%s is left out: %s", base / name, error)
    return runs


@lru_cache(maxsize=len(VARIANTS) * len(PUBLISHED_SIZES) * len(SOLVERS))
def published(test_set: InstanceSet, solver: str) -> Costs:
    """Published costs of a solver on one test set of 50 or 100 customers; their seconds were not published."""
    costs = published_costs(test_set.variant, test_set.num_customers, solver)
    return Costs(dict(enumerate(costs.tolist())), None)


def read_costs(path: Path) -> Costs:
    """Costs and seconds in a file of solutions.

    Raises:
        DataError: If the file is unusable or names an instance twice.
    """
    table = read_solutions(path)
    instances, costs, seconds = (table[name].to_pylist() for name in ("instance", "cost", "seconds"))
    by_instance = dict(zip(instances, costs, strict=True))
    if len(by_instance) != len(instances):
        raise DataError(
            f"{path} has {len(instances)} rows for {len(by_instance)} instances; delete it and make it again"
        )
    measured = [value for value in seconds if value is not None]
    return Costs(by_instance, math.fsum(measured) if len(measured) == len(seconds) else None)


def read_rows(path: Path, needed: Iterable[str]) -> list[dict[str, Any]]:
    """Rows of a Parquet file that must have certain columns.

    Raises:
        DataError: If the file is missing, truncated, or lacks a column.
    """
    if not path.is_file():
        raise MissingResultsError(f"{path} does not exist; run the command that makes it")
    try:
        table = pq.read_table(path, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is no complete Parquet file; delete it and make it again") from error
    lacking = [name for name in needed if name not in table.column_names]
    if lacking:
        raise DataError(f"{path} lacks the columns {', '.join(lacking)}; delete it and make it again")
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise MissingResultsError(f"{path} does not exist; make it with: snakemake --cores all train")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is no complete JSON file; delete it and train the run again") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} must hold a JSON object, got {type(content).__name__}; train the run again")
    return content
