"""Long tables of gaps on the test sets, ``in_distribution`` and ``zero_shot``, and how they are printed."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from math import fsum
from typing import Any

import pandas as pd

from polarvrp.catalog.experiments import Experiment
from polarvrp.catalog.methods import PUBLISHED, PUBLISHED_SIZES, SOLVERS
from polarvrp.errors import DataError
from polarvrp.evaluation.gaps import GapSummary, instance_gaps_percent, summarise_gaps
from polarvrp.study.layout import MASKED, STRICT_RULES, UNSEEN_SPLITS
from polarvrp.tables.external import external_solutions
from polarvrp.tables.formats import MISSING, duration, number, span
from polarvrp.tables.labels import (
    AVERAGE,
    is_external,
    is_imported,
    is_shipped,
    labels_of,
    method_label,
    method_rank,
    references_said,
    seeds_of,
    stem_of,
    variant_rank,
)
from polarvrp.tables.means import SPREAD, average_over, complete_mean, over_seeds
from polarvrp.tables.paper import IN_DISTRIBUTION_ORDER, SOLVER_CORES, ZERO_SHOT_ORDER
from polarvrp.tables.printing import Axis, PrintedTable, captioned, print_table, seeds_said, written
from polarvrp.tables.shipped_rows import shipped_solutions
from polarvrp.tables.sources import InstanceSet, Results, published, reference_of

IMPOSSIBLE_GAP_PERCENT = -20.0
"""No solution undercuts the published near-optimal one so far: a lower gap means other instances."""

_TIME = (
    f"Time is that of the whole test set: of a trained policy wall time on its device, of a solver wall time on "
    f"{SOLVER_CORES} cores, which is its seconds summed over one-core runs divided by {SOLVER_CORES}."
)

PROTOCOL_MARKS = {STRICT_RULES: "", "strict-masked": "‡", "published": "†", "published-masked": "†‡"}
"""How printed columns tell protocols apart."""

_PROTOCOLS = {
    "†": "Columns with † are by the rules of the published environments, which overload vehicles with mixed backhauls "
    "and let tours compete that start illegally; the others keep every rule.",
    "‡": "Columns with ‡ hide the flags of mixed backhauls and several depots from networks that have such flags; no "
    "training set them, so that their weights were never trained.",
}

_SHIPPED = "Models marked as shipped come with this package and were trained whatever the scale says."
_LEFT_OUT = (
    "A number in brackets counts the instances that the mean before it leaves out, of all its seeds and variants: "
    "those without a solution or a reference."
)
_APART = "Those that were tested on more or fewer instances than the runs beside them are left out of the bold marks."


def in_distribution(results: Results, experiment: Experiment) -> pd.DataFrame:
    """Mean cost, gap and seconds of every method on the 16 training variants."""
    return _in_order(_gap_rows(results, IN_DISTRIBUTION_ORDER), results)


def zero_shot(results: Results, experiment: Experiment) -> pd.DataFrame:
    """Mean cost, gap and seconds of every method on the 32 unseen variants, of trained runs by every protocol.

    Solutions without flags stand beside those of the same model alone: what an earlier one left is no comparison.
    """
    rows = [row | {"protocol": STRICT_RULES} for row in _gap_rows(results, ZERO_SHOT_ORDER)]
    asked = UNSEEN_SPLITS if results.protocols is None else results.protocols
    for protocol in (name for name in UNSEEN_SPLITS if name != STRICT_RULES and name in asked):
        for run in results.evaluated_runs():
            for test_set in results.evaluated_sets(run, ZERO_SHOT_ORDER, protocol):
                if protocol.endswith(MASKED) and not results.same_model(run, test_set, protocol):
                    continue
                row = gap_row(results, test_set, run.method, results.evaluation(run, test_set, protocol))
                rows.append(row | {"runs": run.name, "protocol": protocol})
    return _in_order(rows, results)


def gap_row(results: Results, test_set: InstanceSet, method: str, solutions: pd.DataFrame) -> dict[str, Any]:
    """Row of one method on one test set.

    Args:
        results: Where the reference lies.
        test_set: The test set.
        method: Name in the table.
        solutions: As ``read_costs``.
    """
    reference = reference_of(results.layout, test_set, results.reference_name)
    try:
        summary = _summary(solutions["cost"], reference)
    except DataError as error:
        raise DataError(f"{method} on {test_set.variant} with {test_set.num_customers} customers: {error}") from error
    return {
        **asdict(test_set),
        "method": method,
        **asdict(summary),
        "seconds": fsum(solutions["seconds"]),
        "reference": None if reference is None else reference.name,
    }


def render_in_distribution(frame: pd.DataFrame, experiment: Experiment) -> list[PrintedTable]:
    """A block a variant, a row a method, objective, gap and time of each size, averages last; then other trained runs.

    Blocks show the references and the compared methods; of other runs the averages are shown in a table of their own.
    """
    labels = labels_of(frame)
    compared = frame["method"].map(lambda method: _is_compared(method, labels))
    if frame["method"][compared].map(is_external).all():
        compared[:] = True
    long = _as_printed(pd.concat([frame[compared], _averages(frame[compared])], ignore_index=True))
    sizes = sorted(frame["num_customers"].unique())
    order = [*sorted(frame["variant"].unique(), key=variant_rank), AVERAGE]
    rows = sorted(
        long[["variant", "method"]].drop_duplicates().itertuples(index=False, name=None),
        key=lambda row: (order.index(row[0]), method_rank(row[1], labels)),
    )
    measures, means = ("Obj.", "Gap", "Time"), _objectives_and_gaps(long, 3)
    tables = [
        print_table(
            captioned(frame, experiment, f" ({_counts(frame)})", f"{_facts(frame, means)} {_TIME}"),
            [*means, written(long, "Time", "seconds", duration)],
            ("Variant", "Method"),
            Axis(("variant", "method"), {row: (row[0], method_label(row[1], labels)) for row in rows}),
            Axis(("num_customers", "measure"), {(n, name): (f"n={n}", name) for n in sizes for name in measures}),
            summary=sum(variant == AVERAGE for variant, _ in rows),
        )
    ]
    return tables if compared.all() else [*tables, _other_runs(frame, ~compared, experiment)]


def render_zero_shot(frame: pd.DataFrame, experiment: Experiment) -> list[PrintedTable]:
    """One table a size: a row a variant, objective and gap of each method by each protocol; averages last.

    With and without flags compete with each other, strict and published rules do not.
    """
    labels = labels_of(frame)
    tables = []
    for size, here in frame.groupby("num_customers"):
        long = pd.concat(
            _as_printed(pd.concat([rows, _averages(rows)], ignore_index=True)).assign(protocol=protocol)
            for protocol, rows in here.groupby("protocol", sort=False)
        )
        rules = long["protocol"].str.removesuffix(MASKED)
        cells = [cell for _, rows in long.groupby(rules, sort=False) for cell in _objectives_and_gaps(rows, 2)]
        present = set(long[["method", "protocol"]].itertuples(index=False, name=None))
        variants = [*sorted(here["variant"].unique(), key=variant_rank), AVERAGE]
        columns = {
            (method, protocol, measure): (method_label(method, labels), measure + mark)
            for method in sorted({method for method, _ in present}, key=lambda method: method_rank(method, labels))
            for protocol, mark in PROTOCOL_MARKS.items()
            for measure in ("Obj.", "Gap")
            if (method, protocol) in present
        }
        marks = "".join(PROTOCOL_MARKS[protocol] for _, protocol in present)
        facts = " ".join([_facts(here, cells), *(said for mark, said in _PROTOCOLS.items() if mark in marks)])
        tables.append(
            print_table(
                captioned(here, experiment, f", n={size} ({_counts(here)})", facts),
                cells,
                ("Variant",),
                Axis.of("variant", variants),
                Axis(("method", "protocol", "measure"), columns),
                summary=1,
            )
        )
    return tables


def _is_compared(method: str, labels: Mapping[str, str]) -> bool:
    return is_external(method) or is_shipped(method) or stem_of(method) in labels


def _other_runs(frame: pd.DataFrame, others: pd.Series, experiment: Experiment) -> PrintedTable:
    """A row a trained run that is none of the compared methods: its average over all variants of the table."""
    runs = frame[others]
    long = _averages(runs, set(frame["variant"]))
    long, keys = long.assign(method=long["method"].map(stem_of)), ["num_customers", "method"]
    means = over_seeds(long, keys, ["gap_percent"]).join(long.groupby(keys)["left_out"].sum(), on=keys)
    gaps = _with_left_out(written(means, "Gap", "gap_percent", number("{:.3f}%"), ("num_customers",)))
    sizes = sorted(runs["num_customers"].unique())
    return print_table(
        captioned(runs, experiment, ": averages of other trained runs", _facts(runs, [gaps])),
        [gaps],
        ("Run",),
        Axis.of("method", sorted(means["method"].unique())),
        Axis(("num_customers",), {size: (f"n={size}", "Gap") for size in sizes}),
    )


def _in_order(rows: Iterable[Mapping[str, Any]], results: Results) -> pd.DataFrame:
    """Rows in the order of the printed tables; those of one method stay in theirs."""
    labels = results.method_labels

    def rank(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return variant_rank(row["variant"]), row["num_customers"], method_rank(row["method"], labels)

    ordered: list[Mapping[str, Any]] = sorted(rows, key=rank)
    return pd.DataFrame(ordered)


def _gap_rows(results: Results, variants: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of runs and imported solutions, of solvers on the same test sets, and of shipped models on theirs.

    Without runs and imported solutions all sets of the solvers are shown.

    Gaps to our own PyVRP need no published test sets, so what was published is left out beside them.
    """
    rows: list[dict[str, Any]] = []
    covered: set[InstanceSet] = set()
    for run in results.evaluated_runs():
        for test_set in results.evaluated_sets(run, variants):
            covered.add(test_set)
            row = gap_row(results, test_set, run.method, results.evaluation(run, test_set))
            rows.append(row | {"runs": run.name})
    for method, test_set, costs in external_solutions(results, variants):
        covered.add(test_set)
        rows.append(gap_row(results, test_set, method, costs))
    solved = {solver: results.solved_sets(solver, variants) for solver in SOLVERS}
    shown = covered or {test_set for test_sets in solved.values() for test_set in test_sets}
    # They stand beside rows of the same variants; alone they are no results of the study.
    for method, test_set, costs in shipped_solutions(results, {test_set.variant for test_set in shown}):
        shown = shown | {test_set}
        rows.append(gap_row(results, test_set, method, costs))
    for solver in SOLVERS:
        rows += [
            gap_row(results, test_set, solver, results.solved(solver, test_set))
            for test_set in shown.intersection(solved[solver])
        ]
        rows += [
            gap_row(results, test_set, PUBLISHED + solver, published(test_set, solver))
            for test_set in shown
            if test_set.num_customers in PUBLISHED_SIZES and results.reference_name != "pyvrp"
        ]
    return rows


