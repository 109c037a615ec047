"""Long tables of gaps on the test sets (``in_distribution``, ``zero_shot``) and of costs on Set-X (``set_x``)."""

import re
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from polarvrp.catalog.methods import SOLVERS
from polarvrp.errors import DataError
from polarvrp.evaluation.gaps import GapSummary, instance_gaps_percent, summarise_gaps
from polarvrp.study.runs import RunSpec
from polarvrp.tables.paper import IN_DISTRIBUTION_ORDER, METHODS, PAPER_SCALE, ZERO_SHOT_ORDER
from polarvrp.tables.sources import Costs, InstanceSet, Reference, Results, published

Row = dict[str, Any]
"""One row of a long table; beside its columns it has ``runs``, names of the trained runs it was computed from."""

_RANKS = {
    stem: rank
    for rank, stem in enumerate(
        ("published-pyvrp", "pyvrp", "published-ortools", *(stem for stem in METHODS.values() if stem != "pyvrp"))
    )
}
IMPOSSIBLE_GAP_PERCENT = -20.0
"""No solution undercuts the published near-optimal one so far: a lower gap means other instances."""

_VARIANT_RANKS = {name: rank for rank, name in enumerate((*IN_DISTRIBUTION_ORDER, *ZERO_SHOT_ORDER))}


def stem_of(method: str) -> str:
    """A method's name without its seed."""
    return re.sub(r"-s\d+$", "", method)


def seed_of(method: str) -> int:
    """Seed in a method's name, 0 for a solver."""
    match = re.search(r"-s(\d+)$", method)
    return int(match[1]) if match else 0


def is_solver(method: str) -> bool:
    """Whether a method is a solver or a published reference, not a trained run."""
    return method.removeprefix("published-") in SOLVERS


def method_rank(method: str) -> tuple[int, str]:
    """Sort key: references, then the paper's methods in its order, then the rest by name."""
    return _RANKS.get(stem_of(method), len(_RANKS)), method


def variant_rank(variant: str) -> int:
    """Sort key: the paper's row order."""
    return _VARIANT_RANKS[variant]


def instance_rank(instance: str) -> tuple[int, str]:
    """Sort key: Set-X by growing number of nodes."""
    match = re.match(r"X-n(\d+)", instance)
    return int(match[1]) if match else 0, instance


def in_distribution(results: Results) -> list[Row]:
    """Mean cost, gap and seconds of every method on the 16 training variants."""
    return _gap_table(results, IN_DISTRIBUTION_ORDER)


def zero_shot(results: Results) -> list[Row]:
    """Mean cost, gap and seconds of every method on the 32 unseen variants."""
    return _gap_table(results, ZERO_SHOT_ORDER)


def run_gaps(
    results: Results, runs: Iterable[RunSpec], variants: Sequence[str]
) -> dict[RunSpec, dict[str, float | None]]:
    """Mean gap in percent of each run on each of these variants that it was evaluated on."""
    return {
        run: {
            test_set.variant: _gap_row(results, test_set, run.method, results.evaluation(run, test_set))["gap_percent"]
            for test_set in results.evaluated_sets(run, variants)
        }
        for run in runs
    }


def set_x(results: Results) -> list[Row]:
    """Cost and gap of every run on each Set-X instance.

    Raises:
        DataError: If runs that differ only in size would share a row.
    """
    rows: list[Row] = []
    sizes: dict[str, int] = {}
    for run in results.set_x_runs():
        size = sizes.setdefault(run.method, run.num_customers)
        if size != run.num_customers:
            raise DataError(
                f"{run.method} has Set-X costs of its sizes {size} and {run.num_customers}; choose one with --runs"
            )
        rows += [
            {
                "instance": row["instance"],
                "method": run.method,
                "best_known": row["best_known"],
                "cost": row["cost"],
                "gap_percent": _relative(row["cost"], row["best_known"]),
                "published_cost": row.get("published_cost"),
                "published_gap_percent": _relative(row.get("published_cost"), row["best_known"]),
                "seconds": row.get("seconds"),
                "trained_on": run.num_customers,
                "scale": results.scale,
                "runs": (run.name,),
            }
            for row in results.set_x(run)
        ]
    return sorted(rows, key=lambda row: (instance_rank(row["instance"]), method_rank(row["method"])))


def _relative(cost: float | None, reference: float) -> float | None:
    return summarise_gaps([cost], [reference]).gap_percent


def _gap_table(results: Results, variants: Sequence[str]) -> list[Row]:
    """Rows of the runs, and of the solvers on the same test sets; without any run of the solvers alone."""
    rows: list[Row] = []
    covered: set[InstanceSet] = set()
    for run in results.evaluated_runs():
        for test_set in results.evaluated_sets(run, variants):
            covered.add(test_set)
            row = _gap_row(results, test_set, run.method, results.evaluation(run, test_set))
            rows.append(row | {"runs": (run.name,)})
    solved = {solver: results.solved_sets(solver, variants) for solver in SOLVERS}
    shown = covered or {test_set for test_sets in solved.values() for test_set in test_sets}
    for solver in SOLVERS:
        for test_set in shown.intersection(solved[solver]):
            rows.append(_gap_row(results, test_set, solver, results.solved(solver, test_set)))
        for test_set in shown if results.scale == PAPER_SCALE else ():
            rows.append(_gap_row(results, test_set, f"published-{solver}", published(test_set, solver)))
    return sorted(
        rows, key=lambda row: (variant_rank(row["variant"]), row["num_customers"], method_rank(row["method"]))
    )


def _gap_row(results: Results, test_set: InstanceSet, method: str, costs: Costs) -> Row:
    reference = results.reference(test_set)
    try:
        summary = _summary(costs, reference)
    except DataError as error:
        raise DataError(f"{method} on {test_set.variant} with {test_set.num_customers} customers: {error}") from error
    return {
        "variant": test_set.variant,
        "num_customers": test_set.num_customers,
        "method": method,
        "objective": summary.objective,
        "gap_percent": summary.gap_percent,
        "gap_of_means_percent": summary.gap_of_means_percent,
        "seconds": costs.seconds,
        "instances": summary.instances,
        "left_out": summary.left_out,
        "reference": reference.name if reference else None,
        "scale": results.scale,
    }


def _summary(costs: Costs, reference: Reference | None) -> GapSummary:
    """Gap to the reference of each instance; without any reference the objective alone.

    Raises:
        DataError: If the costs cannot be those of the published instances that they are compared on.
    """
    if reference is not None:
        instances = sorted(costs.by_instance)
        found = [costs.by_instance[instance] for instance in instances]
        against = [reference.by_instance.get(instance) for instance in instances]
        if reference.is_published and (instance_gaps_percent(found, against) < IMPOSSIBLE_GAP_PERCENT).any():
            raise DataError(
                "costs far below the published ones; evaluate the published test set, datasets.test_seed 1234"
            )
        return summarise_gaps(found, against)
    solved = [cost for _, cost in sorted(costs.by_instance.items()) if cost is not None]
    left_out = len(costs.by_instance) - len(solved)
    return GapSummary(fmean(solved) if solved else None, None, None, len(solved), left_out)
