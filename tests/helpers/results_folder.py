"""Small result folders of the real layout, for the tests of tables, and the rows of tables built from them."""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from helpers.analysis_files import architecture_file, embedding_file, expert_file, margin_file
from polarvrp.catalog.experiments import EXPERIMENTS
from polarvrp.catalog.methods import METHODS
from polarvrp.problem.variants import TRAINING_VARIANTS, VARIANTS
from polarvrp.solutions.rows import SolutionRow
from polarvrp.solutions.solutions import write_solutions
from polarvrp.study.runs import parse_run
from polarvrp.tables.build import build_table
from polarvrp.tables.paper import read_paper
from polarvrp.tables.sources import MissingResultsError, Results

HISTORY_COLUMNS = (
    *("learning_rate", "loss", "sampled_cost", "greedy_cost", "best_cost", "validation_gap_percent", "seconds"),
    *("seconds_generate", "seconds_encode", "seconds_rollout", "seconds_score", "seconds_backward"),
    *("seconds_optimiser", "seconds_refine", "instances_per_second", "peak_memory_gb"),
    *("refined_tours", "refinement_improvement_percent"),
)
DEFAULTS = {"temperature": 0.05, "refined_tours": 1, "refinement_start_epoch": 250}


class ResultsFolder:
    """Writes references, evaluations, Set-X costs and trainings as the other commands do."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def solve(
        self,
        method: str,
        variant: str,
        num_customers: int,
        costs: Iterable[float | None],
        seconds: float = 0.5,
        actions: tuple[int, ...] = (1, 0, 2),
        split: str = "test",
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Costs of a solver or a run on the first instances of a test set; None where nothing was found."""
        key: Literal["solver", "run"] = "solver" if method in {"pyvrp", "ortools", "best_known"} else "run"
        folder = self.root / ("references" if key == "solver" else "evaluations") / split / method
        rows = [
            SolutionRow(
                variant=variant,
                num_customers=num_customers,
                instance=instance,
                method=method,
                cost=cost,
                actions=() if cost is None else actions,
                routes=0 if cost is None else 2,
                seconds=seconds,
                max_violation=None if cost is None else 0.0,
                reason="nothing found" if cost is None else None,
            )
            for instance, cost in enumerate(costs)
        ]
        write_solutions(folder / f"{variant}-n{num_customers}.parquet", rows, key=key, metadata=metadata)

    def evaluate(
        self,
        run: str,
        gaps: float | list[float],
        variants: Sequence[str] = TRAINING_VARIANTS,
        reference: float = 10.0,
    ) -> None:
        """Costs of a run with the given gap in percent on each variant; PyVRP's costs are ``reference``."""
        size = parse_run(run).num_customers
        of_variants = gaps if isinstance(gaps, list) else [gaps] * len(variants)
        for variant, gap in zip(variants, of_variants, strict=True):
            self.solve("pyvrp", variant, size, [reference, reference])
            self.solve(run, variant, size, [reference * (1 + gap / 100)] * 2)

    def train(
        self,
        run: str,
        epoch_seconds: Sequence[float] = (10.0, 20.0),
        refined: Sequence[int] = (0, 1),
        memory: Sequence[float | None] = (3.0, 4.0),
        parameters: object = 1000,
        **changed: Any,
    ) -> None:
        """History and metadata of a training; ``changed`` replaces swept values of its specification."""
        folder = self.root / "models" / run
        spec = parse_run(run)
        falling = [1.0 / (epoch + 1) for epoch in range(len(epoch_seconds))]
        columns: dict[str, list[Any]] = dict.fromkeys(HISTORY_COLUMNS, falling)
        columns |= {"seconds": list(epoch_seconds), "peak_memory_gb": list(memory), "refined_tours": list(refined)}
        table = pa.table({"epoch": list(range(1, len(epoch_seconds) + 1)), **columns})
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / "history.parquet")
        values: dict[str, Any] = DEFAULTS | changed
        metadata = {
            "run": run,
            "backbone": spec.backbone,
            "encoder": spec.encoder,
            "paradigm": spec.paradigm,
            "num_customers": spec.num_customers,
            "seed": spec.seed,
            "parameters": parameters,
            "device": "cpu",
            "total_seconds": sum(epoch_seconds),
            "epochs": len(epoch_seconds),
            "fingerprint": f"print-of-{run}",
            "spec": {"model": {"task_experts": values.pop("task_experts", 3)}, "training": values},
        }
        (folder / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")

    def solve_set_x(self, run: str, costs: Mapping[str, tuple[float, float, float]]) -> None:
        """Costs by instance, each as (best known, cost, published cost)."""
        rows = [
            {"instance": name, "best_known": known, "cost": cost, "gap_percent": 100 * (cost - known) / known}
            | {"seconds": 1.0, "actions": [1, 2], "published_cost": published}
            | {"published_gap_percent": 100 * (published - known) / known}
            for name, (known, cost, published) in costs.items()
        ]
        (self.root / "set_x").mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), self.root / "set_x" / f"{run}.parquet")


