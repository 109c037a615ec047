"""Models at hand, shipped and local: what they are, what they were trained on, and their gaps; loads no torch."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

from polarvrp.errors import PolarvrpError
from polarvrp.evaluation.gaps import summarise_gaps
from polarvrp.problem.gaps import gap_percent
from polarvrp.problem.variants import TRAINING_VARIANTS, VARIANTS, ZERO_SHOT_VARIANTS
from polarvrp.solutions.checking import read_set_x
from polarvrp.solutions.origin import Origin
from polarvrp.study import shipped
from polarvrp.study.layout import Layout
from polarvrp.study.specs import parse_train_spec
from polarvrp.study.weights import weights_header
from polarvrp.tables.means import complete_mean
from polarvrp.tables.sources import InstanceSet, read_costs, reference_of

_LOGGER = logging.getLogger(__name__)

Evaluation: TypeAlias = Callable[[str, int], Path]
"""Where a model's solutions of a test set are, by variant and size."""


@dataclass(frozen=True, slots=True)
class MeanGap:
    """A mean gap and over how much it was taken.

    Attributes:
        percent: Mean over variants of the mean gap of their instances, or over instances of Set-X.
        count: Of variants or instances.
    """

    percent: float
    count: int


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model at hand.

    Attributes:
        name: What ``--model`` takes.
        run: Its training; for converted weights the name that they were given.
        num_customers: Size that it was trained on; it solves any.
        parameters: Number of them.
        variants: What it was trained on, in words.
        training_gap: On the 16 training variants at its own size, where they were evaluated and have a reference.
        zero_shot_gap: On the other 32, likewise.
        set_x_gap: On Set-X with rounded distances, where it was evaluated.
    """

    name: str
    run: str
    num_customers: int
    parameters: int
    variants: str
    training_gap: MeanGap | None = None
    zero_shot_gap: MeanGap | None = None
    set_x_gap: MeanGap | None = None


def listed_models(roots: Sequence[Path]) -> list[ListedModel]:
    """Shipped models, then those below each folder of results; unusable ones are reported and left out.

    Args:
        roots: Folders of results, those of the scales.
    """
    models = []
    for folder in sorted(path.parent for path in shipped.SHIPPED.glob(f"{shipped.PREFIX}*/{shipped.WEIGHTS}")):
        evaluation, set_x = partial(shipped.solutions_path, folder), shipped.set_x_path(folder)
        models += _usable(folder, folder.name, Layout(folder), evaluation, set_x)
    for root in roots:
        for path in sorted(root.glob(f"models/*/{shipped.WEIGHTS}")):
            run, layout = path.parent.name, Layout(root)
            name = run if layout == Layout() else str(path.parent)
            evaluation, set_x = partial(layout.evaluation, run), layout.set_x(run)
            models += _usable(path.parent, name, layout, evaluation, set_x)
    return models


def _usable(folder: Path, name: str, layout: Layout, evaluation: Evaluation, set_x: Path) -> list[ListedModel]:
    try:
        return [_listed(folder, name, layout, evaluation, set_x)]
    except PolarvrpError as error:
        _LOGGER.warning("%s is left out: %s", folder, " ".join(str(error).splitlines()))
        return []


def _listed(folder: Path, name: str, layout: Layout, evaluation: Evaluation, set_x: Path) -> ListedModel:
    tensors = weights_header(folder / shipped.WEIGHTS)
    said = json.loads(tensors.pop("__metadata__", {}).get("polarvrp", "{}"))
    metadata, network = said.get("metadata", {}), said.get("model", {})
    run, size = str(metadata.get("run")), int(network.get("num_customers", 0))
    return ListedModel(
        name,
        run,
        size,
        sum(prod(tensor["shape"]) for tensor in tensors.values()),
        _trained_on(metadata.get("spec")),
        _variants_gap(layout, evaluation, TRAINING_VARIANTS, run, size),
        _variants_gap(layout, evaluation, ZERO_SHOT_VARIANTS, run, size),
        _set_x_gap(set_x),
    )


def _trained_on(spec: Mapping[str, Any] | None) -> str:
    """Variants of a training in words: ``16``, ``all 48``, else their names."""
    if spec is None:
        return "unknown"
    _, training = parse_train_spec(spec)
    drawn = set(training.drawn_variants)
    if drawn == set(VARIANTS):
        return f"all {len(VARIANTS)}"
    return f"{len(drawn)}" if drawn == set(TRAINING_VARIANTS) else ", ".join(v for v in VARIANTS if v in drawn)


def _variants_gap(
    layout: Layout, evaluation: Evaluation, variants: Iterable[str], run: str, size: int
) -> MeanGap | None:
    gaps = []
    for variant in variants:
        path = evaluation(variant, size)
        reference = reference_of(layout, InstanceSet(variant, size)) if path.is_file() else None
        if reference is not None:
            instances = layout.dataset("test", variant, size)
            costs = read_costs(path, Origin(variant, size, "run", run), instances)["cost"]
            gap = summarise_gaps(costs.to_numpy(), reference.reindex(costs.index).to_numpy()).gap_percent
            gaps += [] if gap is None else [gap]
    return MeanGap(complete_mean(gaps), len(gaps)) if gaps else None


def _set_x_gap(path: Path) -> MeanGap | None:
    if not path.is_file():
        return None
    gaps = [gap_percent(row["cost"], row["best_known"]) for row in read_set_x(path)]
    return MeanGap(complete_mean(gaps), len(gaps)) if gaps else None
