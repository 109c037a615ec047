"""Claims that the paper makes in words, computed from long tables: wins, relative reductions, costs of refinement."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from polarvrp.catalog.backbones import BACKBONES
from polarvrp.catalog.methods import METHODS, OWN
from polarvrp.tables.labels import as_in_the_paper, printed_stems
from polarvrp.tables.means import average_over, complete_mean, over_seeds, seed_means
from polarvrp.tables.paper import IN_DISTRIBUTION_ORDER, PAPER_SIZES, ZERO_SHOT_ORDER

CLAIMS = "claims"
"""Name of these rows in ``paper_comparison``."""

POLAR_WINS = {"mtpomo_ablation": 15, "mvmoe_ablation": 13, "routefinder_ablation": 11, "polarnet": 16}
"""Backbones of the paper's grids, and on how many of its 16 variants POLAR is their best paradigm."""

UNSEEN_WINS = {
    "MTPOMO": 32,
    "MVMoE": 32,
    "RouteFinder": 32,
    "CaDA": 30,
    "FiLMMeD(CaDA)": 28,
    "MoSES(CaDA)": 32,
}
"""On how many of its 32 unseen variants the paper's method is better than each other one."""

SET_X_INSTANCES = 100
"""Instances of CVRPLIB's Set-X."""

Tables = Mapping[str, pd.DataFrame]
"""Long tables of the paper's sizes by name; those that were not built are missing."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One number that the paper states in its text.

    Attributes:
        row: What is claimed.
        column: Unit.
        paper: The paper's number.
        where: Where the paper says so.
        ours: The same from our tables; NaN where they lack a part of it.
    """

    row: str
    column: str
    paper: float
    where: str
    ours: Callable[[Tables], float]


def compare_claims(tables: Tables) -> pd.DataFrame:
    """A line a claim.

    Args:
        tables: Long tables, in the paper's form of costs on Set-X.
    """
    return pd.DataFrame({"row": c.row, "column": c.column, "paper": c.paper, "ours": c.ours(tables)} for c in claims())


MAIN, PUBLIC = "Main results on synthetic instances", "Results on public benchmarks"
"""Sections of the paper."""


def claims() -> list[Claim]:
    """Every claim, in the order of the paper."""
    return [*_main_claims(), *_ablation_claims(), *_transfer_claims()]


def _main_claims() -> list[Claim]:
    """Wins over the 16 training variants, and by how much the mean gap is below that of two rivals."""
    listed = [
        Claim(
            f"best neural method, n={size}",
            "of 16 variants",
            16,
            MAIN,
            partial(_wins_of, name="in_distribution", num_customers=size),
        )
        for size in PAPER_SIZES
    ]
    for label, percents in (("MoSES(CaDA)", (21.3, 20.1)), ("FiLMMeD(CaDA)", (22.7, 15.9))):
        listed += [
            Claim(
                f"mean gap below that of {label}, n={size}",
                "percent",
                percent,
                f"Abstract; {MAIN}",
                partial(_reduction, num_customers=size, rival=printed_stems()[label]),
            )
            for size, percent in zip(PAPER_SIZES, percents, strict=True)
        ]
    return listed


def _ablation_claims() -> list[Claim]:
    """What paradigm, encoder, temperature and an early refinement are said to bring."""
    return [
        *(
            Claim(
                f"POLAR best paradigm of {BACKBONES[name].label}",
                "of 16 variants",
                wins,
                "Ablation studies, POLAR",
                partial(_paradigm_wins, backbone=name),
            )
            for name, wins in POLAR_WINS.items()
        ),
        Claim("POLAR below PO", "of 5 temperatures", 5, "Temperature sensitivity", _temperature_wins),
        Claim("PLE encoder of the lowest mean gap", "of 4 backbones", 4, "Ablation studies, PLE", _encoder_wins),
        Claim("refinement from the first epoch on", "points of gap gained", 0.067, "POLAR from scratch", _scratch_gain),
        Claim("refinement from the first epoch on", "percent more time", 65, "POLAR from scratch", _scratch_time),
    ]


