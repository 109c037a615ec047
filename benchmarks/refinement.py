"""How fast is refinement, and what does it gain? One table, one Parquet file.

    python benchmarks/refinement.py --num-customers 50 100 --workers 2

Mixed batches of the 16 training variants, from two starts: nearest neighbour tours, which refinement shortens much, and
those tours after five rounds, where it finds next to nothing; tours of a trained policy lie in between. Stages are
milliseconds of one core per tour: the model PyVRP needs, its search, and the exact check. Then tours a second through
the worker processes, two halves of a batch in work at once as in training. Last, what the local search in tensors
(``refiner: gpu``) gains from the same tours: its mean, and the mean of the paired differences with its standard error.
"""

import argparse
import itertools
import platform
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any
from unittest.mock import patch

import pandas as pd
import torch
from pyvrp.search import LocalSearch

from polarvrp.files import atomic_path
from polarvrp.local_search import pyvrp_search
from polarvrp.local_search.refinement import Refiner, pad_actions
from polarvrp.local_search.tensor_search import improve
from polarvrp.machine import processor_name
from polarvrp.problem.instances import Instances, NodeArrays, to_arrays, to_tensors
from polarvrp.problem.nearest_neighbour import nearest_neighbour
from polarvrp.problem.torch_generator import generate_batch
from polarvrp.problem.tours import check_tour, flat_actions, measure_tour
from polarvrp.progress import progress
from polarvrp.solvers.versions import installed_version
from polarvrp.tolerances import POLICY_TOLERANCE

ROUNDS = {"nearest neighbour": 0, "after five rounds": 5}
MILLISECONDS = 1e3

Tours = list[list[int]]


def main() -> int:
    """Time, print, write."""
    options = parse()
    jobs = list(itertools.product(options.num_customers, ROUNDS))
    with Refiner(options.workers) as refiner:
        rows = [row_of(size, start, refiner, options) for size, start in progress(jobs, len(jobs), "refinement", "row")]
    table = pd.DataFrame(rows)
    with atomic_path(options.output) as temporary:
        table.to_parquet(temporary, index=False)
    print(table.drop(columns=["cpu", "pyvrp", "python", "date"]).round(3).T.to_string(header=False))
    print(f"{rows[0]['cpu']}, PyVRP {installed_version('pyvrp')}")
    return 0


def parse() -> argparse.Namespace:
    """Options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--num-customers", type=int, nargs="+", default=[50, 100])
    parser.add_argument("--instances", type=int, default=128, help="of each size")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds; the fastest counts")
    parser.add_argument("--workers", type=int, default=0, help="processes; 0: this one")
    parser.add_argument("--output", type=Path, default=Path("results/benchmarks/refinement.parquet"))
    return parser.parse_args()


def row_of(size: int, start: str, refiner: Refiner, options: argparse.Namespace) -> dict[str, Any]:
    """One row of the table."""
    instances = to_arrays(generate_batch(size, options.instances, torch.Generator().manual_seed(0), "cpu"))
    tours = [nearest_neighbour(instances, index) for index in range(len(instances))]
    seeds = list(range(len(instances)))
    for _ in range(ROUNDS[start]):
        tours = [tour.actions for tour in refiner.refine(instances, tours, seeds)]
    before = [check_tour(instances, index, tour, POLICY_TOLERANCE).cost for index, tour in enumerate(tours)]
    found = refiner.refine(instances, tours, seeds)
    gains = [100 * (1 - tour.cost / cost) for tour, cost in zip(found, before, strict=True)]
    rate = max(tours_per_second(refiner, instances, tours) for _ in range(options.rounds))
    return {
        "num_customers": size,
        "start": start,
        **min((stages(instances, tours) for _ in range(options.rounds)), key=lambda ms: ms["total_ms"]),
        "improvement_percent": sum(gains) / len(gains),
        **in_tensors(instances, tours, before, gains),
        "improved_percent": 100 * sum(tour.improved for tour in found) / len(found),
        "workers": options.workers,
        "tours_per_second": rate,
        "cpu": processor_name(),
        "pyvrp": installed_version("pyvrp"),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }


def in_tensors(
    instances: Instances[NodeArrays], tours: Tours, before: list[float], gains: list[float]
) -> dict[str, float]:
    """Improvement by the local search in tensors, and how far it is above that of the processes, in percent."""
    start_s = time.perf_counter()
    found = improve(to_tensors(instances), pad_actions([[tour] for tour in tours]))
    seconds = time.perf_counter() - start_s
    flat = [flat_actions(tour, 1) for tour in found[:, 0].tolist()]
    costs = [check_tour(instances, index, tour, POLICY_TOLERANCE).cost for index, tour in enumerate(flat)]
    own = [100 * (1 - after / cost) for after, cost in zip(costs, before, strict=True)]
    above = [mine - theirs for mine, theirs in zip(own, gains, strict=True)]
    return {
        "tensors_improvement_percent": fmean(own),
        "tensors_above_percent": fmean(above),
        "standard_error_percent": stdev(above) / len(above) ** 0.5,
        "tensors_seconds": seconds,
    }


def stages(instances: Instances[NodeArrays], tours: Tours) -> dict[str, float]:
    """Milliseconds of one core per tour, each tour by itself."""
    spent: Counter[str] = Counter()
    with (
        patch.object(LocalSearch, "__call__", timed("search", LocalSearch.__call__, spent)),
        patch.object(pyvrp_search, "check_tour", timed("check", check_tour, spent)),
        patch.object(pyvrp_search, "measure_tour", timed("check", measure_tour, spent)),
    ):
        start_s = time.process_time()
        for index, tour in enumerate(tours):
            pyvrp_search.refine_tours(instances, index, [tour], [index])
        total = time.process_time() - start_s
    each = {stage: MILLISECONDS * spent[stage] / len(tours) for stage in ("search", "check")}
    total_ms = MILLISECONDS * total / len(tours)
    return {
        "model_ms": total_ms - each["search"] - each["check"],
        "search_ms": each["search"],
        "check_ms": each["check"],
        "total_ms": total_ms,
    }


def timed(stage: str, function: Callable[..., Any], spent: Counter[str]) -> Callable[..., Any]:
    """The function, adding its seconds to ``spent``."""

    def call(*args: Any, **options: Any) -> Any:
        start_s = time.process_time()
        result = function(*args, **options)
        spent[stage] += time.process_time() - start_s
        return result

    return call


def tours_per_second(refiner: Refiner, instances: Instances[NodeArrays], tours: Tours) -> float:
    """Of two halves in work at once."""
    tensors, actions = to_tensors(instances), pad_actions([[tour] for tour in tours])
    half = len(tours) // 2
    start_s = time.perf_counter()
    halves = [
        refiner.submit(tensors[cut], actions[cut], range(len(tours))[cut]) for cut in (slice(half), slice(half, None))
    ]
    for pending in halves:
        pending.result()
    return len(tours) / (time.perf_counter() - start_s)


if __name__ == "__main__":
    raise SystemExit(main())
