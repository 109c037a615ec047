"""Schedules of a training as functions of the epoch alone, so that a run can stop and go on anywhere."""

from polarvrp.catalog.paradigms import PARADIGMS
from polarvrp.config.training import TrainConfig


def learning_rate(config: TrainConfig, epoch: int) -> float:
    """Learning rate in ``epoch`` (from 1): multiplied by ``decay`` after each milestone."""
    passed = sum(epoch > milestone for milestone in config.milestones)
    return config.learning_rate * config.decay**passed


def decoder_ramp(config: TrainConfig, epoch: int, step: int, steps_per_epoch: int) -> float:
    """How much of the decoder's residual block is on: rises from 0 to 1 over the first ``decoder_ramp_epochs`` epochs.

    The full block saturates the pointer's clip at initialisation, which leaves next to no gradient. Weights that were
    trained before need no ramp and would be another network with one.

    Args:
        config: Recipe.
        epoch: From 1, counted over all stages.
        step: Of the epoch, from 0.
        steps_per_epoch: Steps of the epoch.
    """
    if config.initial_weights is not None:
        return 1.0
    return min((epoch - 1 + step / steps_per_epoch) / config.decoder_ramp_epochs, 1.0)


def refinement_weight(config: TrainConfig, gap: float | None, ramp: float) -> float:
    """Weight of the loss with refined tours, the rest being that of the sampled ones.

    Near a uniform policy refined tours are unlike anything that it samples, and preferring them teaches next to
    nothing. So the weight follows the gap between the best sampled tours and their refined ones: 0 at twice
    ``refinement_ramp``, 1 at it. And it stays below the decoder's ramp.

    Args:
        config: Recipe.
        gap: Running mean of the relative gap, None before the first refined step.
        ramp: How much of the decoder's residual block is on.
    """
    if config.refinement_ramp == 0:
        return 1.0
    if gap is None:
        return 0.0
    return min(ramp, max(0.0, 2 - gap / config.refinement_ramp), 1.0)


def refines(config: TrainConfig, epoch: int) -> bool:
    """Whether local search refines tours in ``epoch``."""
    return PARADIGMS[config.paradigm].refines and epoch > config.refinement_start_epoch


def batch_sizes(config: TrainConfig) -> list[int]:
    """Size of each batch of an epoch; the last one is the remainder."""
    full, rest = divmod(config.instances_per_epoch, config.batch_size)
    return [config.batch_size] * full + ([rest] if rest else [])