def _summary(costs: pd.Series, reference: pd.Series | None) -> GapSummary:
    """Gap to the reference of each instance; without any reference the objective alone.

    Raises:
        DataError: If the costs cannot be those of the published instances that they are compared on.
    """
    if reference is None:
        solved = costs.dropna()
        return GapSummary(complete_mean(solved), None, None, len(solved), len(costs) - len(solved))
    published_costs = str(reference.name).startswith(PUBLISHED)
    counted = costs.index if published_costs else costs.index.union(reference.index)  # sets may be cut, ours are not
    found, against = costs.reindex(counted).to_numpy(), reference.reindex(counted).to_numpy()
    if published_costs and (instance_gaps_percent(found, against) < IMPOSSIBLE_GAP_PERCENT).any():
        raise DataError("costs far below the published ones; evaluate the published test set, datasets.test_seed 1234")
    return summarise_gaps(found, against)


def _averages(frame: pd.DataFrame, variants: Collection[str] = ()) -> pd.DataFrame:
    """A row a size and method: the mean gap over ``variants``, else those of the size; for methods that have all."""
    rows = []
    for size, here in frame.groupby("num_customers"):
        members = variants or set(here["variant"])
        means = average_over(here, "variant", members, ["method"], "gap_percent").reset_index()
        references = means["method"].where(means["method"].isin(here["reference"]))
        left_out = means["method"].map(here.groupby("method")["left_out"].sum())
        rows.append(means.assign(variant=AVERAGE, num_customers=size, reference=references, left_out=left_out))
    return pd.concat(rows)


