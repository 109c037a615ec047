"""Training paradigms: what a policy learns from its tours."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Paradigm:
    """One training paradigm.

    Attributes:
        name: As runs are named.
        label: As tables print it.
        objective: Dotted path of the loss, a function of costs and log-likelihoods (both float, ``[B, S]``).
        objective_settings: Settings of the training that the loss takes by keyword.
        compares_pairs: Whether the loss prefers one tour of a pair to the other by their costs; a history then says how
            decisive its pairs were, in units of ``temperature``.
        refines: Whether local search improves the best tours once training has passed ``refinement_start_epoch``.
        greedy_row: Whether a tour decoded greedily joins the sampled ones.
        settings: Settings of a training that are read under some paradigms only, and under this one.
    """

    name: str
    label: str
    objective: str
    objective_settings: tuple[str, ...] = ()
    compares_pairs: bool = False
    refines: bool = False
    greedy_row: bool = False
    settings: tuple[str, ...] = ()


PARADIGMS: dict[str, Paradigm] = {
    record.name: record
    for record in (
        Paradigm(
            name="rl",
            label="RL",
            objective="polarvrp.training.objectives:reinforce",
            settings=("normalize_rewards",),
        ),
        Paradigm(
            name="po",
            label="PO",
            objective="polarvrp.training.objectives:preference",
            objective_settings=("temperature",),
            compares_pairs=True,
            settings=("temperature",),
        ),
        Paradigm(
            name="polar",
            label="POLAR",
            objective="polarvrp.training.objectives:preference",
            objective_settings=("temperature",),
            compares_pairs=True,
            refines=True,
            greedy_row=True,
            settings=("temperature", "refined_tours", "refinement_start_epoch", "refinement_ramp", "refiner"),
        ),
    )
}


def unread_settings(paradigms: Collection[str]) -> Iterator[str]:
    """Settings that other paradigms read and none of these does."""
    read = {key for name in paradigms for key in PARADIGMS[name].settings}
    yield from dict.fromkeys(key for other in PARADIGMS.values() for key in other.settings if key not in read)