def _transfer_claims() -> list[Claim]:
    """Wins on Set-X and on the variants that no training saw."""
    zero_shot = "Zero-shot evaluation"
    return [
        Claim("best neural method, Set-X", "of 100 instances", 81, PUBLIC, _set_x_wins),
        *(
            Claim(
                f"mean gap below that of {label}, Set-X",
                "percent",
                percent,
                PUBLIC,
                partial(_set_x_reduction, rival=printed_stems()[label]),
            )
            for label, percent in (("RouteFinder", 30.5), ("MoSES(CaDA)", 30.6))
        ),
        Claim(
            "best neural method, unseen variants",
            "of 32 variants",
            27,
            f"Abstract; {zero_shot}",
            partial(_wins_of, name="zero_shot", num_customers=max(PAPER_SIZES)),
        ),
        Claim("best neural method, mixed backhauls", "of 8 variants", 8, zero_shot, _mixed_wins),
        Claim("best neural method, several depots", "of 24 variants", 19, zero_shot, _depot_wins),
        *(
            Claim(
                f"better than {label}, unseen variants",
                "of 32 variants",
                number,
                zero_shot,
                partial(_unseen_wins, variants=ZERO_SHOT_ORDER, rivals=[printed_stems()[label]]),
            )
            for label, number in UNSEEN_WINS.items()
        ),
    ]


def wins(ours: str, members: int, *numbers: pd.DataFrame) -> float:
    """Number of rows in which no other column is below ours; NaN unless every row has a number in every column.

    Args:
        ours: Column of ours.
        members: Number of rows that there must be.
        numbers: Gaps, or costs, a row a variant or instance, a column a method; ours must be best in each of them.
    """
    if any(len(frame) != members or frame.isna().to_numpy().any() for frame in numbers):
        return math.nan
    best = [(frame[ours] <= frame.min(axis=1)).to_numpy() for frame in numbers]
    return float(np.logical_and.reduce(best).sum())


def method_gaps(frame: pd.DataFrame, member: str, column: str = "gap_percent") -> pd.DataFrame:
    """Gaps, or another column, of the paper's neural methods, means of seeds: a row a ``member``, a column a method."""
    gaps = seed_means(frame, [member], [column])[column].unstack("stem")
    return gaps.reindex(columns=[stem for stem, record in METHODS.items() if record.source is None])


def reduction_percent(gaps: pd.DataFrame, ours: str, rival: str, members: int) -> float:
    """By how much the mean of ours lies below a rival's, in percent of the rival's; NaN where a row lacks either.

    Args:
        gaps: A row a variant or instance, a column a method.
        ours: Column of ours.
        rival: Column of the other.
        members: Number of rows that there must be.
    """
    if len(gaps) != members:
        return math.nan
    mine, other = complete_mean(gaps[ours]), complete_mean(gaps[rival])
    return 100 * (other - mine) / other


def _of_size(tables: Tables, name: str, num_customers: int) -> pd.DataFrame | None:
    frame = tables.get(name)
    return None if frame is None else frame[frame["num_customers"] == num_customers]


def _wins_of(tables: Tables, name: str, num_customers: int) -> float:
    frame = _of_size(tables, name, num_customers)
    if frame is None:
        return math.nan
    frame = as_in_the_paper(frame)
    order = ZERO_SHOT_ORDER if name == "zero_shot" else IN_DISTRIBUTION_ORDER
    gaps, costs = (method_gaps(frame, "variant", column) for column in ("gap_percent", "objective"))
    return wins(OWN.stem, len(order), gaps, costs)


def _reduction(tables: Tables, num_customers: int, rival: str) -> float:
    frame = _of_size(tables, "in_distribution", num_customers)
    if frame is None:
        return math.nan
    return reduction_percent(method_gaps(frame, "variant"), OWN.stem, rival, len(IN_DISTRIBUTION_ORDER))


def _mixed_wins(tables: Tables) -> float:
    return _unseen_wins(tables, [name for name in ZERO_SHOT_ORDER if not name.startswith("MD")])


