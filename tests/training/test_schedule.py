"""Schedules of the paper: learning rate, refinement, batches, the decoder's ramp."""

import pytest

from polarvrp.config.training import InitialWeights, TrainConfig
from polarvrp.training.schedule import batch_sizes, decoder_ramp, learning_rate, refines

PAPER = TrainConfig(paradigm="polar", num_customers=50)


@pytest.mark.parametrize(
    ("epoch", "rate"), [(1, 3e-4), (270, 3e-4), (271, 3e-5), (295, 3e-5), (296, 3e-6), (300, 3e-6)]
)
def test_learning_rate_falls_after_epochs_270_and_295(epoch: int, rate: float) -> None:
    assert learning_rate(PAPER, epoch) == pytest.approx(rate)


def test_refinement_begins_after_epoch_250_and_belongs_to_polar() -> None:
    assert [refines(PAPER, epoch) for epoch in (1, 250, 251, 300)] == [False, False, True, True]
    assert not refines(TrainConfig(paradigm="po", num_customers=50), 300)


@pytest.mark.parametrize(("batch_size", "batches", "last"), [(256, 391, 160), (128, 782, 32)])
def test_the_last_batch_of_an_epoch_is_the_remainder(batch_size: int, batches: int, last: int) -> None:
    sizes = batch_sizes(TrainConfig(paradigm="polar", num_customers=50, batch_size=batch_size))
    assert (len(sizes), sizes[0], sizes[-1], sum(sizes)) == (batches, batch_size, last, 100_000)


def test_the_ramp_rises_over_the_first_epoch_only_unless_more_are_asked_for() -> None:
    assert [decoder_ramp(PAPER, 1, step, 4) for step in range(4)] == [0.0, 0.25, 0.5, 0.75]
    assert decoder_ramp(PAPER, 2, 0, 4) == 1.0
    longer = PAPER.replace(decoder_ramp_epochs=2)
    steps = [(epoch, step) for epoch in (1, 2, 3) for step in (0, 1)]
    assert [decoder_ramp(longer, epoch, step, 2) for epoch, step in steps] == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    trained = PAPER.replace(initial_weights=InitialWeights(model="x", sha256="0"))
    assert decoder_ramp(trained, 1, 0, 4) == 1.0
