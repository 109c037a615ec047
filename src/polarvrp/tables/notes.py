"""Notes on the paper's printed numbers: which are misprints, and which are defined otherwise than ours."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache

from polarvrp.catalog.methods import METHODS, PUBLISHED, SOLVERS
from polarvrp.evaluation.gaps import instance_gaps_percent, summarise_gaps
from polarvrp.references.published import published_costs
from polarvrp.tables.labels import printed_stems
from polarvrp.tables.paper import read_paper

MISPRINT, DEFINITION = "misprint: ", "definition: "
"""How notes begin."""

_NOMINAL = "the paper's is nominal, the time limit of 1,000 instances spread over 16 cores; ours was measured"
_DEVICE = "on the machine at hand; the paper's on one NVIDIA L40S"
_DEPOTS = (
    "the published network embeds the first depot alone as one and starts each tour at one depot, in turn; ours embeds "
    "all as depots and starts at each"
)

DEFINITIONS = (
    ("zero_shot", "*", "*ortools gap_percent", "the paper divides two printed objectives; ours is a mean of gaps"),
    ("zero_shot", "MD*", "*-shared-rl *", _DEPOTS),
    ("zero_shot", "average-*", "*-shared-rl gap_percent", f"over variants with several depots too, where {_DEPOTS}"),
    ("zero_shot", "*MB*", "ortools *", "the published model never serves a linehaul after a backhaul; ours may"),
    ("in_distribution", "*", "*pyvrp seconds_per_1000", _NOMINAL),
    ("in_distribution", "*", "*ortools seconds_per_1000", _NOMINAL),
    ("in_distribution", "*", "*-*-* seconds_per_1000", _DEVICE),
    ("in_distribution", "*", "shipped-* seconds_per_1000", "on the machine that evaluated it before it shipped"),
    ("refined_tours", "*", "epoch_seconds", f"ours is the mean over epochs with refinement, {_DEVICE}"),
    ("task_experts", "*", "epoch_seconds_*", _DEVICE),
    ("training_cost", "*", "parameters", "the paper rounds to 10,000"),
    ("training_cost", "*", "epoch_seconds", _DEVICE),
    ("training_cost", "*", "total_hours", _DEVICE),
    ("training_cost", "*", "peak_memory_gb", _DEVICE),
)
"""Table, patterns of rows and of columns of ``paper_comparison``, and in what ours differs."""


def note_of(table: str, row: str, column: str) -> str | None:
    """What must be known before a number of the paper is compared with ours; None for nothing.

    Args:
        table: As in ``paper_comparison``, likewise ``row`` and ``column``.
    """
    notes = [misprints()[table, row, column]] if (table, row, column) in misprints() else []
    notes += [
        f"{DEFINITION}{text}"
        for name, rows, columns, text in DEFINITIONS
        if name == table and fnmatchcase(row, rows) and fnmatchcase(column, columns)
    ]
    return "; ".join(notes) or None


@cache
def misprints() -> dict[tuple[str, str, str], str]:
    """Printed numbers that what they were computed from contradicts, by table, row and column.

    Solvers' means follow from their published solutions, gaps on Set-X from the costs printed beside them. The gaps of
    OR-Tools on unseen variants are left out, since the paper defines them otherwise.
    """
    found = dict(_of_solvers("in_distribution", 3))
    found |= _of_solvers("zero_shot", 2)
    return found | dict(_of_set_x())


def _of_solvers(table: str, decimals: int) -> Iterator[tuple[tuple[str, str, str], str]]:
    """Printed means of the solvers that differ from those of the published solutions by more than rounding."""
    paper = read_paper(table)
    for solver in SOLVERS:
        measures = ["objective"] if table == "zero_shot" else ["objective", "gap_percent"]
        for line in paper[paper["method"] == METHODS[solver].label].to_dict("records"):
            variant, size = line["variant"], line["num_customers"]
            costs = [published_costs(variant, size, name) for name in (solver, "pyvrp")]
            summary = summarise_gaps(*costs)
            for measure in measures:
                right = getattr(summary, measure)
                if abs(right - line[measure]) > 0.51 * 10**-decimals:
                    text = f"{MISPRINT}the published solutions give {right:.{decimals}f}"
                    for stem in (solver, PUBLISHED + solver):
                        yield (table, f"{variant}-n{size}", f"{stem} {measure}"), text


def _of_set_x() -> Iterator[tuple[tuple[str, str, str], str]]:
    """Printed gaps that differ from those of the printed costs by more than rounding."""
    paper, stems = read_paper("set_x"), printed_stems()
    right = instance_gaps_percent(paper["cost"].to_numpy(), paper["best_known"].to_numpy())
    for line, gap in zip(paper.to_dict("records"), right, strict=True):
        if abs(gap - line["gap_percent"]) > 6e-4:
            cell = "set_x", str(line["instance"]), f"{stems[line['method']]} gap_percent"
            yield cell, f"{MISPRINT}the cost printed beside it gives {gap:.3f}"
