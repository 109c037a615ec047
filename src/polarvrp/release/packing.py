"""A finished run as a model that ships with the package: complete, of one training, and every tour verified exactly."""

import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from polarvrp.catalog.methods import PUBLISHED_SIZES
from polarvrp.errors import CheckpointMismatchError, DataError
from polarvrp.files import atomic_folder, exists, provenance, read_parquet
from polarvrp.model.saving import load_policy
from polarvrp.outputs import require_output
from polarvrp.problem.datasets import count_instances
from polarvrp.problem.variants import TRAINING_VARIANTS, VARIANTS
from polarvrp.progress import progress
from polarvrp.solutions.checking import check_set, check_set_x
from polarvrp.study.layout import Layout
from polarvrp.study.metadata import require_recorded
from polarvrp.study.runs import RunSpec
from polarvrp.study.shipped import (
    MODEL_FILES,
    WEIGHTS,
    metadata_path,
    searched_solutions_path,
    set_x_path,
    shipped_name,
    solutions_path,
)
from polarvrp.study.specs import parse_train_spec

logger = logging.getLogger(__name__)

LARGEST_WEIGHTS = 30 * 2**20
"""Bytes that the weights of a shipped model must stay below."""


@dataclass(frozen=True, slots=True)
class _Solved:
    """A file of solutions that ships.

    Attributes:
        source: The file among the results.
        place: The file below the model's folder.
        instances: Its test set; None for Set-X.
    """

    source: Path
    place: Path
    instances: Path | None


def pack_model(run: RunSpec, results: Path, output: Path) -> Path:
    """Write a finished run as a shipped model, or nothing.

    The evaluations of all 16 training variants are needed; those of the others and of Set-X are taken where they exist.
    At a size without published costs, PyVRP's references of the same sets come along; solutions after local search
    where they exist.

    Args:
        run: The run.
        results: Folder of results, with the model, its evaluations and the test sets.
        output: Folder of shipped models; the model's own folder in it is replaced.

    Returns:
        The model's folder.

    Raises:
        DataError: If the folder holds something else, a file is missing, unusable or too large, the training is
            unfinished, an instance has no solution or a tour is wrong.
        CheckpointMismatchError: If the files are not all of one training.
    """
    layout, folder = Layout(results), output / shipped_name(run.num_customers)
    model = layout.model(run.name)
    if exists(folder) and not exists(metadata_path(folder)) and any(folder.iterdir()):
        raise DataError(f"{folder} exists and holds no model; move it away or choose another --output")
    require_output(metadata_path(folder), ".json", {"num_customers": run.num_customers}, [metadata_path(model)])
    fingerprint = _require_finished(run, model)
    evaluations = _evaluations(run, layout)
    references = _references(run, layout, evaluations)
    solved = [*evaluations, *_searched(run, layout)]
    for part in progress(solved, len(solved), f"checking {run.name}", "file"):
        _require_origin(part.source, fingerprint)
        _require_solved(part)
    for part in references:
        _require_solved(part)
    with atomic_folder(folder) as temporary:
        for name in MODEL_FILES:
            shutil.copyfile(model / name, temporary / name)
        for part in (*solved, *references):
            target = temporary / part.place
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(part.source, target)
    return folder


