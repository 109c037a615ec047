"""Nearest-neighbour rollouts through the environment have pinned mean costs and lengths."""

import pytest
import torch

from helpers.instances import sample
from polarvrp.environment.environment import Environment, Protocol
from polarvrp.problem.table_rows import rows_of

# variant, mixed-backhaul rule, n = 50 (cost, actions or None where not pinned), n = 100.
GOLDEN = [
    ("CVRP", "strict", (13.84651, 55.82), (21.11985, 109.62)),
    ("OVRP", "strict", (9.18265, 55.82), (13.81917, 109.62)),
    ("VRPB", "strict", (14.92762, 55.24), (23.08738, 108.51)),
    ("VRPL", "strict", (14.26756, 56.66), (22.04620, 110.75)),
    ("VRPTW", "strict", (26.07242, 67.33), (46.23790, 129.66)),
    ("VRPBLTW", "strict", (28.57409, 69.47), (50.96845, 134.08)),
    ("OVRPBLTW", "strict", (16.02102, 69.21), (28.52553, 133.77)),
    ("VRPMB", "published", (13.94824, None), (21.69605, None)),
    ("VRPMB", "strict", (13.99926, None), (21.93611, None)),
    ("OVRPMBLTW", "strict", (15.01477, 67.34), (25.90467, 129.70)),
    ("OVRPMBLTW", "published", (15.01477, 67.34), (25.90467, 129.70)),
    ("MDVRP", "strict", (14.00219, 56.81), (21.00008, 110.62)),
    ("MDVRPB", "strict", (14.97177, 56.26), (22.74476, 109.47)),
    ("MDVRPLTW", "strict", (27.57655, 68.88), (45.98933, 131.40)),
    ("MDOVRPBTW", "strict", (16.23789, 70.37), (28.05011, 134.71)),
    ("MDVRPMB", "published", (14.12209, None), (21.67976, None)),
    ("MDVRPMB", "strict", (14.16625, None), (21.71985, None)),
]


def nearest_neighbour_rollout(environment: Environment) -> tuple[float, float]:
    """Mean cost and mean number of actions of one tour per instance; the nearest legal customer always comes next."""
    state = environment.reset(1)
    actions = torch.zeros(len(environment.instances))
    depots = environment.num_depots
    while not environment.done(state).all():
        actions += ~environment.done(state)[:, 0]
        if depots > 1 and state.num_actions == 0:
            action = torch.zeros_like(state.current)
        else:
            distance = rows_of(environment.constants.distances, state.current)
            distance = distance.masked_fill(~state.mask, torch.inf)
            distance[..., :depots] = torch.inf
            nearest = distance.argmin(-1)
            own = state.mask.gather(-1, state.depot[..., None]).squeeze(-1)
            lowest = state.mask[..., :depots].to(torch.uint8).argmax(-1)
            home = torch.where(own, state.depot, lowest)
            action = torch.where(distance.amin(-1).isinf(), home, nearest)
            action = torch.where(environment.all_served(state), state.depot, action)
        state = environment.step(state, action)
        assert state.num_actions <= environment.max_actions
    return float(environment.cost(state).mean()), float(actions.mean())


@pytest.mark.golden
@pytest.mark.parametrize(("variant", "rule", "at_50", "at_100"), GOLDEN)
def test_mean_cost_and_actions_of_the_first_hundred_test_instances(
    variant: str, rule: Protocol, at_50: tuple[float, float | None], at_100: tuple[float, float | None]
) -> None:
    for num_customers, (cost, actions) in ((50, at_50), (100, at_100)):
        environment = Environment(sample(variant, num_customers, 100), rule)
        found_cost, found_actions = nearest_neighbour_rollout(environment)
        assert found_cost == pytest.approx(cost, abs=1e-3)
        if actions is not None:
            assert found_actions == pytest.approx(actions, abs=0.005)
