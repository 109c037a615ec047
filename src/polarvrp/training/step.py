"""One training step: fresh instances, tours without gradients, one coefficient a tour, gradients in one pass.

Shape legend: B instances, S tours per instance, k refined tours per instance, T actions, N nodes, d width.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from polarvrp.config import TrainConfig
from polarvrp.decoding.rollout import Replay, Rollout, multi_start, pad_actions, replay, rollout, with_greedy_row
from polarvrp.decoding.scoring import score, score_gradient
from polarvrp.decoding.steps import ScoredSteps, StepRecorder
from polarvrp.environment.environment import Environment
from polarvrp.model.policy import Policy
from polarvrp.problem.instances import Instances, to_arrays
from polarvrp.problem.torch_generator import generate_batch
from polarvrp.problem.tours import flat_actions
from polarvrp.seeds import derive_seed
from polarvrp.training.clock import PhaseClock
from polarvrp.training.objectives import Objective, loss_and_coefficients, preference, reinforce
from polarvrp.training.refinement import Refiner
from polarvrp.training.rewards import RewardNormalizer
from polarvrp.training.schedule import refines


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


class TrainingStep:
    """Runs the steps of one training; all randomness of a step derives from the seed, the epoch and its number.

    Args:
        policy: Network in training.
        optimizer: Over its parameters.
        config: Recipe.
        bfloat16: Whether matrix products run in bfloat16.
        refiner: Local search; None where the recipe never refines.
        normalizer: Of rewards, None to train on raw costs.
    """

    def __init__(
        self,
        policy: Policy,
        optimizer: torch.optim.Optimizer,
        config: TrainConfig,
        bfloat16: bool,
        refiner: Refiner | None,
        normalizer: RewardNormalizer | None = None,
    ) -> None:
        self._policy = policy
        self._optimizer = optimizer
        self._config = config
        self._bfloat16 = bfloat16
        self._refiner = refiner
        self._normalizer = normalizer
        self._device = next(policy.parameters()).device
        self._objective: Objective = (
            reinforce if config.paradigm == "rl" else partial(preference, temperature=config.temperature)
        )

    @property
    def reward_means(self) -> list[float]:
        """Running means of the normaliser, to be kept in checkpoints."""
        return [] if self._normalizer is None else self._normalizer.means

    def run(self, stage: int, epoch: int, step: int, batch_size: int) -> dict[str, float]:
        """One update of the parameters.

        Args:
            stage: From 0.
            epoch: From 1 within the stage.
            step: From 0 within the epoch.
            batch_size: Instances to draw.

        Returns:
            ``instances``; sums over instances of ``loss``, ``sampled_cost``, ``greedy_cost`` (POLAR) and
            ``best_cost``; ``refined_tours`` and the sum of their ``refinement_improvement``; ``seconds_{phase}``.
        """
        clock = PhaseClock(self._device)
        config, now = self._config, (stage, epoch, step)
        self._policy.draw_noise_from(self._stream("noise", now))
        with clock.phase("generate"):
            instances = generate_batch(
                config.num_customers,
                batch_size,
                self._stream("data", now),
                self._device,
                config.stages[stage].variants,
                config.mixed_batches,
            )
            environment = Environment(instances)
        with clock.phase("encode"), self._autocast():
            encoding = self._policy.encode(instances)
            embeddings = encoding.embeddings.detach()
        with clock.phase("rollout"), self._autocast():
            tours, steps = self._decode(environment, embeddings, self._stream("sampling", now))
        refinement = None
        if self._refiner is not None and refines(config, epoch):
            with clock.phase("refine"):
                refinement = self._refine(self._refiner, environment, tours, now)
        with clock.phase("score"), self._autocast():
            loss, weighted = self._compare(instances, embeddings, tours, steps, refinement)
        with clock.phase("backward"):
            leaf = embeddings.requires_grad_()
            with self._autocast():
                for decisions, coefficients in weighted:
                    score_gradient(self._policy, leaf, instances, decisions, coefficients)
            roots = [encoding.embeddings, encoding.auxiliary_loss]
            needed = [(root, grad) for root, grad in zip(roots, (leaf.grad, None), strict=True) if root.requires_grad]
            torch.autograd.backward([root for root, _ in needed], [grad for _, grad in needed])
        with clock.phase("optimiser"):
            torch.nn.utils.clip_grad_norm_(self._policy.parameters(), config.gradient_clip)
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
        seconds = {f"seconds_{phase}": value for phase, value in clock.seconds.items()}
        return self._sums(loss, tours, refinement) | seconds

    def _decode(
        self, environment: Environment, embeddings: Tensor, generator: torch.Generator
    ) -> tuple[Rollout, ScoredSteps]:
        """Sampled tours of all starts; POLAR adds one decoded greedily without a forced customer."""
        with torch.no_grad():
            cache = self._policy.cache(embeddings, environment.instances)
        extra = self._config.paradigm == "polar"
        starts = multi_start(environment)
        recorder = StepRecorder(environment)
        tours = rollout(
            self._policy,
            cache,
            environment,
            with_greedy_row(starts) if extra else starts,
            generator=generator,
            greedy_last=extra,
            recorder=recorder,
        )
        return tours, recorder.pack()

    def _refine(
        self, refiner: Refiner, environment: Environment, tours: Rollout, now: tuple[int, int, int]
    ) -> Refinement:
        """Local search on the k best tours of each instance (the paper's k is 1)."""
        count = self._config.refined_tours
        before, row = tours.cost.topk(count, dim=1, largest=False)
        chosen = tours.actions.gather(1, row[..., None].expand(-1, -1, tours.actions.shape[2])).flatten(0, 1)
        flat = [flat_actions(actions, environment.num_depots) for actions in chosen.tolist()]
        repeated = to_arrays(environment.instances)[torch.arange(len(before)).repeat_interleave(count).numpy()]
        seeds = [derive_seed(self._config.seed, "refinement", *now, index) for index in range(len(flat))]
        found = [tour.actions for tour in refiner.refine(repeated, flat, seeds)]
        grouped = [found[start : start + count] for start in range(0, len(found), count)]
        replayed = replay(environment, pad_actions(grouped, self._device))
        accepted = replayed.legal & (replayed.cost < before)
        improvement = ((before - replayed.cost) / before).masked_fill(~accepted, 0.0)
        return Refinement(row, accepted, replayed, improvement)

    def _compare(
        self,
        instances: Instances[Tensor],
        embeddings: Tensor,
        tours: Rollout,
        steps: ScoredSteps,
        refinement: Refinement | None,
    ) -> tuple[Tensor, list[tuple[ScoredSteps, Tensor]]]:
        """Loss, and the decisions to learn from with the coefficient of each tour.

        A refined tour's likelihood includes its first customer, which is forced for sampled tours: as published.
        """
        if refinement is None:
            cost = tours.cost if self._normalizer is None else self._normalizer(tours.cost, instances.flags)
            loss, coefficients = loss_and_coefficients(self._objective, cost, tours.log_likelihood)
            return loss, [(steps, coefficients)]
        refined = score(self._policy, embeddings, instances, refinement.replayed.steps)
        cost = refinement.put(tours.cost, refinement.replayed.cost)
        likelihood = refinement.put(tours.log_likelihood, refined)
        loss, coefficients = loss_and_coefficients(self._objective, cost, likelihood)
        taken = coefficients.gather(1, refinement.row) * refinement.accepted
        kept = refinement.put(coefficients, torch.zeros_like(taken))
        return loss, [(steps, kept), (refinement.replayed.steps, taken)]

    def _sums(self, loss: Tensor, tours: Rollout, refinement: Refinement | None) -> dict[str, float]:
        batch = len(tours.cost)
        extra = self._config.paradigm == "polar"
        sampled = tours.cost[:, :-1] if extra else tours.cost
        sums = {
            "instances": float(batch),
            "loss": float(loss) * batch,
            "sampled_cost": float(sampled.mean(1).sum()),
            "best_cost": float(tours.cost.amin(1).sum()),
        }
        if extra:
            sums["greedy_cost"] = float(tours.cost[:, -1].sum())
        if refinement is not None:
            sums["refined_tours"] = float(refinement.accepted.sum())
            sums["refinement_improvement"] = float(refinement.improvement.sum())
        return sums

    def _stream(self, role: str, now: tuple[int, int, int]) -> torch.Generator:
        """Random numbers of one role in one step, whatever was drawn before."""
        return torch.Generator(self._device).manual_seed(derive_seed(self._config.seed, role, *now))

    def _autocast(self) -> AbstractContextManager[None]:
        return torch.autocast(self._device.type, torch.bfloat16, enabled=self._bfloat16)
