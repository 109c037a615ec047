"""Gap on held-out instances after each epoch, to a reference that costs seconds instead of core-hours.

The reference of an instance is its nearest-neighbour tour after one local search: weaker than a solver's, so a good
policy falls below 0, but fixed, and therefore enough to see a training's progress.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from polarvrp.decoding.greedy import Decoding, GreedySolver
from polarvrp.local_search.refinement import Refiner
from polarvrp.model.policy import Policy
from polarvrp.problem.datasets import read_instances
from polarvrp.problem.gaps import gap_percent
from polarvrp.problem.instances import Instances, NodeArrays, to_tensors
from polarvrp.problem.nearest_neighbour import nearest_neighbour
from polarvrp.seeds import derive_seed


class Validation:
    """The validation sets of one size with their references.

    Args:
        paths: One file per variant.
        count: First instances of each file to use.
        refiner: Local search for the references.
        device: Where policies compute.
    """

    def __init__(self, paths: Sequence[Path], count: int, refiner: Refiner, device: torch.device) -> None:
        sets = [read_instances(path, first=count) for path in paths]
        self._references = [_reference_costs(instances, refiner) for instances in sets]
        self._sets = [to_tensors(instances, device) for instances in sets]

    def run(self, policy: Policy, bfloat16: bool, engine: str = "auto") -> dict[str, float]:
        """Greedy multi-start without symmetries.

        Args:
            policy: In evaluation mode.
            bfloat16: Whether matrix products run in bfloat16.
            engine: One of ``decoding.engine.LEVELS``.

        Returns:
            Mean ``cost``, mean ``gap_percent`` over sets, and ``seconds``.
        """
        solver = GreedySolver(policy, Decoding(augmentations=1, engine=engine), bfloat16)
        start_s = time.perf_counter()
        costs, gaps = [], []
        for instances, references in zip(self._sets, self._references, strict=True):
            cost, _ = solver.solve(instances)
            found = cost.cpu().double().numpy()
            costs.append(found.mean())
            gaps.append(gap_percent(found, references).mean())
        seconds = time.perf_counter() - start_s
        return {"cost": float(np.mean(costs)), "gap_percent": float(np.mean(gaps)), "seconds": seconds}


def _reference_costs(instances: Instances[NodeArrays], refiner: Refiner) -> NodeArrays:
    """Costs of the references, float64, ``[B]``."""
    tours = [nearest_neighbour(instances, index) for index in range(len(instances))]
    seeds = [derive_seed(0, "validation", index) for index in range(len(instances))]
    return np.array([tour.cost for tour in refiner.refine(instances, tours, seeds)])
