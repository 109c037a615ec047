"""Node features and their linear embedding.

Shape legend: B instances, K depots, n customers, N = K + n nodes, d features.
"""

import torch
from torch import Tensor, nn

from polarvrp.model.linear import Linear
from polarvrp.problem.instances import Instances

CUSTOMER_FEATURES = 7

DEPOT_FEATURES = {"coordinates": 2, "limit": 3, "globals": 5}
"""Features of a depot row by schema: x and y; then also the distance limit; then also open route and closing time."""


class NodeEmbedding(nn.Module):
    """Two linear maps, one of depot rows and one of customer rows; infinite features count as 0.

    Args:
        width: d.
        schema: Which features a depot has, a key of ``DEPOT_FEATURES``. Every depot of an instance gets a copy of the
            instance's own features.
        bias: Whether the maps have biases.
    """

    def __init__(self, width: int, schema: str, bias: bool) -> None:
        super().__init__()
        self.schema = schema
        self.depots = Linear(DEPOT_FEATURES[schema], width, bias=bias)
        self.customers = Linear(CUSTOMER_FEATURES, width, bias=bias)

    def forward(self, instances: Instances[Tensor], dtype: torch.dtype) -> Tensor:
        """Embed all nodes.

        Args:
            instances: The batch.
            dtype: Dtype of the features.

        Returns:
            ``[B, N, d]``, depots first.
        """
        depots = self.depots(_finite(depot_features(instances, self.schema).to(dtype)))
        customers = self.customers(_finite(customer_features(instances).to(dtype)))
        return torch.cat((depots, customers), dim=1)


def depot_features(instances: Instances[Tensor], schema: str) -> Tensor:
    """Rows of the depots, ``[B, K, 2 | 3 | 5]``."""
    num_depots = instances.num_depots
    locs = instances.locs[:, :num_depots]  # [B, K, 2]
    if schema == "coordinates":
        return locs
    limit = instances.distance_limit[:, None, None].expand(-1, num_depots, 1)
    if schema == "limit":
        return torch.cat((locs, limit), dim=-1)
    open_route = instances.open_route.to(locs.dtype)[:, None, None].expand(-1, num_depots, 1)
    closing = instances.time_windows[:, :num_depots, 1:]
    return torch.cat((open_route, locs, limit, closing), dim=-1)


def customer_features(instances: Instances[Tensor]) -> Tensor:
    """Rows of the customers: demands, window, service time, coordinates, ``[B, n, 7]``."""
    first = instances.num_depots
    return torch.cat(
        (
            instances.demand_linehaul[:, first:, None],
            instances.demand_backhaul[:, first:, None],
            instances.time_windows[:, first:],
            instances.service_time[:, first:, None],
            instances.locs[:, first:],
        ),
        dim=-1,
    )


def _finite(features: Tensor) -> Tensor:
    return torch.nan_to_num(features, nan=0.0, posinf=0.0, neginf=0.0)
