"""A finished run as a model that ships with the package: complete, of one training, and every tour verified exactly."""

import json
import logging
import shutil
from collections.abc import Mapping
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
from polarvrp.study.runs import RunSpec
from polarvrp.study.shipped import MODEL_FILES, WEIGHTS, shipped_name
from polarvrp.study.specs import parse_train_spec

logger = logging.getLogger(__name__)

LARGEST_WEIGHTS = 30 * 2**20
"""Bytes that the weights of a shipped model must stay below."""


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
    if exists(folder) and not exists(folder / MODEL_FILES[-1]) and any(folder.iterdir()):
        raise DataError(f"{folder} exists and holds no model; move it away or choose another --output")
    require_output(folder / MODEL_FILES[-1], ".json", {"num_customers": run.num_customers}, [model / MODEL_FILES[-1]])
    fingerprint = _require_finished(run, model)
    evaluations = _evaluations(run, layout)
    searched = _searched(run, layout)
    references = _references(run, layout, evaluations)
    solved = evaluations | searched
    for source, instances in progress(solved.items(), len(solved), f"checking {run.name}", "file"):
        _require_origin(source, fingerprint)
        _require_solved(source, instances)
    for source, instances in references.items():
        _require_solved(source, instances)
    with atomic_folder(folder) as temporary:
        for name in MODEL_FILES:
            shutil.copyfile(model / name, temporary / name)
        for part, sources in (("evaluations", evaluations), ("local_search", searched)):
            for source, instances in sources.items():
                (temporary / part).mkdir(exist_ok=True)
                shutil.copyfile(source, temporary / part / ("set_x.parquet" if instances is None else source.name))
        for source in references:
            target = temporary / source.relative_to(results)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
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
    try:
        metadata = json.loads((model / "metadata.json").read_text(encoding="utf-8"))
        fingerprint, spec, epochs = str(metadata["fingerprint"]), metadata["spec"], metadata["epochs"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{model / 'metadata.json'} is no metadata of a training; train {run.name} again") from error
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


def _evaluations(run: RunSpec, layout: Layout) -> dict[Path, Path | None]:
    """Files of solutions to ship, each with its test set, None for Set-X."""
    found: dict[Path, Path | None] = {}
    missing = []
    for variant in VARIANTS:
        source = layout.evaluation(run.name, variant, run.num_customers)
        if source.is_file():
            found[source] = layout.dataset("test", variant, run.num_customers)
        elif variant in TRAINING_VARIANTS:
            raise DataError(f"{source} does not exist; evaluate {run.name} on all 16 training variants first")
        else:
            missing.append(variant)
    set_x = layout.set_x(run.name)
    if set_x.is_file():
        found[set_x] = None
    else:
        missing.append("Set-X")
    if missing:
        logger.info("%s ships without %s", run.name, ", ".join(missing))
    return found


def _searched(run: RunSpec, layout: Layout) -> dict[Path, Path | None]:
    """Solutions after one local search, where there are any, each with its test set."""
    return {
        source: layout.dataset("test", variant, run.num_customers)
        for variant in VARIANTS
        if (source := layout.searched_evaluation(run.name, variant, run.num_customers)).is_file()
    }


def _references(run: RunSpec, layout: Layout, evaluations: Mapping[Path, Path | None]) -> dict[Path, Path]:
    """Solutions that gaps are taken to, each with its test set; none where there are published ones."""
    if run.num_customers in PUBLISHED_SIZES:
        return {}
    found = {}
    for variant in VARIANTS:
        instances = layout.dataset("test", variant, run.num_customers)
        if instances in evaluations.values():
            source = layout.reference("test", "pyvrp", variant, run.num_customers)
            if not source.is_file():
                raise DataError(f"{source} does not exist; solve {instances} with `polarvrp reference` first")
            found[source] = instances
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


def _require_solved(path: Path, instances: Path | None) -> None:
    """Verify every tour of a file of solutions, and that it has one of each instance of its test set."""
    verdict = check_set_x(path) if instances is None else check_set(instances, path)
    problem = next(iter(verdict.problems), None)
    if problem is not None:
        raise DataError(f"{path}: {problem}; run polarvrp check on it")
    if len(verdict.costs) < verdict.rows:
        raise DataError(f"{path}: {verdict.rows - len(verdict.costs)} instances have no solution; evaluate again")
    if instances is not None and (held := count_instances(instances)) != verdict.rows:
        raise DataError(f"{path} solves {verdict.rows} of the {held} instances of {instances}; evaluate them all")
