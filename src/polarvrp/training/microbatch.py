"""Microbatch of a training step: some instances of its batch, with all that is computed of them.

A step takes its batch whole or, while tours are refined, in halves: CPU cores refine the tours of one half while the
GPU builds those of the other, both by the same parameters.

Shape legend: B instances, S tours per instance, k refined tours per instance, T actions, N nodes, d width.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from polarvrp.catalog.paradigms import PARADIGMS
from polarvrp.config.training import TrainConfig
from polarvrp.decoding.engine import Engine
from polarvrp.decoding.rollout import Decisions, Replay, starts_at, with_greedy_row
from polarvrp.decoding.sampling import Sampler
from polarvrp.environment.environment import Environment
from polarvrp.local_search.refinement import Refiner
from polarvrp.local_search.route_order import order_routes
from polarvrp.local_search.tensor_search import improve
from polarvrp.model.policy import Policy
from polarvrp.model.precision import bfloat16_products
from polarvrp.problem.instances import Instances
from polarvrp.seeds import derive_seed
from polarvrp.training.group import Share
from polarvrp.training.objectives import (
    MARGINS,
    Objective,
    loss_and_coefficients,
    mean_of_legal,
    preference_margins,
)
from polarvrp.training.rewards import RewardNormalizer

SUMS = (
    "instances",
    "loss",
    "sampled_cost",
    "best_cost",
    "greedy_cost",
    "refined_tours",
    "refinement_improvement",
    "refinement_likelihood_change",
    *MARGINS,
)


@dataclass(frozen=True, slots=True)
class StepContext:
    """Context of all microbatches of all steps.

    Attributes:
        policy: Network in training.
        engine: Computes rollouts and gradients.
        config: Recipe of the training.
        bfloat16: Whether matrix products run in bfloat16.
        objective: Loss of costs and log-likelihoods.
        normalizer: Of rewards, None to train on raw costs.
        refinement_weight: Weight of the loss with refined tours, the rest being that of the sampled ones, float,
            scalar; None for the paper's form: the loss with refined tours alone.
    """

    policy: Policy
    engine: Engine
    config: TrainConfig
    bfloat16: bool
    objective: Objective
    normalizer: RewardNormalizer | None
    refinement_weight: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Refinement:
    """Refined tours that take the place of the tours they came from.

    Attributes:
        row: Tours that were refined, int64, ``[B, k]``.
        accepted: Whether the refined tour is legal and strictly shorter, bool, ``[B, k]``.
        replayed: The refined tours as the environment sees them.
        improvement: Relative improvement, 0 where not accepted, float, ``[B, k]``.
    """

    row: Tensor
    accepted: Tensor
    replayed: Replay
    improvement: Tensor

    def put(self, tours: Tensor, refined: Tensor) -> Tensor:
        """``tours`` (``[B, S]``) with the accepted of ``refined`` (``[B, k]``) in their places."""
        return tours.scatter(1, self.row, torch.where(self.accepted, refined, tours.gather(1, self.row)))


class Microbatch:
    """Consecutive instances of a batch; the methods are the phases of a step, in the order in which they stand here.

    They pass tensors on by attributes, so that a captured phase finds them where they were.

    Args:
        context: Common to all microbatches.
        share: Which instances.
        sampling: Source of the samples.
        noise: Source of the routing noise of mixtures.
    """

    def __init__(self, context: StepContext, share: Share, sampling: torch.Generator, noise: torch.Generator) -> None:
        self._context, self._share = context, share
        self._sampling, self._noise = sampling, noise
        config = context.config
        self._greedy_row = PARADIGMS[config.paradigm].greedy_row
        self._num_starts = config.num_customers if config.starts == "all" else config.starts
        self._starts = torch.arange(self._num_starts, device=sampling.device)
        self.refinement: Refinement | None = None
        self.found: Tensor | None = None
        self.sums: Tensor

    @property
    def generators(self) -> tuple[torch.Generator, torch.Generator]:
        """Sources of its random numbers."""
        return self._sampling, self._noise

    def seed(self, now: tuple[int, int, int]) -> None:
        """Start the streams of a step: starts and samples alike for all microbatches of a batch, noise of its own.

        Args:
            now: Stage, epoch and step.
        """
        seed, first = self._context.config.seed, self._share.first
        self._sampling.manual_seed(derive_seed(seed, "sampling", *now))
        self._noise.manual_seed(derive_seed(seed, "noise", *now, *([first] if first else [])))
        if self._num_starts < (customers := self._context.config.num_customers):
            generator = torch.Generator().manual_seed(derive_seed(seed, "starts", *now))
            drawn = torch.randperm(customers, generator=generator)[: self._num_starts].sort().values
            # From pageable memory a GPU would first finish all that it was given.
            self._starts.copy_(drawn.pin_memory() if self._starts.is_cuda else drawn, non_blocking=True)

    def take(self, instances: Instances[Tensor]) -> None:
        """Take its instances of the batch."""
        self.environment = Environment(instances[self._share.slice])

    def encode(self) -> None:
        """Node embeddings, with their graph."""
        context, instances = self._context, self.environment.instances
        context.policy.draw_noise_from(self._noise)
        with bfloat16_products(instances.locs.device, context.bfloat16):
            self._encoding = context.policy.encode(instances)
        self._embeddings = self._encoding.embeddings.detach()

    def decode(self) -> None:
        """Sampled tours of the starts; POLAR adds one decoded greedily without a forced customer."""
        context = self._context
        context.policy.draw_noise_from(self._noise)
        starts = starts_at(self.environment, self._starts)
        with bfloat16_products(starts.device, context.bfloat16):
            self.tours = context.engine.rollout(
                context.policy,
                self._embeddings,
                self.environment,
                with_greedy_row(starts) if self._greedy_row else starts,
                Sampler(self._sampling, self._share.first, self._share.total),
                greedy_last=self._greedy_row,
                record=True,
            )

    def select_tours(self) -> None:
        """The k best tours of each instance (the paper's k is 1)."""
        tours = self.tours
        self._before, self._row = tours.cost.topk(self._context.config.refined_tours, dim=1, largest=False)
        index = self._row[..., None].expand(-1, -1, tours.actions.shape[2])
        self._chosen = tours.actions.gather(1, index)

    def fetch_usage(self) -> None:
        """Begin to copy what ``synchronize`` looks at."""
        self._usage = self._context.engine.usage(self.tours)

    def synchronize(self) -> None:
        """Wait for the tours and check them; see ``Engine.synchronize``."""
        self._context.engine.synchronize(self.environment, self.tours, self._usage)

    def submit(self, refiner: Refiner, now: tuple[int, int, int]) -> None:
        """Give the chosen tours to the cores.

        Args:
            refiner: Local search.
            now: Stage, epoch and step.
        """
        count = self._context.config.refined_tours
        places = range(self._share.first * count, (self._share.first + self._share.size) * count)
        seeds = [derive_seed(self._context.config.seed, "refinement", *now, place) for place in places]
        self._pending = refiner.submit(self.environment.instances, self._chosen, seeds)

    def collect(self) -> None:
        """Wait for the cores; their tours arrive where those of the step before were."""
        found = self._pending.result().actions
        if self.found is None:
            self.found = torch.empty_like(found, device=self._chosen.device)
        self.found.copy_(found, non_blocking=True)

    def search(self) -> None:
        """Local search on the device itself."""
        self.found = improve(self.environment.instances, self._chosen)

    def replay(self) -> None:
        """The found tours in the environment's eyes; those that are legal and shorter count.

        Under a ramp they are told as the policy told the originals, their first customers as free as those of sampled
        tours. In the paper's form they are as local search returns them, and their first customers count.
        """
        assert self.found is not None
        found, num_free = self.found, 0
        if self._context.refinement_weight is not None:
            found = order_routes(self.environment.instances, found, self._chosen)
            num_free = 1 if self.environment.num_depots == 1 else 2
        self._context.policy.draw_noise_from(self._noise)
        replayed = self._context.engine.replay(self.environment, found, num_free, self._context.policy)
        accepted = replayed.legal & (replayed.cost < self._before)
        improvement = ((self._before - replayed.cost) / self._before).masked_fill(~accepted, 0.0)
        self.refinement = Refinement(self._row, accepted, replayed, improvement)

    def reward_statistics(self) -> None:
        """Statistics of the rewards for the normaliser, to be added up over all processes before ``compute_loss``."""
        assert self._context.normalizer is not None
        self.statistics = self._context.normalizer.reward_statistics(self.tours.cost, self.environment.instances.flags)

    def compute_loss(self) -> None:
        """Loss, and the decisions to learn from with the coefficient of each tour."""
        context, tours, refinement = self._context, self.tours, self.refinement
        self._weighted: list[tuple[Decisions, Tensor]]
        cost, likelihood = tours.cost, tours.log_likelihood
        if refinement is None:
            if context.normalizer is not None:
                cost = context.normalizer(cost, self.environment.instances.flags, self.statistics)
            loss, coefficients = loss_and_coefficients(context.objective, cost, likelihood)
            self._weighted = [(tours.decisions, coefficients)]
        else:
            with bfloat16_products(tours.cost.device, context.bfloat16):
                refined = context.engine.score(
                    context.policy, self._embeddings, self.environment.instances, refinement.replayed.decisions
                )
            cost = refinement.put(tours.cost, refinement.replayed.cost)
            likelihood = refinement.put(tours.log_likelihood, refined)
            loss, coefficients = loss_and_coefficients(context.objective, cost, likelihood)
            taken = coefficients.gather(1, refinement.row) * refinement.accepted
            kept = refinement.put(coefficients, torch.zeros_like(taken))
            if (weight := context.refinement_weight) is not None:
                sampled_loss, sampled = self._sampled_loss()
                loss = torch.lerp(sampled_loss, loss, weight)
                kept, taken = torch.lerp(sampled, kept, weight), weight * taken
            self._weighted = [(tours.decisions, kept), (refinement.replayed.decisions, taken)]
        self.sums = self._sums(loss, cost, likelihood)

    def _sampled_loss(self) -> tuple[Tensor, Tensor]:
        """Loss of the sampled tours alone, and its coefficients for all tours, 0 for the greedy one, ``[B, S]``."""
        tours, greedy = self.tours, int(self._greedy_row)
        count = tours.cost.shape[1] - greedy
        cost, likelihood = tours.cost[:, :count], tours.log_likelihood[:, :count]
        loss, coefficients = loss_and_coefficients(self._context.objective, cost, likelihood)
        return loss, pad(coefficients, (0, greedy))

    def backward(self) -> None:
        """Add this microbatch's share of the gradient."""
        context, weight = self._context, self._share.size / self._share.total
        leaf = self._embeddings.requires_grad_()
        leaf.grad = None
        with bfloat16_products(leaf.device, context.bfloat16):
            for decisions, coefficients in self._weighted:
                context.engine.score_gradient(
                    context.policy, leaf, self.environment.instances, decisions, weight * coefficients
                )
        encoding = self._encoding
        auxiliary = encoding.auxiliary_loss
        roots = [(encoding.embeddings, leaf.grad), (auxiliary, torch.full_like(auxiliary, weight))]
        needed = [(root, grad) for root, grad in roots if root.requires_grad]
        torch.autograd.backward([root for root, _ in needed], [grad for _, grad in needed])

    def _sums(self, loss: Tensor, cost: Tensor, likelihood: Tensor) -> Tensor:
        """Sums over instances in the order of ``SUMS``, float64.

        Args:
            loss: Mean over the instances.
            cost: Of the tours that were compared, ``[B, S]``.
            likelihood: Likewise.
        """
        tours, batch, config = self.tours, len(self.tours.cost), self._context.config
        sampled = tours.cost[:, :-1] if self._greedy_row else tours.cost
        zero = torch.zeros_like(loss)
        refined, improvement, change = zero, zero, zero
        if self.refinement is not None:
            refined, improvement = self.refinement.accepted.sum(), self.refinement.improvement.sum()
            change = (likelihood - tours.log_likelihood).gather(1, self.refinement.row).sum()
        margins = [zero] * len(MARGINS)
        if PARADIGMS[config.paradigm].compares_pairs:
            margins = list(preference_margins(cost, likelihood, config.temperature))
        values = (
            torch.full_like(loss, batch),
            loss.double() * batch,
            mean_of_legal(sampled).sum(),
            tours.cost.amin(1).sum(),
            tours.cost[:, -1].sum() if self._greedy_row else zero,
            refined,
            improvement,
            change,
            *margins,
        )
        return torch.stack([value.double() for value in values])