def _as_printed(long: pd.DataFrame) -> pd.DataFrame:
    """A row a variant, size and method, means over the seeds; only the spread of gaps is shown beside its mean.

    Seconds of solvers are summed over processes that run side by side; printed is the wall time on as many cores as the
    paper divides them by.
    """
    keys, columns = ["variant", "num_customers", "method"], ["objective", "gap_percent", "seconds"]
    solved = long["method"].map(is_external) & ~long["method"].map(is_imported)
    long = long.assign(
        method=long["method"].map(stem_of),
        seconds=long["seconds"].where(~solved, long["seconds"] / SOLVER_CORES),
        stars=long["method"] == long["reference"],
        apart=_apart(long),
    )
    means = over_seeds(long, keys, columns).drop(columns=[f"{name}{SPREAD}" for name in ("objective", "seconds")])
    means = means.join(long.groupby(keys)["left_out"].sum(), on=keys)
    return means.merge(long[[*keys, "stars", "apart"]].drop_duplicates(keys), on=keys)


def _apart(frame: pd.DataFrame) -> pd.Series:
    """Rows of shipped models that were tested on another number of instances than the runs of their size."""
    tested = (frame["instances"] + frame["left_out"]).astype("float64")
    shipped = frame["method"].map(is_shipped)
    of_runs = tested.where(~shipped & ~frame["method"].map(is_external))
    most = of_runs.groupby([frame["num_customers"], frame["variant"]]).transform("max")
    differs = shipped & most.notna() & (tested != most)
    return differs.groupby([frame["num_customers"], frame["method"]]).transform("any")


