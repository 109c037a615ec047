"""Methods that the main tables compare: solvers, published solutions, and networks as their authors published them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One row of the main tables.

    Attributes:
        label: As tables print it.
        backbone: Of a trained method; None for an external one.
        encoder: Likewise.
        paradigm: Likewise.
        source: Where the costs of an external method come from: a solver's name, or ``published-`` and that name.
    """

    label: str
    backbone: str | None = None
    encoder: str | None = None
    paradigm: str | None = None
    source: str | None = None

    @property
    def stem(self) -> str:
        """Its key in tables: the source, or a run's name without size and seed."""
        return self.source or f"{self.backbone}-{self.encoder}-{self.paradigm}"


OWN = Method(label="Ours", backbone="polarnet", encoder="ple", paradigm="polar")
"""The paper's own method. Code finds it by its stem, whatever its row in ``METHODS`` is labelled."""

METHODS: dict[str, Method] = {
    record.stem: record
    for record in (
        Method(label="PyVRP (published)", source="published-pyvrp"),
        Method(label="PyVRP", source="pyvrp"),
        Method(label="OR-Tools (published)", source="published-ortools"),
        Method(label="OR-Tools", source="ortools"),
        Method(label="MTPOMO", backbone="mtpomo", encoder="shared", paradigm="rl"),
        Method(label="MVMoE", backbone="mvmoe", encoder="shared", paradigm="rl"),
        Method(label="RouteFinder", backbone="routefinder", encoder="shared", paradigm="rl"),
        Method(label="CaDA", backbone="cada", encoder="shared", paradigm="rl"),
        Method(label="FiLMMeD(CaDA)", backbone="filmmed", encoder="shared", paradigm="po"),
        Method(label="MoSES(CaDA)", backbone="moses", encoder="shared", paradigm="rl"),
        OWN,
    )
}
"""In the order of the printed tables."""

PUBLISHED = "published-"
"""Start of the name of a source that others published."""

EXTERNAL = "external-"
"""Start of the name of a method whose solutions were imported."""

SOLVERS = ("pyvrp", "ortools")
"""Solvers that references are computed with, and whose solutions were published."""

REFERENCES = (f"{PUBLISHED}pyvrp", "pyvrp", "best_known")
"""What gaps can be taken to; ``best_known`` files are those of ``polarvrp reference --best-of``."""

PUBLISHED_SIZES = (50, 100)
"""Customers of the test sets that solutions were published of."""

PUBLISHED_SEED = 1234
"""Seed of those test sets."""


def published_method(backbone: str) -> Method:
    """The method that trains a backbone as its authors published it.

    Raises:
        KeyError: If no method does.
    """
    method = method_of(backbone)
    if method is None:
        raise KeyError(backbone)
    return method


def method_of(backbone: str) -> Method | None:
    """The method that trains a backbone as its authors published it, None where none does."""
    return next((record for record in METHODS.values() if record.backbone == backbone), None)