def _require_finished(run: RunSpec, model: Path) -> str:
    """Verify the files of the model; the fingerprint of its training."""
    for name in MODEL_FILES:
        if not (model / name).is_file():
            raise DataError(f"{model / name} does not exist; train {run.name} to its end first")
    size = (model / WEIGHTS).stat().st_size
    if size >= LARGEST_WEIGHTS:
        raise DataError(f"{model / WEIGHTS} has {size / 2**20:.1f} MiB, a shipped model less than 30")
    _, header = load_policy(model / WEIGHTS)
    metadata = require_recorded(metadata_path(model), ("fingerprint", "spec", "epochs"), f"train {run.name} again")
    fingerprint, spec, epochs = str(metadata["fingerprint"]), metadata["spec"], metadata["epochs"]
    said = header["metadata"]
    for source, found in (("weights", said.get("fingerprint")), ("history", _origin(model / "history.parquet"))):
        if found != fingerprint:
            raise CheckpointMismatchError(f"{model}: {source} of training {found}, metadata of {fingerprint}")
    if (said.get("run"), metadata.get("run")) != (run.name, run.name):
        raise CheckpointMismatchError(f"{model} holds {said.get('run')}, not {run.name}")
    wanted = parse_train_spec(spec)[1].total_epochs
    if epochs != wanted:
        raise DataError(f"{model} has {epochs} epochs of {wanted}; train {run.name} to its end first")
    return fingerprint


def _evaluations(run: RunSpec, layout: Layout) -> list[_Solved]:
    """The model's solutions of test sets and of Set-X."""
    found: list[_Solved] = []
    missing, size = [], run.num_customers
    for variant in VARIANTS:
        source = layout.evaluation(run.name, variant, size)
        if source.is_file():
            place = solutions_path(Path(), variant, size)
            found.append(_Solved(source, place, layout.dataset("test", variant, size)))
        elif variant in TRAINING_VARIANTS:
            raise DataError(f"{source} does not exist; evaluate {run.name} on all 16 training variants first")
        else:
            missing.append(variant)
    set_x = layout.set_x(run.name)
    if set_x.is_file():
        found.append(_Solved(set_x, set_x_path(Path()), None))
    else:
        missing.append("Set-X")
    if missing:
        logger.info("%s ships without %s", run.name, ", ".join(missing))
    return found


def _searched(run: RunSpec, layout: Layout) -> list[_Solved]:
    """Solutions after one local search, where there are any."""
    size = run.num_customers
    return [
        _Solved(source, searched_solutions_path(Path(), variant, size), layout.dataset("test", variant, size))
        for variant in VARIANTS
        if (source := layout.searched_evaluation(run.name, variant, size)).is_file()
    ]


def _references(run: RunSpec, layout: Layout, evaluations: Sequence[_Solved]) -> list[_Solved]:
    """Solutions that gaps are taken to; none where there are published ones."""
    if run.num_customers in PUBLISHED_SIZES:
        return []
    found: list[_Solved] = []
    solved = {part.instances for part in evaluations}
    for variant in VARIANTS:
        instances = layout.dataset("test", variant, run.num_customers)
        if instances in solved:
            source = layout.reference("test", "pyvrp", variant, run.num_customers)
            if not source.is_file():
                raise DataError(f"{source} does not exist; solve {instances} with `polarvrp reference` first")
            found.append(_Solved(source, source.relative_to(layout.root), instances))
    return found


def _require_origin(path: Path, fingerprint: str) -> None:
    found = _origin(path)
    if found != fingerprint:
        raise CheckpointMismatchError(f"{path} is of training {found}, the weights of {fingerprint}; evaluate again")


def _origin(path: Path) -> str | None:
    """Fingerprint of the training that a Parquet file says it comes from."""
    said = provenance(read_parquet(path))
    model = said.get("model", said)
    return model.get("fingerprint") if isinstance(model, dict) else None


def _require_solved(part: _Solved) -> None:
    """Verify every tour of a file of solutions, and that it has one of each instance of its test set."""
    path, instances = part.source, part.instances
    verdict = check_set_x(path) if instances is None else check_set(instances, path)
    problem = next(iter(verdict.problems), None)
    if problem is not None:
        raise DataError(f"{path}: {problem}; run polarvrp check on it")
    if len(verdict.costs) < verdict.rows:
        raise DataError(f"{path}: {verdict.rows - len(verdict.costs)} instances have no solution; evaluate again")
    if instances is not None and (held := count_instances(instances)) != verdict.rows:
        raise DataError(f"{path} solves {verdict.rows} of the {held} instances of {instances}; evaluate them all")