def _objectives_and_gaps(long: pd.DataFrame, digits: int) -> list[pd.DataFrame]:
    """Cells of a test set's objectives and gaps, the best trained policy emphasised, the reference itself a star."""
    among = ("variant", "num_customers")
    long = long.assign(competes=~long["method"].map(is_external) & ~long["apart"])
    gaps = written(long, "Gap", "gap_percent", number(f"{{:.{digits}f}}%"), among)
    gaps["text"] = gaps["text"].mask(long["stars"], "*")
    objectives = written(long, "Obj.", "objective", number(f"{{:.{digits}f}}"), among)
    return [_with_left_out(objectives), _with_left_out(gaps)]


def _with_left_out(means: pd.DataFrame) -> pd.DataFrame:
    """Written means, with the number of instances that each leaves out where there are any."""
    counts = means["left_out"].map(lambda count: f" [{count:,}]" if count else "").astype(object)
    return means.assign(text=means["text"] + counts.where(means["text"] != MISSING, ""))


def _facts(frame: pd.DataFrame, means: Iterable[pd.DataFrame]) -> str:
    against = references_said(frame["reference"])
    said = seeds_said(seeds_of(frame["method"]))
    said += f" {_SHIPPED}" if frame["method"].map(is_shipped).any() else ""
    said += f" {_APART}" if _apart(frame).any() else ""
    said += f" {_LEFT_OUT}" if any(cells["text"].str.endswith("]").any() for cells in means) else ""
    return f"Gaps are against {against} (*); averages are plain means over variants.{said}"


def _counts(frame: pd.DataFrame) -> str:
    return f"{span(frame['instances'])} instances each"
