"""Steps whose numbers are not finite: they change no weight, what they were made of is kept, and the training stops."""

import math
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from polarvrp.errors import DivergenceError
from polarvrp.files import atomic_path
from polarvrp.model.policy import Policy
from polarvrp.model.saving import save_tensors
from polarvrp.problem.instances import INSTANCE_ARRAYS, Instances

WATCHED = ("loss", "gradient_norm")
"""Numbers of a step that must be finite."""

FILE = "diverged.safetensors"


def is_finite(sums: Mapping[str, float]) -> bool:
    """Whether a step's numbers are."""
    return all(math.isfinite(sums[name]) for name in WATCHED)


def diverged(
    folder: Path,
    sums: Mapping[str, float],
    where: tuple[str, int, int, int],
    policy: Policy,
    batch: Instances[Tensor],
) -> DivergenceError:
    """Keep the batch of a step that went wrong, for replay.

    Args:
        folder: Of the training's state; gets ``diverged.safetensors``: tensors ``instances.*`` of the batch and
            ``model.*`` of the network, and as metadata where in the training that was.
        sums: Numbers of the step.
        where: Run, epoch over all stages, step and seed.
        policy: The network.
        batch: Instances of the step.

    Returns:
        What to raise.
    """
    tensors = {f"instances.{name}": getattr(batch, name) for name in INSTANCE_ARRAYS}
    tensors |= {f"model.{name}": tensor for name, tensor in policy.state_dict().items()}
    said = dict(zip(("run", "epoch", "step", "seed"), map(str, where), strict=True))
    said |= {name: str(getattr(batch, name)) for name in ("num_depots", "capacity")}
    said |= {name: str(sums[name]) for name in WATCHED}
    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_path(folder / FILE) as temporary:
        save_tensors(temporary, kept, said)
    shown = ", ".join(f"{name.replace('_', ' ')} {sums[name]:g}" for name in WATCHED)
    return DivergenceError(
        f"{where[0]}: {shown} in epoch {where[1]}, step {where[2]}, seed {where[3]}; no weight was changed by it. Its "
        f"batch is kept in {folder / FILE}; a lower learning rate or training.precision float32 may help"
    )
