"""Small instances: of one variant as arrays or tensors, of several in one batch, and as trainings draw them."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from polarvrp.problem.datasets import instances_from_arrays
from polarvrp.problem.instances import INSTANCE_ARRAYS, Instances, NodeArrays, to_arrays, to_tensors
from polarvrp.problem.numpy_generator import generate_arrays
from polarvrp.problem.torch_generator import generate_batch
from polarvrp.problem.variants import TRAINING_VARIANTS, parse_variant

TEST_SEED = 1234


def generated(variant: str, num_customers: int, count: int = 1, seed: int = TEST_SEED) -> Instances[NodeArrays]:
    """The first instances of a variant's set as arrays."""
    return instances_from_arrays(generate_arrays(parse_variant(variant), num_customers, count, seed))


def sample(
    variant: str = "OVRPBLTW",
    num_customers: int = 7,
    count: int = 3,
    seed: int = TEST_SEED,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Instances[Tensor]:
    """The first instances of a variant's set as tensors."""
    return to_tensors(generated(variant, num_customers, count, seed), device, dtype)


def mixed_arrays(
    variants: Sequence[str], num_customers: int = 7, count: int = 2, seed: int = TEST_SEED
) -> Instances[NodeArrays]:
    """Instances of several variants with one number of depots in one batch, as arrays."""
    parts = [generated(variant, num_customers, count, seed) for variant in variants]
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in INSTANCE_ARRAYS}
    return Instances(**joined, num_depots=parts[0].num_depots, capacity=parts[0].capacity)


def mixed(variants: Sequence[str], num_customers: int = 7, count: int = 2) -> Instances[Tensor]:
    """The same as tensors."""
    return to_tensors(mixed_arrays(variants, num_customers, count))


def drawn(
    num_customers: int, batch_size: int, seed: int = 0, variants: Sequence[str] = TRAINING_VARIANTS
) -> Instances[Tensor]:
    """A batch as a training draws it."""
    return generate_batch(num_customers, batch_size, torch.Generator().manual_seed(seed), "cpu", variants)


def in_double(instances: Instances[Tensor]) -> Instances[Tensor]:
    """The same instances in float64."""
    return to_tensors(to_arrays(instances), instances.locs.device, torch.float64)