def _depot_wins(tables: Tables) -> float:
    return _unseen_wins(tables, [name for name in ZERO_SHOT_ORDER if name.startswith("MD")])


def _unseen_wins(tables: Tables, variants: Sequence[str], rivals: Sequence[str] | None = None) -> float:
    """Number of unseen variants on which no rival is below ours; all other methods are rivals unless some are named."""
    frame = _of_size(tables, "zero_shot", max(PAPER_SIZES))
    if frame is None:
        return math.nan
    frame = as_in_the_paper(frame)
    gaps = method_gaps(frame[frame["variant"].isin(variants)], "variant")
    return wins(OWN.stem, len(variants), gaps if rivals is None else gaps[[*rivals, OWN.stem]])


def _set_x_gaps(tables: Tables) -> pd.DataFrame:
    """Gaps on Set-X in the paper's form, by models of its size."""
    frame = tables.get("set_x")
    if frame is None:
        return pd.DataFrame()
    frame = frame[frame["trained_on"] == max(PAPER_SIZES)]
    return method_gaps(frame, "instance", "published_gap_percent")


def _set_x_wins(tables: Tables) -> float:
    return wins(OWN.stem, SET_X_INSTANCES, _set_x_gaps(tables))


def _set_x_reduction(tables: Tables, rival: str) -> float:
    return reduction_percent(_set_x_gaps(tables), OWN.stem, rival, SET_X_INSTANCES)


def _paradigm_wins(tables: Tables, backbone: str) -> float:
    frame = _of_size(tables, "training_paradigms", min(PAPER_SIZES))
    if frame is None:
        return math.nan
    here = over_seeds(frame[frame["backbone"] == backbone], ["variant", "paradigm"], ["gap_percent"])
    gaps = here.pivot(index="variant", columns="paradigm", values="gap_percent")
    return wins("polar", len(IN_DISTRIBUTION_ORDER), gaps.reindex(columns=["rl", "po", "polar"]))


def _encoder_wins(tables: Tables) -> float:
    """Number of backbones whose lowest mean gap is that of PLE."""
    frame = _of_size(tables, "encoder_settings", min(PAPER_SIZES))
    if frame is None:
        return math.nan
    keys = ["backbone", "encoder", "seed"]
    means = average_over(frame, "variant", IN_DISTRIBUTION_ORDER, keys, "gap_percent")
    gaps = means.groupby(["backbone", "encoder"]).agg(complete_mean).unstack("encoder")
    return wins("ple", len(POLAR_WINS), gaps.reindex(index=list(POLAR_WINS), columns=["shared", "deep", "ple"]))


def _temperature_wins(tables: Tables) -> float:
    means = _swept(tables, "temperature", ["alpha", "paradigm"])
    gaps = means["mean_gap_percent"].unstack("paradigm") if means is not None else pd.DataFrame()
    return wins("polar", 5, gaps.reindex(columns=["po", "polar"]))


def _scratch_gain(tables: Tables) -> float:
    early, late = _starts(tables, "mean_gap_percent")
    return late - early


def _scratch_time(tables: Tables) -> float:
    early, late = _starts(tables, "total_hours")
    return 100 * (early / late - 1)


def _starts(tables: Tables, column: str) -> tuple[float, float]:
    """A value of refinement from the first epoch on, and of refinement from the paper's 251st on."""
    means = _swept(tables, "refinement_start", ["refinement_start_epoch"])
    values = {} if means is None else means[column].to_dict()
    return values.get(0, math.nan), values.get(250, math.nan)


def _swept(tables: Tables, name: str, keys: list[str]) -> pd.DataFrame | None:
    """Means over the seeds of a sweep of the paper's size over all its variants."""
    frame = _of_size(tables, name, min(PAPER_SIZES))
    if frame is None:
        return None
    whole = frame[frame["variants"] == len(IN_DISTRIBUTION_ORDER)]
    return over_seeds(whole, keys, ["mean_gap_percent", "total_hours"]).set_index(keys)
