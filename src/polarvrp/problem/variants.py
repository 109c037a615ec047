"""The 48 variants: with or without several depots, open routes, limits and windows, and three kinds of backhauls.

Names follow the paper: MD, O, VRP, then B or MB, L, TW (``OVRPBLTW``, ``MDVRPMBTW``); without any attribute CVRP.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from polarvrp.errors import ConfigError

FLAG_NAMES = ("O", "TW", "L", "B", "MB", "MD")
"""Order of the constraint vector z."""

UNSEEN_FLAGS = ("MB", "MD")
"""Those that no training variant of the paper sets."""

MULTI_DEPOT_COUNT = 3

LARGEST_SIZE = 65_000
"""Customers of an instance: files of solutions number nodes by 16 bits."""


class Kind(NamedTuple):
    """Kind of instances, as kernels see it: several depots have code of their own, and mixed backhauls a rule.

    Attributes:
        several_depots: Instead of one.
        mixed_backhauls: Whether some instance may have them.
    """

    several_depots: bool
    mixed_backhauls: bool

    @property
    def words(self) -> str:
        """For readers."""
        depots = "several depots" if self.several_depots else "one depot"
        return f"{depots}, mixed backhauls" if self.mixed_backhauls else depots


@dataclass(frozen=True, slots=True)
class Variant:
    """One combination of constraints.

    Attributes:
        open_route: Routes end at their last customer.
        time_windows: Customers have service times and windows, the depot a closing time.
        distance_limit: Each route's length is bounded.
        backhaul: 0 none, 1 every linehaul customer of a route before its backhauls, 2 any order (mixed).
        multi_depot: Three depots; a route ends where it started.
    """

    open_route: bool = False
    time_windows: bool = False
    distance_limit: bool = False
    backhaul: int = 0
    multi_depot: bool = False

    @property
    def name(self) -> str:
        attributes = (
            ("", "B", "MB")[self.backhaul] + ("L" if self.distance_limit else "") + ("TW" if self.time_windows else "")
        )
        prefix = ("MD" if self.multi_depot else "") + ("O" if self.open_route else "")
        return f"{prefix}VRP{attributes}" if prefix or attributes else "CVRP"

    @property
    def num_depots(self) -> int:
        return MULTI_DEPOT_COUNT if self.multi_depot else 1

    @classmethod
    def of_flags(cls, flags: Sequence[bool]) -> "Variant":
        """The variant whose ``flags`` these are."""
        open_route, time_windows, distance_limit, backhaul, mixed, multi_depot = flags
        return cls(open_route, time_windows, distance_limit, 2 if mixed else int(backhaul), multi_depot)

    @property
    def flags(self) -> tuple[bool, bool, bool, bool, bool, bool]:
        """Constraint vector z in the order of ``FLAG_NAMES``; mixed backhauls set both B and MB."""
        return (
            self.open_route,
            self.time_windows,
            self.distance_limit,
            self.backhaul > 0,
            self.backhaul == 2,
            self.multi_depot,
        )

    @property
    def kind(self) -> Kind:
        return Kind(self.multi_depot, self.backhaul == 2)

    @property
    def in_training(self) -> bool:
        return not self.multi_depot and self.backhaul < 2


def _by_name() -> dict[str, Variant]:
    single = [
        Variant(open_route, time_windows, distance_limit, backhaul)
        for backhaul in (0, 1, 2)
        for time_windows in (False, True)
        for distance_limit in (False, True)
        for open_route in (False, True)
    ]
    several = [Variant(v.open_route, v.time_windows, v.distance_limit, v.backhaul, multi_depot=True) for v in single]
    return {variant.name: variant for variant in single + several}


VARIANTS: dict[str, Variant] = _by_name()
TRAINING_VARIANTS: tuple[str, ...] = tuple(n for n, v in VARIANTS.items() if v.in_training)
ZERO_SHOT_VARIANTS: tuple[str, ...] = tuple(n for n, v in VARIANTS.items() if not v.in_training)

KINDS: tuple[Kind, ...] = tuple(sorted({variant.kind for variant in VARIANTS.values()}))
TRAINING_KIND = KINDS[0]
"""One depot, no mixed backhauls."""


def variants_of(kind: Kind) -> tuple[str, ...]:
    """Names of the variants of one kind."""
    return tuple(name for name, variant in VARIANTS.items() if variant.kind == kind)


def parse_variant(name: str) -> Variant:
    """Variant of that name.

    Args:
        name: Any case; ``MDCVRP``, the name of the published folder, means ``MDVRP``.

    Raises:
        ConfigError: If no variant has that name.
    """
    upper = name.upper()
    variant = VARIANTS.get("MDVRP" if upper == "MDCVRP" else upper)
    if variant is None:
        raise ConfigError(f"unknown variant {name!r}; a name is [MD][O]VRP[B or MB][L][TW] or CVRP, e.g. OVRPBLTW")
    return variant


def capacity_for(num_customers: int) -> int:
    """Integer vehicle capacity that generated demands are fractions of."""
    if num_customers > 1000:
        return 230 + int((num_customers - 1000) // 33.3)
    return 30 + (num_customers // 5 if num_customers > 20 else 0)
