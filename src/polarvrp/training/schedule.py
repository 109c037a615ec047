"""Schedules of a training as functions of the epoch alone, so that a run can stop and go on anywhere."""

from polarvrp.catalog.paradigms import PARADIGMS
from polarvrp.config.training import TrainConfig


def learning_rate(config: TrainConfig, epoch: int) -> float:
    """Learning rate in ``epoch`` (from 1): multiplied by ``decay`` after each milestone."""
    passed = sum(epoch > milestone for milestone in config.milestones)
    return config.learning_rate * config.decay**passed


def decoder_ramp(epoch: int, step: int, steps_per_epoch: int) -> float:
    """How much of the decoder's residual block is on: rises from 0 to 1 over the first epoch.

    The full block saturates the pointer's clip at initialisation, which leaves next to no gradient.
    """
    return step / steps_per_epoch if epoch == 1 else 1.0


def refines(config: TrainConfig, epoch: int) -> bool:
    """Whether local search refines tours in ``epoch``."""
    return PARADIGMS[config.paradigm].refines and epoch > config.refinement_start_epoch


def batch_sizes(config: TrainConfig) -> list[int]:
    """Size of each batch of an epoch; the last one is the remainder."""
    full, rest = divmod(config.instances_per_epoch, config.batch_size)
    return [config.batch_size] * full + ([rest] if rest else [])