def whole_study(root: Path) -> ResultsFolder:
    """Results of every experiment at the sizes of scale quick.

    All main methods and two seeds of ours on the training variants and on all of Set-X, few variants of the rest.
    """
    folder = ResultsFolder(root)
    draw = random.Random(0)
    references = {(variant, size): draw.uniform(5, 20) for variant in VARIANTS for size in (10, 20)}
    paper, unseen = read_paper("set_x"), ("VRPMB", "OVRPMBLTW", "MDVRP", "MDOVRPMBLTW")
    best_known = {str(name): float(cost) for name, cost in zip(paper["instance"], paper["best_known"], strict=True)}

    def evaluate(run: str, variants: Iterable[str]) -> None:
        size = parse_run(run).num_customers
        for variant in variants:
            folder.solve(run, variant, size, [references[variant, size] * draw.uniform(1, 1.3)] * 2, seconds=0.01)

    def train(run: str, variants: Iterable[str] = ("CVRP", "OVRPBLTW"), **changed: Any) -> None:
        evaluate(run, variants)
        folder.train(run, parameters=draw.randrange(10**6, 10**7), **changed)

    for (variant, size), cost in references.items():
        if variant not in (*TRAINING_VARIANTS, *unseen):
            continue
        for solver in ("pyvrp", "ortools"):
            folder.solve(solver, variant, size, [cost] * 2, seconds=10)
    stems = [stem for stem, record in METHODS.items() if record.source is None]
    for run in (f"{stem}-n{size}-s0" for stem in (*stems, "polarnet-shared-polar") for size in (10, 20)):
        train(run, TRAINING_VARIANTS)
    train(f"{stems[-1]}-n10-s1", TRAINING_VARIANTS)
    for run in [f"{stem}-n10-s0" for stem in stems] + [f"{stems[-1]}-n10-s1"]:
        evaluate(run, unseen)
        for variant in unseen:
            folder.solve(run, variant, 10, [1.1 * references[variant, 10]] * 2, split="test-published")
        folder.solve_set_x(run, {name: (best, 1.1 * best, 1.1 * best + 1) for name, best in best_known.items()})
    for tail in ("ple-rl-n10", "ple-po-n10", "deep-polar-n10", "shared-po-n10", "shared-polar-n10-k2"):
        train(f"polarnet-{tail}-s0")
    train("polarnet-ple-polar-n10-kappa2-s0", task_experts=2)
    train("polarnet-ple-polar-n10-ls0-s0", refinement_start_epoch=0)
    for paradigm in ("po", "polar"):
        train(f"polarnet-shared-{paradigm}-n10-alpha0.01-s0", temperature=0.01)
        margin_file(root, f"polarnet-ple-{paradigm}-n10-s0", (0.5, 0.25), 1 if paradigm == "polar" else None)
    expert_file(root, "polarnet-ple-polar-n10-s0")
    for encoder, angle in (("shared", 0.1), ("ple", 0.8)):
        embedding_file(root, f"polarnet-{encoder}-polar-n10-s0", angle)
    architecture_file(root, (10, 20))
    return folder


def table_rows(results: Results, name: str) -> list[dict[str, Any]]:
    """Rows of a table, a dictionary each, None where a value is missing; no rows where it has no results."""
    try:
        frame = build_table(results, EXPERIMENTS[name])
    except MissingResultsError as error:
        if "has no results" not in str(error):
            raise
        return []
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [{str(key): value for key, value in row.items()} for row in rows]
