"""Shipped costs against the means, violation counts and gaps known of the published solution files."""

import numpy as np
import pytest

from polarvrp.errors import ConfigError
from polarvrp.problem.variants import VARIANTS
from polarvrp.references.published import published_costs, published_reference

TABLE = """
CVRP 10.3721 10.3723 0 10.5719 0 15.6280 15.6285 0 16.2796 0
OVRP 6.5068 6.5069 0 6.5533 0 9.7245 9.7246 0 9.9955 0
VRPB 9.6875 9.6877 0 9.8024 0 14.3769 14.3771 0 14.9325 0
VRPL 10.5874 10.5876 32 10.7756 0 15.7656 15.7661 50 16.4068 0
OVRPB 6.8981 6.8982 0 6.9277 0 10.3349 10.3350 0 10.5770 0
OVRPL 6.5068 6.5070 0 6.5519 0 9.7245 9.7247 0 10.0015 0
VRPBL 10.1858 10.1860 40 10.3306 0 14.7789 14.7792 83 15.4259 0
VRPTW 16.0308 16.0308 47 16.0892 1 25.4230 25.4231 103 25.8140 4
OVRPBL 6.8990 6.8991 0 6.9266 0 10.3351 10.3352 0 10.5824 0
OVRPTW 10.5100 10.5100 37 10.5185 0 16.9264 16.9265 66 17.0270 3
VRPBTW 18.2922 18.2922 41 18.3661 0 29.4666 29.4667 112 29.9447 1
VRPLTW 16.3557 16.3558 56 16.4413 0 25.7573 25.7574 129 26.2594 5
OVRPBTW 11.6686 11.6687 31 11.6817 0 19.1559 19.1560 78 19.3026 3
OVRPLTW 10.5101 10.5101 37 10.5185 0 16.9263 16.9264 67 17.0266 3
VRPBLTW 18.5887 18.5887 57 18.6935 0 29.8100 29.8101 127 30.3964 0
OVRPBLTW 11.6684 11.6685 31 11.6812 0 19.1560 19.1562 78 19.3046 2
VRPMB 9.0890 9.0891 0 9.7992 0 13.5408 13.5412 0 14.9284 0
OVRPMB 6.1110 6.1111 0 6.9279 0 9.0096 9.0098 0 10.5763 0
VRPMBL 9.4905 9.4906 50 10.3339 0 13.7925 13.7931 69 15.4297 0
OVRPMBL 6.1113 6.1114 0 6.9265 0 9.0098 9.0100 0 10.5837 0
VRPMBTW 16.0137 16.0138 52 18.3657 0 25.4922 25.4922 133 29.9405 0
OVRPMBTW 10.4736 10.4736 34 11.6815 0 16.9631 16.9632 97 19.3037 3
VRPMBLTW 16.3055 16.3056 74 18.6958 0 25.8142 25.8142 161 30.4025 0
OVRPMBLTW 10.4735 10.4735 34 11.6807 0 16.9631 16.9631 96 19.3046 2
MDVRP 8.0638 8.0640 0 8.2211 0 11.8877 11.8879 0 12.5146 0
MDOVRP 5.3432 5.3434 0 5.3653 0 7.9738 7.9740 0 8.1596 0
MDVRPB 7.9525 7.9527 0 8.0474 0 11.6372 11.6374 0 12.2198 0
MDVRPL 8.0779 8.0781 2 8.2274 0 11.8974 11.8977 2 12.5222 0
MDOVRPB 5.7469 5.7471 0 5.7649 0 8.6854 8.6856 0 8.8729 0
MDOVRPL 5.3432 5.3434 0 5.3675 0 7.9738 7.9741 0 8.1603 0
MDVRPBL 8.0086 8.0089 7 8.1007 0 11.6793 11.6796 10 12.2241 0
MDVRPTW 12.0294 12.0296 45 12.0695 2 19.3262 19.3265 106 19.6254 2
MDOVRPBL 5.7471 5.7472 0 5.7671 0 8.6858 8.6860 0 8.8713 0
MDOVRPTW 7.9024 7.9026 29 7.9117 0 12.9979 12.9980 84 13.0936 0
MDVRPBTW 13.6077 13.6079 22 13.6576 4 22.0303 22.0306 78 22.4032 10
MDVRPLTW 12.0518 12.0520 45 12.0938 2 19.3511 19.3514 108 19.6558 3
MDOVRPBTW 8.6538 8.6540 16 8.6650 0 14.3686 14.3688 59 14.4936 3
MDOVRPLTW 7.9024 7.9026 29 7.9116 0 12.9980 12.9981 85 13.0894 0
MDVRPBLTW 13.6296 13.6298 22 13.6812 4 22.0564 22.0567 82 22.4328 11
MDOVRPBLTW 8.6537 8.6539 16 8.6647 0 14.3687 14.3689 59 14.4935 3
MDVRPMB 7.3396 7.3398 0 8.0492 0 10.6820 10.6823 0 12.2167 0
MDOVRPMB 5.1812 5.1813 0 5.7649 0 7.6614 7.6617 0 8.8752 0
MDVRPMBL 7.3759 7.3761 4 8.1010 0 10.7053 10.7056 4 12.2288 0
MDOVRPMBL 5.1814 5.1815 0 5.7663 0 7.6616 7.6619 0 8.8667 0
MDVRPMBTW 12.0664 12.0666 30 13.6591 4 19.2854 19.2855 92 22.3947 9
MDOVRPMBTW 7.9238 7.9241 17 8.6648 0 12.9642 12.9643 70 14.4932 3
MDVRPMBLTW 12.0896 12.0898 28 13.6784 4 19.3102 19.3103 89 22.4305 12
MDOVRPMBLTW 7.9238 7.9240 17 8.6648 0 12.9642 12.9643 70 14.4929 3
"""
"""Variant; at n = 50 PyVRP's published mean, its exact mean, violations, OR-Tools' mean, violations; then at 100."""

