"""Log-likelihoods of given decisions in one parallel pass, and gradients from one coefficient a tour.

A loss that depends on tours through their log-likelihoods alone has the gradient sum of c times grad log p, with
c = dLoss / dlog p one number a tour. So REINFORCE, preference optimisation and POLAR share this code: a refined
tour is one more row.

Shape legend: B instances, S tours per instance, M packed decisions per instance, N nodes, d width.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from polarvrp.decoding.masks import from_words
from polarvrp.decoding.steps import ScoredSteps
from polarvrp.model.policy import DecoderCache, Policy
from polarvrp.model.precision import no_autocast
from polarvrp.problem.instances import Instances

QUERIES_PER_CHUNK = {"cpu": 1 << 12, "cuda": 1 << 17}
"""Decisions scored at once: bounds the memory of the decoder's feed-forward block, on a CPU to what its cache holds."""


@torch.no_grad()
def score(policy: Policy, embeddings: Tensor, instances: Instances[Tensor], steps: ScoredSteps) -> Tensor:
    """Log-likelihood of each tour.

    Args:
        policy: Gives the probabilities.
        embeddings: Node embeddings of the instances, float, ``[B, N, d]``.
        instances: The instances.
        steps: Decisions of S tours of each.

    Returns:
        Float32 (float64 if the policy is), ``[B, S]``.
    """
    cache = policy.cache(embeddings, instances)
    totals = [_chunk_totals(policy, cache, steps, part)[0] for part in _chunks(steps)]
    return torch.stack(totals).sum(0)


@torch.no_grad()
def most_probable_actions(
    policy: Policy, embeddings: Tensor, instances: Instances[Tensor], steps: ScoredSteps
) -> Tensor:
    """What greedy decoding would take at each decision; arguments as of :func:`score`, int64, ``[B, M]``."""
    cache = policy.cache(embeddings, instances)
    found = [_log_probs(policy, cache, steps, part)[0].argmax(-1) for part in _chunks(steps)]
    return torch.cat(found, dim=1)


def score_gradient(
    policy: Policy, embeddings: Tensor, instances: Instances[Tensor], steps: ScoredSteps, coefficients: Tensor
) -> None:
    """Add the gradient of ``sum(coefficients * log_likelihood)`` to the decoder's parameters and to ``embeddings``.

    Args:
        policy: Gives the probabilities.
        embeddings: Leaf that requires gradients, float, ``[B, N, d]``; its ``grad`` is the encoder's share.
        instances: The instances.
        steps: Decisions of S tours of each.
        coefficients: Derivative of the loss by each tour's log-likelihood, float, ``[B, S]``.
    """
    for part in _chunks(steps):
        # The cache is three small products: rebuilding it spares keeping one graph alive over all chunks.
        cache = policy.cache(embeddings, instances)
        totals, auxiliary = _chunk_totals(policy, cache, steps, part)
        # The authors of mixtures add the auxiliary loss of every decoding step: a mean over chunks, times the steps.
        share = steps.num_actions * (part.stop - part.start) / steps.row.shape[1]
        loss = (coefficients * totals).sum() + share * auxiliary
        with no_autocast(embeddings.device):
            torch.autograd.backward(loss)


def _chunks(steps: ScoredSteps) -> Iterator[slice]:
    batch, length = steps.row.shape
    size = max(QUERIES_PER_CHUNK[steps.row.device.type] // batch, 1)
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))


def _chunk_totals(policy: Policy, cache: DecoderCache, steps: ScoredSteps, part: slice) -> tuple[Tensor, Tensor]:
    """Share of a slice of decisions in each tour's log-likelihood, ``[B, S]``, and the auxiliary loss."""
    log_probs, auxiliary = _log_probs(policy, cache, steps, part)
    chosen = log_probs.gather(-1, steps.action[:, part, None]).squeeze(-1)
    chosen = torch.where(steps.valid[:, part], chosen, torch.zeros_like(chosen))
    totals = chosen.new_zeros(chosen.shape[0], steps.num_rows)
    return totals.scatter_add(1, steps.row[:, part], chosen), auxiliary


def _log_probs(policy: Policy, cache: DecoderCache, steps: ScoredSteps, part: slice) -> tuple[Tensor, Tensor]:
    """Log-probabilities of all nodes at a slice of decisions, ``[B, M, N]``, and the auxiliary loss."""
    mask = from_words(steps.mask[:, part], cache.embeddings.shape[1])
    return policy.log_probs(cache, steps.current[:, part], steps.features[:, part], mask, noise=steps.noise[:, part])
