"""What the tests of local search begin with: a batch of all training variants, and tours that can be improved."""

from helpers.instances import mixed_arrays
from polarvrp.problem.instances import Instances, NodeArrays
from polarvrp.problem.nearest_neighbour import nearest_neighbour
from polarvrp.problem.variants import TRAINING_VARIANTS


def mixed_batch(num_customers: int) -> Instances[NodeArrays]:
    """One instance of each training variant in one batch."""
    return mixed_arrays(TRAINING_VARIANTS, num_customers, count=1)


def some_tours(instances: Instances[NodeArrays]) -> list[list[int]]:
    """The nearest-neighbour tour of each instance."""
    return [nearest_neighbour(instances, index) for index in range(len(instances))]
