"""Walks through the environment that the tests of this folder share."""

import torch
from torch import Tensor

from polarvrp.environment.environment import Environment


def random_walk(environment: Environment, num_rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Uniformly random legal tours: actions ``[B, S, T]`` padded with depots, and their costs ``[B, S]``."""
    state = environment.reset(num_rows)
    actions = []
    while not environment.done(state).all():
        weights = state.mask.flatten(0, 1).float()
        action = torch.multinomial(weights, 1, generator=generator).view_as(state.current)
        action = torch.where(environment.all_served(state), state.depot, action)
        actions.append(action)
        state = environment.step(state, action)
        assert state.num_actions <= environment.max_actions
    return torch.stack(actions, -1), environment.cost(state)


def follow(environment: Environment, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Cost ``[B, S]`` and legality of given actions ``[B, S, T]``; padding after the last customer is not judged."""
    state = environment.reset(actions.shape[1])
    legal = torch.ones_like(state.mask[..., 0])
    for index in range(actions.shape[2]):
        served = environment.all_served(state)
        action = torch.where(served, state.depot, actions[..., index])
        legal &= served | state.mask.gather(-1, action[..., None]).squeeze(-1)
        state = environment.step(state, action)
    return environment.cost(state), legal & environment.all_served(state)
