"""Solutions built action by action: transition and mask for all 48 variants as batched tensor operations.

An action is a node. At a customer, a depot ends the running route at its own depot, whatever depot the action
names, and with several depots the next route starts at the one named. Everything has a static shape and there is
no loop over instances or rows, so one step can be captured in a graph.

Shape legend: B instances, S rows (solutions under construction) per instance, N = K + n nodes (K depots first).
"""

import copy
from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor

from polarvrp.environment.state import Constants, State, entries_of, fresh_state
from polarvrp.problem.instances import Instances
from polarvrp.problem.symmetries import augment
from polarvrp.problem.table_rows import rows_of
from polarvrp.problem.tours import most_actions

Protocol = Literal["strict", "published"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)


class Environment:
    """The constructive process on a batch of instances.

    Args:
        instances: Tensors on one device.
        protocol: ``strict`` keeps every rule. ``published`` is for comparison with published numbers of zero-shot
            sets: with mixed backhauls it tests one later delivery at a time, so that vehicles may overload, and tours
            compete whose forced first action was illegal.
    """

    def __init__(self, instances: Instances[Tensor], protocol: Protocol = "strict") -> None:
        self.instances = instances
        self.num_depots = instances.num_depots
        self.num_customers = instances.num_customers
        self.constants = Constants.of(instances)
        self.strict = protocol == "strict"
        self.max_actions = most_actions(self.num_customers, self.num_depots)

    def reset(self, num_rows: int) -> State:
        """State before the first action: with one depot any customer is legal, with several only the depots."""
        batch, nodes = self.constants.distances.shape[:2]
        is_depot = torch.arange(nodes, device=self.constants.distances.device) < self.num_depots
        state = fresh_state(self.constants, num_rows, self.num_depots, is_depot.expand(batch, num_rows, nodes))
        if self.num_depots > 1:
            return state
        return replace(state, mask=self._customer_mask(state))

    def step(self, state: State, action: Tensor) -> State:
        """State after ``action``.

        Args:
            state: Present state.
            action: Node taken by each row, int64, ``[B, S]``. Legality is not checked.
        """
        constants = self.constants
        to_depot = action < self.num_depots
        at_depot = state.current < self.num_depots
        target = torch.where(to_depot, state.depot, action)
        leg = entries_of(rows_of(constants.distances, state.current), target)
        free_leg = to_depot & (at_depot | constants.open_route)
        leg = leg.masked_fill(free_leg, 0.0)

        linehaul = entries_of(constants.linehaul, action)
        backhaul = entries_of(constants.backhaul, action)
        start = torch.maximum(state.time + leg, entries_of(constants.earliest, action))
        used_backhaul = state.used_backhaul + backhaul
        peak = torch.where(backhaul > 0, torch.maximum(state.peak_load, used_backhaul), state.peak_load + linehaul)
        newly_served = ~(to_depot | entries_of(state.visited, action))
        moved = State(
            current=action,
            depot=torch.where(to_depot, action, state.depot),
            time=(start + entries_of(constants.service, action)).masked_fill(to_depot, 0.0),
            length=(state.length + leg).masked_fill(to_depot, 0.0),
            used_linehaul=(state.used_linehaul + linehaul).masked_fill(to_depot, 0),
            used_backhaul=used_backhaul.masked_fill(to_depot, 0),
            peak_load=peak.masked_fill(to_depot, 0),
            visited=state.visited.scatter(2, action[..., None], True),
            unserved=state.unserved - newly_served.int(),
            tried=state.tried,
            travelled=state.travelled + leg,
            mask=state.mask,
            num_actions=state.num_actions + 1,
        )
        return self._with_mask(moved)

    def all_served(self, state: State) -> Tensor:
        """Rows without unvisited customers, bool, ``[B, S]``."""
        return state.unserved == 0

    def done(self, state: State) -> Tensor:
        """Rows that need no further action, bool, ``[B, S]``: with one depot its visit counts as well."""
        served = self.all_served(state)
        return served & state.visited[..., 0] if self.num_depots == 1 else served

    def cost(self, state: State) -> Tensor:
        """Length of all routes, the leg that closes the last one included, float, ``[B, S]``."""
        closing = entries_of(rows_of(self.constants.distances, state.current), state.depot)
        return state.travelled + closing.masked_fill(self.constants.open_route, 0.0)

    def features(self, state: State) -> Tensor:
        """What a decoder sees of each row, float, ``[B, S, 5]``.

        Free linehaul capacity, free backhaul capacity, time, route length, whether routes are open (paper,
        appendix on the decoder).
        """
        constants, dtype = self.constants, state.time.dtype
        capacity = constants.capacity.to(dtype)
        free_linehaul, free_backhaul = (
            (constants.capacity - used).to(dtype) / capacity for used in (state.used_linehaul, state.used_backhaul)
        )
        open_route = constants.open_route.to(dtype).expand_as(state.time)
        return torch.stack((free_linehaul, free_backhaul, state.time, state.length, open_route), dim=-1)

    def servable(self) -> Tensor:
        """Customers whom an empty vehicle of some depot may serve alone, bool, ``[B, n]``.

        A rollout comes to its end if and only if these are all of them.
        """
        batch, nodes = self.constants.distances.shape[:2]
        depots = torch.arange(self.num_depots, device=self.constants.distances.device).expand(batch, -1)
        mask = torch.ones(batch, self.num_depots, nodes, dtype=torch.bool, device=depots.device)
        state = fresh_state(self.constants, self.num_depots, self.num_depots, mask)
        alone = self._customer_mask(replace(state, current=depots, depot=depots))
        return alone[..., self.num_depots :].any(1)

    def admitted(self, legal: Tensor) -> Tensor:
        """Tours that may be the best of their instance, given those whose forced first actions were legal."""
        return legal if self.strict else torch.ones_like(legal)

    def symmetric(self, count: int) -> "Environment":
        """The instances under the first symmetries (``problem.symmetries.augment``), at the very same distances.

        Coordinates of the copies are rounded, so distances between them would differ in their last bits.
        """
        copies = copy.copy(self)
        copies.instances = augment(self.instances, count)
        copies.constants = self.constants.repeated(count)
        return copies

    def _with_mask(self, state: State) -> State:
        """The state with its mask and deadlock bookkeeping renewed."""
        customers = self._customer_mask(state)
        any_legal = customers.sum(-1, dtype=torch.int32) > 0
        served = self.all_served(state)
        at_depot = state.current < self.num_depots
        if self.num_depots == 1:
            depots = (~at_depot | ~any_legal)[..., None]
            return replace(state, mask=torch.cat((depots, customers[..., 1:]), dim=-1))
        deadlock = at_depot & ~any_legal & ~served
        own = torch.arange(self.num_depots, device=at_depot.device) == state.depot[..., None]
        tried = (state.tried | own) & deadlock[..., None]
        depots = (~at_depot | (served & ~any_legal) | deadlock)[..., None] & ~tried
        return replace(state, mask=torch.cat((depots, customers[..., self.num_depots :]), dim=-1), tried=tried)

    def _customer_mask(self, state: State) -> Tensor:
        """Customers that may come next, False at depots, bool, ``[B, S, N]``."""
        constants = self.constants
        last_arrival, longest_way = constants.last_arrival, constants.longest_way
        if self.num_depots > 1:
            last_arrival, longest_way = rows_of(last_arrival, state.depot), rows_of(longest_way, state.depot)
        out = rows_of(constants.distances, state.current)
        legal = (state.time[..., None] + out < last_arrival) & (state.length[..., None] + out <= longest_way)
        return (legal & self._load_fits(state)).logical_and_(~state.visited)

    def _load_fits(self, state: State) -> Tensor:
        """Customers whose goods the vehicle can take in the order of visits, bool, ``[B, S, N]``.

        Adding a delivery raises every earlier load of the route, hence ``peak + linehaul``; adding a pickup raises
        the present load only, which is the sum of pickups.
        """
        constants = self.constants
        blocking = torch.maximum(state.used_linehaul, state.peak_load if self.strict else state.used_backhaul)
        used = torch.where(constants.mixed, blocking, state.used_linehaul)
        free = constants.capacity - used
        after_backhaul = entries_of(constants.is_backhaul, state.current) & ~constants.mixed
        free = free.masked_fill(after_backhaul, -1)  # no linehaul customer any more
        free_backhaul = constants.capacity - state.used_backhaul
        return (constants.delivery_need <= free[..., None]) & (constants.pickup_need <= free_backhaul[..., None])
