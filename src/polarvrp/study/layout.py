"""Every path below ``results/``, for the workflow and the commands alike; imports nothing heavy."""

from dataclasses import dataclass
from pathlib import Path

from polarvrp.catalog.scales import SCALES

RESULTS = Path("results")

TABLE_SUFFIXES = ("parquet", "csv", "md", "tex")
FIGURE_SUFFIXES = ("png", "pdf")

STRICT_RULES = "strict"
"""The first of the protocols of unseen variants, and the one of all other tests."""

UNSEEN_SPLITS = {
    STRICT_RULES: "test",
    "strict-masked": "test-masked",
    "published": "test-published",
    "published-masked": "test-published-masked",
}
"""Folder of solutions of unseen variants by protocol, in the order of tables.

The rules are those of ``environment.Protocol``; ``MASKED`` hides from networks the flags that no training set.
"""

MASKED = "-masked"
"""Ending of such protocols."""


def unseen_protocols(*, masked: bool) -> tuple[str, ...]:
    """Protocols of unseen variants that hide flags, or those that do not; in the order of tables."""
    return tuple(name for name in UNSEEN_SPLITS if name.endswith(MASKED) == masked)


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of results below one root, so that scales need not share files.

    Names may be wildcards of the workflow, ``"{variant}"``; sizes are then given as text.

    Attributes:
        root: The folder that holds everything.
    """

    root: Path = RESULTS

    @classmethod
    def of_scale(cls, scale: str) -> "Layout":
        """Paths of a study, in the folder that its scale's record tells."""
        return cls(RESULTS / scale if SCALES[scale].own_folder else RESULTS)

    def dataset(self, split: str, variant: str, num_customers: int | str) -> Path:
        """A test or validation set."""
        return self.root / "datasets" / split / f"{variant}-n{num_customers}.npz"

    def reference(self, split: str, solver: str, variant: str, num_customers: int | str) -> Path:
        """A solver's solutions of a set."""
        return self.root / "references" / split / solver / f"{variant}-n{num_customers}.parquet"

    def reference_chunk(
        self, split: str, solver: str, variant: str, num_customers: int | str, start: int | str
    ) -> Path:
        """A solver's solutions of a part of a set."""
        folder = self.root / "references" / split / solver / "chunks"
        return folder / f"{variant}-n{num_customers}-{start}.parquet"

    def limited(self, solver: str, part: float | str, variant: str, num_customers: int | str) -> Path:
        """A solver's solutions of a test set in a part of its time limit."""
        return self.root / "references" / "limits" / f"{solver}-{part}" / f"{variant}-n{num_customers}.parquet"

    def model(self, run: str) -> Path:
        """Folder of a trained model."""
        return self.root / "models" / run

    def weights(self, run: str) -> Path:
        """Its network."""
        return self.model(run) / "weights.safetensors"

    def model_config(self, run: str) -> Path:
        """Every setting that it was trained by."""
        return self.model(run) / "config.yaml"

    def history(self, run: str) -> Path:
        """What its training recorded, a row an epoch."""
        return self.model(run) / "history.parquet"

    def metadata(self, run: str) -> Path:
        """Where, when and by what it was trained."""
        return self.model(run) / "metadata.json"

    def checkpoints(self, run: str) -> Path:
        """States of a training, a subfolder a specification; no output of the workflow."""
        return self.root / "checkpoints" / run

    def evaluation(self, run: str, variant: str, num_customers: int | str, split: str = "test") -> Path:
        """A trained model's solutions of a set."""
        return self.root / "evaluations" / split / run / f"{variant}-n{num_customers}.parquet"

    def unseen_evaluation(self, run: str, variant: str, num_customers: int | str, protocol: str) -> Path:
        """The same of the test set of an unseen variant, by one of the protocols of ``UNSEEN_SPLITS``."""
        return self.evaluation(run, variant, num_customers, UNSEEN_SPLITS[protocol])

    def searched_evaluation(self, run: str, variant: str, num_customers: int | str) -> Path:
        """The same after one local search; no output of the workflow."""
        return self.evaluation(run, variant, num_customers, "test-local-search")

    def shipped_evaluation(self, model: str, variant: str, num_customers: int | str) -> Path:
        """A study's own solutions of a set by a model that ships."""
        return self.root / "evaluations" / "shipped" / model / f"{variant}-n{num_customers}.parquet"

    def set_x(self, run: str) -> Path:
        """A trained model's solutions of CVRPLIB's Set-X."""
        return self.root / "set_x" / f"{run}.parquet"

    def analysis(self, run: str, name: str) -> Path:
        """What an analysis found in a trained model or its training."""
        return self.root / "analysis" / run / f"{name}.parquet"

    @property
    def architectures(self) -> Path:
        """Size of every network, which no training changes."""
        return self.root / "analysis" / "architectures.parquet"

    def solved(self, file: str) -> Path:
        """Solution of one of the user's own files, named by its path below its folder."""
        return self.root / "solve" / file / "solutions.parquet"

    def table(self, name: str, suffix: str = "parquet") -> Path:
        """A table in one of ``TABLE_SUFFIXES``."""
        return self.root / "tables" / f"{name}.{suffix}"

    def figure(self, name: str, suffix: str = "png") -> Path:
        """A figure in one of ``FIGURE_SUFFIXES``."""
        return self.root / "figures" / f"{name}.{suffix}"

    @property
    def report(self) -> Path:
        """The page of all tables and figures."""
        return self.root / "report.html"

    def log(self, rule: str, name: str) -> Path:
        """What a job of the workflow printed."""
        return self.root / "logs" / rule / f"{name}.log"
