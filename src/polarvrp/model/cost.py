"""What a network costs: parameters of its parts, multiply-adds of an instance."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from polarvrp.model.policy import Policy
from polarvrp.problem.instances import Instances

STEPS_PER_CUSTOMER = 1.2
"""Actions of a tour, depots included, by customers: PyVRP's published solutions of the 16 training variants have
1.18 at n = 50 and 1.14 at n = 100."""


def parameter_counts(policy: Policy) -> dict[str, int]:
    """Parameters of each part, frozen and unused ones included."""
    return {name: sum(parameter.numel() for parameter in part.parameters()) for name, part in policy.named_children()}


def multiply_adds(policy: Policy, num_customers: int) -> dict[str, int]:
    """Multiply-adds of one instance with one depot: ``encoder``, ``decoder``, their sum ``total``, and ``steps``.

    The decoder's share is its cache and a rollout from n starts of that many steps each. Matrix
    products are counted, element-wise work is not; mixtures count all their choices, as they are computed.

    Args:
        policy: The network.
        num_customers: n.
    """
    instances = _blank_instance(num_customers, policy.dtype)
    num_nodes = instances.num_nodes
    current = torch.zeros(1, num_customers, dtype=torch.int64)
    state = torch.zeros(1, num_customers, 5, dtype=policy.dtype)
    mask = torch.ones(1, num_customers, num_nodes, dtype=torch.bool)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as encoder:
            embeddings = policy.encode(instances).embeddings
        with FlopCounterMode(display=False) as cache_counter:
            cache = policy.cache(embeddings, instances)
        with FlopCounterMode(display=False) as step:
            policy.log_probs(cache, current, state, mask)
    num_steps = round(STEPS_PER_CUSTOMER * num_customers)
    encoding = encoder.get_total_flops() // 2
    decoding = (cache_counter.get_total_flops() + num_steps * step.get_total_flops()) // 2
    return {"encoder": encoding, "decoder": decoding, "total": encoding + decoding, "steps": num_steps}


def _blank_instance(num_customers: int, dtype: torch.dtype) -> Instances[Tensor]:
    num_nodes = num_customers + 1
    return Instances(
        locs=torch.zeros(1, num_nodes, 2, dtype=dtype),
        demand_linehaul=torch.zeros(1, num_nodes, dtype=dtype),
        demand_backhaul=torch.zeros(1, num_nodes, dtype=dtype),
        time_windows=torch.zeros(1, num_nodes, 2, dtype=dtype),
        service_time=torch.zeros(1, num_nodes, dtype=dtype),
        distance_limit=torch.zeros(1, dtype=dtype),
        open_route=torch.zeros(1, dtype=torch.bool),
        backhaul_class=torch.ones(1, dtype=torch.int64),
        flags=torch.zeros(1, 6, dtype=torch.bool),
        num_depots=1,
        capacity=1,
    )
