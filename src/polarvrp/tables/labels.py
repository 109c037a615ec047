"""Methods, variants and instances as printed tables name and order them."""

import re
from collections.abc import Iterable, Mapping

import pandas as pd

from polarvrp.catalog.backbones import BACKBONES
from polarvrp.catalog.methods import EXTERNAL, METHODS, OWN, PUBLISHED, SOLVERS
from polarvrp.study.layout import STRICT_RULES
from polarvrp.tables.paper import IN_DISTRIBUTION_ORDER, ZERO_SHOT_ORDER

_VARIANT_RANKS = {name: rank for rank, name in enumerate((*IN_DISTRIBUTION_ORDER, *ZERO_SHOT_ORDER))}

OURS = "Ours"
"""What the paper's tables call its own method."""

_REFERENCES = {
    "published-pyvrp": "the published PyVRP costs",
    "pyvrp": "our PyVRP costs",
    "best_known": "the best known costs",
}

SHIPPED = "shipped-n"
"""Start of the names of shipped models in tables; their size follows."""

AVERAGE = "Average"
"""Name of the rows that average over variants."""

LABELS = "labels"
"""Attribute of a table's frame: label of each compared method by its stem, in order."""


def references_said(references: Iterable[str | None]) -> str:
    """What gaps are to, in words.

    Args:
        references: Names of references, missing where there is none.
    """
    names = sorted({name for name in references if isinstance(name, str)})
    return " or ".join(_REFERENCES[name] for name in names) or "no reference"


def stem_of(method: str) -> str:
    """A method's name without its seed."""
    return re.sub(r"-s\d+$", "", method)


def seed_of(method: str) -> int:
    """Seed in a method's name, 0 for a solver."""
    match = re.search(r"-s(\d+)$", method)
    return int(match[1]) if match else 0


def seeds_of(methods: Iterable[str]) -> set[int]:
    """Seeds of the trained runs among some methods; solvers, imported solutions and shipped models have none."""
    return {seed_of(method) for method in methods if method != stem_of(method)}


def is_external(method: str) -> bool:
    """Whether a method is no trained run: a solver, a published reference, another source, or imported solutions."""
    if is_imported(method):
        return True
    record = METHODS.get(method)
    return method.removeprefix(PUBLISHED) in SOLVERS if record is None else record.source is not None


def is_imported(method: str) -> bool:
    """Whether a method's solutions were imported."""
    return method.startswith(EXTERNAL)


def shipped_method(num_customers: int) -> str:
    """Name in tables of the shipped model of a size."""
    return f"{SHIPPED}{num_customers}"


def is_shipped(method: str) -> bool:
    """Whether a method is a model that ships with the package."""
    return method.startswith(SHIPPED)


def catalog_labels() -> dict[str, str]:
    """Label of each method of the catalog by its stem, in the order of the printed tables."""
    return {stem: record.label for stem, record in METHODS.items()}


def own_labels() -> tuple[str, str]:
    """Labels of the paper's own method and of its network."""
    return METHODS[OWN.stem].label, BACKBONES[str(OWN.backbone)].label


def printed_stems() -> dict[str, str]:
    """Stem of each method by the paper's label, of a solver as we run it."""
    return {record.label: stem for stem, record in METHODS.items() if not stem.startswith(PUBLISHED)} | {OURS: OWN.stem}


def as_in_the_paper(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows that correspond to the paper's: of methods solved by the published protocol too, those alone."""
    if "protocol" not in frame:
        return frame
    published, strict = (frame["protocol"] == name for name in ("published", STRICT_RULES))
    return frame[published | (strict & ~frame["method"].isin(frame["method"][published]))]


def labels_of(frame: pd.DataFrame) -> dict[str, str]:
    """Labels that a table's frame carries, else those of the catalog."""
    labels: dict[str, str] = frame.attrs.get(LABELS) or catalog_labels()
    return labels


def method_label(method: str, labels: Mapping[str, str]) -> str:
    """Label of a method, with its seed unless that is 0; a method without a label by its own name."""
    if is_shipped(method):
        return f"{METHODS[OWN.stem].label} (shipped, n={method.removeprefix(SHIPPED)})"
    label = labels.get(stem_of(method))
    if label is None:
        return method
    return f"{label}, seed {seed_of(method)}" if seed_of(method) else label


def method_rank(method: str, labels: Mapping[str, str]) -> tuple[int, str]:
    """Sort key: methods with a label in the order of the labels, then shipped models by size, then the rest by name."""
    order, stem = list(labels), stem_of(method)
    if is_shipped(method):
        return len(order), f"{int(method.removeprefix(SHIPPED)):09}"
    return order.index(stem) if stem in labels else len(order) + 1, method


def variant_rank(variant: str) -> int:
    """Sort key: the paper's row order."""
    return _VARIANT_RANKS[variant]


def instance_rank(instance: str) -> tuple[int, str]:
    """Sort key: Set-X by growing number of nodes."""
    match = re.match(r"X-n(\d+)", instance)
    return int(match[1]) if match else 0, instance
