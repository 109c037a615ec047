"""The ramp from preference optimisation to POLAR: its loss by the definition, its weight, its state."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from helpers.instances import mixed
from helpers.model_samples import policy_of
from polarvrp.config.training import TrainConfig
from polarvrp.decoding.parallel import ParallelEngine
from polarvrp.environment.environment import Environment
from polarvrp.local_search.refinement import Refiner
from polarvrp.model.policy import Policy
from polarvrp.problem.instances import Instances
from polarvrp.training.group import Group
from polarvrp.training.microbatch import Microbatch, StepContext
from polarvrp.training.objectives import EQUAL_COSTS, preference
from polarvrp.training.schedule import refinement_weight
from polarvrp.training.step import GAP_MEMORY, TrainingStep

ALPHA, CUSTOMERS = 0.05, 7
CONFIG = TrainConfig(
    paradigm="polar", num_customers=CUSTOMERS, batch_size=4, refinement_start_epoch=0, refinement_ramp=0.2
)


def walked(policy: Policy, embeddings: Tensor, instances: Instances[Tensor], index: int, actions: list[int]) -> Tensor:
    """Log-likelihood of one tour of one instance with its first actions free, one decision after the other."""
    environment = Environment(instances[index : index + 1])
    cache = policy.cache(embeddings[index : index + 1], environment.instances)
    state = environment.reset(1)
    total = torch.zeros((), dtype=torch.float64)
    free = 1 if instances.num_depots == 1 else 2
    for number, action in enumerate(actions):
        log_probs, _ = policy.log_probs(cache, state.current, environment.features(state), state.mask)
        if number >= free and not bool(environment.all_served(state).all()):
            total = total + log_probs[0, 0, action]
        state = environment.step(state, torch.tensor([[action]]))
    return total


def routes_of(actions: list[int], depots: int) -> list[tuple[int, list[int]]]:
    """Depot and customers of each route."""
    routes: list[tuple[int, list[int]]] = [(0, [])]
    for node in actions:
        if node < depots:
            routes.append((node, []))
        else:
            routes[-1][1].append(node)
    return [route for route in routes if route[1]]


def told(instances: Instances[Tensor], index: int, refined: list[int], original: list[int]) -> list[int]:
    """The refined tour in the order of the original, by the definition."""
    depots = instances.num_depots
    place = {node: number for number, node in enumerate(original) if node >= depots}
    ordered = []
    for depot, customers in routes_of(refined, depots):
        places = [place[node] for node in customers]
        deliveries = instances.demand_linehaul[index, customers] > 0
        free = not (instances.flags[index, :2].any() or len(set(deliveries.tolist())) == 2)  # no open route, no window
        middle = (len(customers) - 1) / 2
        if free and sum((number - middle) * at for number, at in enumerate(places)) < -1e-9:
            customers.reverse()
        ordered.append((sum(places) / len(places), depot, customers))
    actions: list[int] = []
    for _, depot, customers in sorted(ordered, key=lambda route: route[0]):
        actions += [depot, *customers]
    return actions[1:] if depots == 1 else actions


def by_definition(cost: list[float], likelihood: list[Tensor]) -> Tensor:
    """Loss of one instance: minus the sum over preferred pairs, over all pairs."""
    total = torch.zeros((), dtype=torch.float64)
    for better, its_likelihood in zip(cost, likelihood, strict=True):
        for worse, other in zip(cost, likelihood, strict=True):
            if better < (1 - EQUAL_COSTS) * worse < float("inf"):
                total = total - torch.nn.functional.logsigmoid(ALPHA * (its_likelihood - other))
    return total / len(cost) ** 2


@pytest.mark.parametrize(
    ("weight", "variants"),
    [(0.3, ("MDVRPL", "MDVRPBTW")), *((weight, ("CVRP", "OVRPBLTW", "VRPB")) for weight in (0.0, 0.3, 1.0))],
)
def test_the_gradient_is_that_of_both_losses_in_their_shares(weight: float, variants: tuple[str, ...]) -> None:
    policy = policy_of(dtype=torch.float64)
    instances = mixed(variants, CUSTOMERS, count=1)
    instances = replace(
        instances,
        **{
            name: getattr(instances, name).double()
            for name in ("locs", "demand_linehaul", "demand_backhaul", "time_windows", "service_time", "distance_limit")
        },
    )
    batch, config = len(instances), CONFIG.replace(refined_tours=2)
    objective, shares = partial(preference, temperature=ALPHA), torch.tensor(weight, dtype=torch.float64)
    context = StepContext(policy, ParallelEngine(), config, False, objective, None, shares)
    microbatch = Microbatch(context, Group().shares(batch, 1)[0], torch.Generator(), torch.Generator())
    microbatch.seed((0, 1, 0))
    microbatch.take(instances)
    microbatch.encode()
    microbatch.decode()
    microbatch.select_tours()
    with Refiner(0) as refiner:
        microbatch.submit(refiner, (0, 1, 0))
        microbatch.collect()
    microbatch.replay()
    microbatch.compute_loss()
    microbatch.backward()
    found = {name: parameter.grad for name, parameter in policy.named_parameters()}
    policy.zero_grad(set_to_none=True)

    tours, refinement, refined = microbatch.tours, microbatch.refinement, microbatch.found
    assert refinement is not None and refined is not None
    assert refinement.accepted.any()
    embeddings = policy.encode(instances).embeddings
    losses = []
    for index in range(batch):
        cost = tours.cost[index].tolist()
        actions = tours.actions[index].tolist()
        likelihood = [walked(policy, embeddings, instances, index, tour) for tour in actions]
        improved_cost, improved = list(cost), list(likelihood)
        for number, row in enumerate(refinement.row[index].tolist()):
            if refinement.accepted[index, number]:
                improved_cost[row] = float(refinement.replayed.cost[index, number])
                tour = told(instances, index, refined[index, number].tolist(), actions[row])
                improved[row] = walked(policy, embeddings, instances, index, tour)
        sampled_loss = by_definition(cost[:-1], likelihood[:-1])  # without the greedy tour
        refined_loss = by_definition(improved_cost, improved)
        losses.append((1 - weight) * sampled_loss + weight * refined_loss)
    loss = torch.stack(losses).mean()
    loss.backward()
    assert float(microbatch.sums[1]) / batch == pytest.approx(float(loss.detach()), rel=1e-9)
    for name, parameter in policy.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(found[name], parameter.grad, rtol=1e-6, atol=1e-10, msg=name)


@pytest.mark.parametrize(
    ("gap", "ramp", "expected"),
    [
        (None, 1.0, 0.0),  # nothing is known before the first refined step
        (0.5, 1.0, 0.0),
        (0.4, 1.0, 0.0),
        (0.3, 1.0, 0.5),
        (0.2, 1.0, 1.0),
        (0.01, 1.0, 1.0),
        (0.01, 0.75, 0.75),  # never before the decoder's ramp has ended
        (0.3, 0.25, 0.25),
    ],
)
def test_the_weight_follows_the_gap_below_the_decoders_ramp(gap: float | None, ramp: float, expected: float) -> None:
    assert refinement_weight(CONFIG, gap, ramp) == pytest.approx(expected)
    assert refinement_weight(CONFIG.replace(refinement_ramp=0.0), gap, ramp) == 1.0  # the paper's form


def test_the_gap_is_a_running_mean_over_all_tours_that_were_to_be_refined() -> None:
    policy = policy_of().train()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4)
    with Refiner(0) as refiner:
        step = TrainingStep(policy, optimizer, CONFIG, False, refiner)
        first = step.run(0, 1, 0, 4)
        assert first["refinement_weight"] == 0
        gap = first["refinement_improvement"] / 4
        assert step.refinement_gap == pytest.approx(gap)
        second = step.run(0, 1, 1, 4)
        assert second["refinement_weight"] == pytest.approx(4 * refinement_weight(CONFIG, gap, 1.0))
        gap = GAP_MEMORY * gap + (1 - GAP_MEMORY) * second["refinement_improvement"] / 4
        assert step.refinement_gap == pytest.approx(gap)


def test_the_papers_form_knows_no_weight() -> None:
    policy = policy_of().train()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4)
    with Refiner(0) as refiner:
        step = TrainingStep(policy, optimizer, CONFIG.replace(refinement_ramp=0.0), False, refiner)
        assert "refinement_weight" not in step.run(0, 1, 0, 4)
        assert step.refinement_gap is None
