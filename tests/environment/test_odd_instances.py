"""The mask on instances as no generator draws them: what it allows keeps every rule, what it refuses breaks one.

The judge is the exact checker, on the route so far and one customer more: plain loops that share no code with the mask.
"""

import dataclasses
from functools import cache

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.odd_instances import odd_instances
from helpers.walks import random_walk
from polarvrp.environment.environment import Environment
from polarvrp.problem.instances import Instances, NodeArrays, to_tensors
from polarvrp.problem.tours import Route, check_tour, first_impossible_customer, flat_actions, routes_to_actions
from polarvrp.tolerances import LOAD_TOLERANCE, POLICY_TOLERANCE

NUM_INSTANCES, NUM_ROWS = 16, 3
NODE_ARRAYS = ("locs", "demand_linehaul", "demand_backhaul", "time_windows", "service_time")


def excess(instances: Instances[NodeArrays], index: int, route: Route) -> float:
    """By how much one route of an instance breaks a rule, the other customers left out."""
    depots = instances.num_depots
    nodes = [*range(depots), *route.customers]
    arrays = {name: getattr(instances, name)[index : index + 1, nodes] for name in NODE_ARRAYS}
    alone = dataclasses.replace(instances[index : index + 1], **arrays)
    renamed = Route(route.depot, tuple(range(depots, len(nodes))))
    return check_tour(alone, 0, routes_to_actions([renamed], depots)).max_violation


@settings(max_examples=40, deadline=None, derandomize=True)
@given(instances=odd_instances(NUM_INSTANCES), seed=st.integers(0, 2**31))
def test_a_customer_is_legal_if_and_only_if_the_route_to_it_keeps_every_rule(
    instances: Instances[NodeArrays], seed: int
) -> None:
    """At every step of random walks; excesses within the tolerances may be judged either way."""
    depots, nodes = instances.num_depots, instances.num_nodes
    judged = cache(lambda index, route: excess(instances, index, route))
    environment, generator = Environment(to_tensors(instances)), torch.Generator().manual_seed(seed)
    servable, is_depot = environment.servable().all(1).tolist(), torch.arange(nodes) < depots
    state = environment.reset(NUM_ROWS)
    routes = {(index, row): Route(0, ()) for index in range(NUM_INSTANCES) for row in range(NUM_ROWS)}
    served: dict[tuple[int, int], set[int]] = {place: set() for place in routes}
    for number in range(environment.max_actions):
        masks, done = state.mask.tolist(), environment.done(state).tolist()
        for (index, row), route in routes.items():
            mask = masks[index][row]
            assert any(mask) or done[index][row] or not servable[index]
            assert not route.customers or all(mask[:depots])  # a vehicle may always turn back
            for node in range(depots, nodes):
                grown = Route(route.depot, (*route.customers, node))
                amount = 1.0 if node in served[index, row] else judged(index, grown)
                if number == 0 and depots > 1:
                    amount = 1.0  # a depot comes first
                if not LOAD_TOLERANCE / 10 < amount < POLICY_TOLERANCE:
                    assert mask[node] == (amount <= POLICY_TOLERANCE), (index, grown)
        choices = state.mask | (~state.mask.any(-1, keepdim=True) & is_depot)
        weights = torch.where(is_depot, 0.1, 1.0) * choices  # for long routes
        action = torch.multinomial(weights.flatten(0, 1), 1, generator=generator).view_as(state.current)
        for place, route in routes.items():
            node = int(action[place])
            served[place] |= {node} - set(range(depots))
            routes[place] = Route(node, ()) if node < depots else Route(route.depot, (*route.customers, node))
        state = environment.step(state, action)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(instances=odd_instances(NUM_INSTANCES, possible=True), seed=st.integers(0, 2**31))
def test_walks_end_where_everybody_can_be_served_and_their_tours_are_exact(
    instances: Instances[NodeArrays], seed: int
) -> None:
    servable = Environment(to_tensors(instances)).servable().all(1).tolist()
    possible = [first_impossible_customer(instances, index) is None for index in range(len(instances))]
    assert servable == possible
    kept = instances[possible]
    if len(kept):
        actions, cost = random_walk(Environment(to_tensors(kept)), NUM_ROWS, torch.Generator().manual_seed(seed))
        for index, (tours, costs) in enumerate(zip(actions.tolist(), cost.tolist(), strict=True)):
            for tour, found in zip(tours, costs, strict=True):
                report = check_tour(kept, index, flat_actions(tour, kept.num_depots), POLICY_TOLERANCE)
                assert report.first_problem is None
                assert abs(report.cost - found) < 1e-5