ROWS = {name: [float(cell) for cell in cells] for name, *cells in map(str.split, TABLE.strip().splitlines())}


def test_all_variants_are_there() -> None:
    assert set(ROWS) == set(VARIANTS)


@pytest.mark.golden
@pytest.mark.parametrize("variant", ROWS)
def test_means_and_violations(variant: str) -> None:
    for size, cells in ((50, ROWS[variant][:5]), (100, ROWS[variant][5:])):
        pyvrp = published_reference(variant, size, "pyvrp")
        ortools = published_reference(variant, size, "published-ortools")
        means = [pyvrp.cost.mean(), pyvrp.exact_cost.mean(), ortools.cost.mean()]
        assert means == pytest.approx([cells[0], cells[1], cells[3]], abs=6e-5)  # printed from float32 means
        broken = [int(((r.window_violation > 1e-9) | (r.limit_violation > 1e-9)).sum()) for r in (pyvrp, ortools)]
        assert broken == [cells[2], cells[4]]


@pytest.mark.golden
@pytest.mark.parametrize(
    ("variant", "size", "gap_percent"),
    [("CVRP", 50, 1.907), ("CVRP", 100, 4.178), ("VRPTW", 50, 0.347), ("OVRPBLTW", 100, 0.767)],
)
def test_gaps_of_ortools(variant: str, size: int, gap_percent: float) -> None:
    reference = published_costs(variant, size)
    gaps = 100 * (published_costs(variant, size, "ortools") - reference) / reference
    assert gaps.mean() == pytest.approx(gap_percent, abs=5.1e-4)


def test_alias_shape_and_read_only() -> None:
    costs = published_costs("mdcvrp", 50, "published-pyvrp")
    assert costs is published_costs("mdcvrp", 50, "published-pyvrp")
    assert costs.shape == (1000,)
    assert costs.dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        costs[0] = 0.0


@pytest.mark.parametrize(
    ("variant", "size", "solver", "message"),
    [("CVRP", 20, "pyvrp", "20 customers"), ("CVRP", 50, "lkh", "lkh"), ("XVRP", 50, "pyvrp", "unknown variant")],
)
def test_unknown_sets(variant: str, size: int, solver: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        published_reference(variant, size, solver)
