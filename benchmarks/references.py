"""Quality of PyVRP and OR-Tools against seconds: gaps to the published PyVRP solutions of the test sets.

``python benchmarks/references.py --sizes 50 100 --instances 4 --seconds 1 --workers 2 --output references.parquet``
prints the mean gap of the 16 training and the 32 zero-shot variants, then of each variant, and writes one row a
variant, size, solver and limit. Gaps are to the exact length of the published routes, some of which break a window or
a limit by up to 2.6e-3; ours never do.
"""

import argparse
import itertools
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pyarrow as pa
import pyarrow.parquet as pq

from polarvrp.catalog.methods import PUBLISHED_SIZES
from polarvrp.files import atomic_path
from polarvrp.problem.datasets import instances_from_arrays
from polarvrp.problem.numpy_generator import TEST_SEED, generate_arrays
from polarvrp.problem.variants import TRAINING_VARIANTS, VARIANTS
from polarvrp.progress import progress
from polarvrp.references.published import published_reference
from polarvrp.solutions.rows import SolutionRow
from polarvrp.solvers.solve import SOLVERS, InstanceTask, SolverSettings, solve_task
from polarvrp.workers import TaskFailure, WorkerPool

SCHEMA = pa.schema(
    [
        ("variant", pa.string()),
        ("num_customers", pa.int32()),
        ("solver", pa.string()),
        ("limit_seconds", pa.float64()),
        ("instances", pa.int32()),
        ("solved", pa.int32()),
        ("mean_gap_percent", pa.float64()),
        ("largest_gap_percent", pa.float64()),
        ("not_worse", pa.int32()),
        ("largest_violation", pa.float64()),
        ("mean_seconds", pa.float64()),
        ("mean_iterations", pa.float64()),
    ]
)

NOT_WORSE_PERCENT = 0.001


def main() -> None:
    options = parse()
    tasks = [
        task
        for variant, size in itertools.product(options.variants, options.sizes)
        for task in tasks_of(variant, size, options)
    ]
    rows: dict[tuple[str, int, str, float], list[SolutionRow]] = defaultdict(list)
    with WorkerPool(solve_task, options.workers) as pool:
        for position, outcome in progress(pool.run(tasks), len(tasks), "references", "instance"):
            if isinstance(outcome, TaskFailure):
                raise RuntimeError(f"{tasks[position]}: {outcome.reason}")
            key = (outcome.variant, outcome.num_customers, outcome.method, tasks[position].settings.seconds)
            rows[key].append(outcome)
    results = [result_of(*key, rows[key]) for key in sorted(rows, key=lambda k: (k[1:], list(VARIANTS).index(k[0])))]
    show(results)
    if options.output:
        with atomic_path(options.output) as temporary:
            pq.write_table(pa.Table.from_pylist(results, schema=SCHEMA), temporary)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Quality of the reference solvers against seconds.")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), metavar="V")
    parser.add_argument("--sizes", nargs="+", type=int, choices=PUBLISHED_SIZES, default=[50])
    parser.add_argument("--solvers", nargs="+", choices=SOLVERS, default=list(SOLVERS))
    parser.add_argument("--instances", type=int, default=2, help="of each test set, from its start")
    parser.add_argument("--seconds", nargs="+", type=float, default=[1.0], help="one or more limits")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--output", type=Path, metavar="FILE.parquet")
    return parser.parse_args()


def tasks_of(variant: str, size: int, options: argparse.Namespace) -> list[InstanceTask]:
    """One for each instance, solver and limit."""
    instances = instances_from_arrays(generate_arrays(VARIANTS[variant], size, options.instances, TEST_SEED))
    return [
        InstanceTask(instances[[number]], number, SolverSettings(solver, seconds), None)
        for number, solver, seconds in itertools.product(range(options.instances), options.solvers, options.seconds)
    ]


def result_of(variant: str, size: int, solver: str, seconds: float, rows: list[SolutionRow]) -> dict[str, object]:
    """Statistics of one variant, size, solver and limit."""
    published = published_reference(variant, size, "pyvrp").exact_cost
    solved = [row for row in rows if row.cost is not None]
    gaps = [100 * (float(row.cost or 0) / published[row.instance] - 1) for row in solved]
    iterations = [row.iterations for row in solved if row.iterations is not None]
    return {
        "variant": variant,
        "num_customers": size,
        "solver": solver,
        "limit_seconds": seconds,
        "instances": len(rows),
        "solved": len(solved),
        "mean_gap_percent": fmean(gaps) if gaps else None,
        "largest_gap_percent": max(gaps, default=None),
        "not_worse": sum(gap <= NOT_WORSE_PERCENT for gap in gaps),
        "largest_violation": max((row.max_violation or 0.0 for row in solved), default=None),
        "mean_seconds": fmean(row.seconds for row in rows),
        "mean_iterations": fmean(iterations) if iterations else None,
    }


def show(results: list[dict]) -> None:
    """Means over the two families of variants, then each variant."""
    settings = sorted({(r["num_customers"], r["solver"], r["limit_seconds"]) for r in results})
    print(f"{'n':>4} {'solver':8} {'seconds':>8} {'variants':24} {'gap %':>8} {'not worse':>10} {'solved':>8}")
    for setting in settings:
        chosen = [r for r in results if (r["num_customers"], r["solver"], r["limit_seconds"]) == setting]
        families = {
            "training": [r for r in chosen if r["variant"] in TRAINING_VARIANTS],
            "zero-shot": [r for r in chosen if r["variant"] not in TRAINING_VARIANTS],
        }
        for name, group in [*families.items(), *((r["variant"], [r]) for r in chosen)]:
            gaps = [r["mean_gap_percent"] for r in group if r["mean_gap_percent"] is not None]
            if not group:
                continue
            mean = f"{fmean(gaps):8.3f}" if gaps else f"{'-':>8}"
            total = sum(r["instances"] for r in group)
            not_worse = f"{sum(r['not_worse'] for r in group)}/{total}"
            solved = f"{sum(r['solved'] for r in group)}/{total}"
            size, solver, seconds = setting
            print(f"{size:4d} {solver:8} {seconds:8g} {name:24} {mean} {not_worse:>10} {solved:>8}")


if __name__ == "__main__":
    main()
