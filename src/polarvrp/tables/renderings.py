"""Printed forms of the long tables: pivoted, ordered, averaged and emphasised as the paper prints them."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from polarvrp.catalog.backbones import grid_backbones
from polarvrp.tables.comparison import AVERAGE, average_over
from polarvrp.tables.formats import (
    BACKBONE_LABELS,
    ENCODER_LABELS,
    METHOD_LABELS,
    PARADIGM_LABELS,
    TRAINING_COST_LABELS,
    best_in_bold,
    count,
    duration,
    method_label,
    plain,
    scale_warning,
    span,
)
from polarvrp.tables.gap_tables import Row, instance_rank, is_solver, method_rank, stem_of, variant_rank
from polarvrp.tables.paper import SET_X_GROUPS, set_x_group
from polarvrp.tables.sheets import MISSING, Cell, Column, Sheet
from polarvrp.tables.study_tables import SWEEPS

_GAP = "Gap is the mean over instances of 100·(cost − reference)/reference"
_REFERENCES = {
    "published-pyvrp": "the published PyVRP costs",
    "pyvrp": "our PyVRP costs",
    "best_known": "the best known costs",
}


def in_distribution(rows: Sequence[Row]) -> list[Sheet]:
    """A block a variant, a row a method, objective, gap and time of each size; averages last.

    Blocks show the references and the paper's methods, averages show every trained run too.
    """
    cells = {(row["variant"], row["method"], row["num_customers"]): row for row in rows}
    sizes = sorted({row["num_customers"] for row in rows})
    methods = sorted({row["method"] for row in rows}, key=method_rank)
    compared = [method for method in methods if is_solver(method) or stem_of(method) in METHOD_LABELS]
    if all(is_solver(method) for method in compared):
        compared = methods
    heads = [Column(label, f"n={size}") for size in sizes for label in ("Obj.", "Gap", "Time")]
    blocks = []
    for variant in _variants(rows):
        present = [m for m in compared if any((variant, m, size) in cells for size in sizes)]
        columns = []
        for size in sizes:
            here = {m: cells[variant, m, size] for m in present if (variant, m, size) in cells}
            columns += [_objectives(here, present, 3), _gaps(here, present, 3)]
            columns.append([Cell(duration(here[m]["seconds"]) if m in here else MISSING) for m in present])
        blocks.append(_block(variant, [method_label(m) for m in present], columns))
    columns = []
    for size in sizes:
        columns += [[Cell()] * len(methods), _average_gaps(rows, size, methods, 3), [Cell()] * len(methods)]
    blocks.append(_block("Average", [method_label(m) for m in methods], columns))
    caption = (
        f"Performance on the test instances of the training variants ({_counts(rows)}); time is that of "
        f"the whole set. {_gap_caption(rows)}"
    )
    head = [Column("Variant", numeric=False), Column("Method", numeric=False)]
    return [Sheet(caption, [*head, *heads], blocks, scale_warning(rows[0]["scale"]))]


def zero_shot(rows: Sequence[Row]) -> list[Sheet]:
    """One sheet a size: a row a variant, objective and gap of each method; averages last."""
    sheets = []
    for size in sorted({row["num_customers"] for row in rows}):
        here = [row for row in rows if row["num_customers"] == size]
        methods = sorted({row["method"] for row in here}, key=method_rank)
        cells = {(row["variant"], row["method"]): row for row in here}
        block = []
        for variant in _variants(here):
            found = {m: cells[variant, m] for m in methods if (variant, m) in cells}
            pairs = zip(_objectives(found, methods, 2), _gaps(found, methods, 2), strict=True)
            block.append([Cell(variant), *(cell for pair in pairs for cell in pair)])
        averages = [cell for gap in _average_gaps(here, size, methods, 2) for cell in (Cell(), gap)]
        caption = (
            f"Zero-shot performance on variants unseen in training, n={size} ({_counts(here)}). {_gap_caption(here)}"
        )
        heads = [Column(label, method_label(method)) for method in methods for label in ("Obj.", "Gap")]
        head = Column("Variant", numeric=False)
        warning = scale_warning(rows[0]["scale"])
        sheets.append(Sheet(caption, [head, *heads], [block, [[Cell("Average"), *averages]]], warning))
    return sheets


def set_x(rows: Sequence[Row]) -> list[Sheet]:
    """A row an instance, cost and gap of each method; averages of the paper's size groups and of all last."""
    methods = sorted({row["method"] for row in rows}, key=method_rank)
    instances = sorted({row["instance"] for row in rows}, key=instance_rank)
    cells = {(row["instance"], row["method"]): row for row in rows}
    known = {row["instance"]: row["best_known"] for row in rows}
    block = []
    for instance in instances:
        found = {m: cells[instance, m] for m in methods if (instance, m) in cells}
        costs = best_in_bold([found.get(m, {}).get("cost") for m in methods], "{:.0f}")
        gaps = best_in_bold([found.get(m, {}).get("gap_percent") for m in methods], "{:.3f}%")
        pairs = zip(costs, gaps, strict=True)
        block.append([Cell(instance), Cell(f"{known[instance]:.0f}"), *(cell for pair in pairs for cell in pair)])
    averages = []
    for group in (*SET_X_GROUPS, AVERAGE):
        members = [name for name in instances if group in {AVERAGE, set_x_group(name)}]
        means = [
            average_over({name: cells.get((name, m), {}).get("gap_percent") for name in members}, members)
            for m in methods
        ]
        gaps = best_in_bold(means, "{:.3f}%")
        label = Cell(f"{group.capitalize()} ({len(members)})")
        averages += [[label, Cell(), *(cell for gap in gaps for cell in (Cell(), gap))]] if members else []
    caption = (
        f"Results on {len(instances)} instances of CVRPLIB Set-X, distances rounded as the library defines. "
        f"Gap is 100·(cost − best known)/best known; averages are plain means, their numbers of instances in brackets. "
        f"Best trained policy in bold. Scale {rows[0]['scale']}."
    )
    heads = [Column(label, method_label(method)) for method in methods for label in ("Cost", "Gap")]
    head = [Column("Instance", numeric=False), Column("Best known")]
    return [Sheet(caption, [*head, *heads], [block, averages], scale_warning(rows[0]["scale"]))]


def training_paradigms(rows: Sequence[Row]) -> list[Sheet]:
    """A row a variant, the gap of each backbone under each paradigm; averages last."""
    return [_grid("training paradigm", "paradigm", PARADIGM_LABELS, rows)]


def encoder_settings(rows: Sequence[Row]) -> list[Sheet]:
    """A row a variant, the gap of each backbone with each encoder; averages and parameter counts last."""
    sheet = _grid("encoder (all trained by POLAR)", "encoder", ENCODER_LABELS, rows)
    parameters = {(row["backbone"], row["encoder"]): row["parameters"] for row in rows}
    counts = [Cell(count(parameters[key])) for key in _grid_keys(rows, "encoder", ENCODER_LABELS)]
    return [Sheet(sheet.caption, sheet.columns, [*sheet.blocks, [[Cell("Parameters"), *counts]]], sheet.warning)]


def sweep(name: str) -> Callable[[Sequence[Row]], list[Sheet]]:
    """Printed form of a sweep: a row a swept value, the best gap in bold.

    Args:
        name: A key of ``SWEEPS``.
    """
    titles = {
        "temperature": ("α", "Sensitivity of the mean gap to the preference temperature α"),
        "refined_tours": ("k", "Effect of refining the best k decoded tours of an instance"),
        "task_experts": ("κ", "Effect of the number of task experts κ of a PLE layer"),
        "refinement_start": ("Refined after epoch", "Effect of the epoch after which local search starts"),
    }
    symbol, title = titles[name]
    column, paradigms = SWEEPS[name].column, SWEEPS[name].paradigms

    def render(rows: Sequence[Row]) -> list[Sheet]:
        values = sorted({row[column] for row in rows})
        heads, columns = [Column(symbol)], [[Cell(f"{value:g}") for value in values]]
        for paradigm in paradigms:
            found = {row[column]: row for row in rows if row.get("paradigm", paradigm) == paradigm}
            group = PARADIGM_LABELS[paradigm] if len(paradigms) > 1 else ""
            heads += [Column("Mean gap", group), Column("Epoch without LS", group), Column("Epoch with LS", group)]
            columns.append(best_in_bold([found.get(v, {}).get("mean_gap_percent") for v in values], "{:.3f}%"))
            for key in ("epoch_seconds_without_ls", "epoch_seconds_with_ls"):
                columns.append([Cell(duration(found.get(v, {}).get(key))) for v in values])
        caption = (
            f"{title}, n={rows[0]['num_customers']}. Gaps are means over {rows[0]['variants']} training variants; "
            f"epoch times are means over epochs without and with local search. Best gap in bold. "
            f"Scale {rows[0]['scale']}."
        )
        block = [list(cells) for cells in zip(*columns, strict=True)]
        return [Sheet(caption, heads, [block], scale_warning(rows[0]["scale"]))]

    return render


def training_cost(rows: Sequence[Row]) -> list[Sheet]:
    """A block a size, a row a training."""
    blocks = [
        [_cost_cells(row) for row in rows if row["num_customers"] == size]
        for size in sorted({row["num_customers"] for row in rows})
    ]
    devices = ", ".join(sorted({row["device"] for row in rows if row["device"]}))
    caption = (
        f"Training cost over {span(row['epochs'] for row in rows)} epochs{f' on {devices}' if devices else ''}. Epoch "
        f"time is the mean over all epochs, memory the peak on that device. Scale {rows[0]['scale']}."
    )
    heads = [Column("Method", numeric=False)]
    heads += [Column(label) for label in ("n", "Parameters", "Epoch time", "Total time", "Peak memory")]
    return [Sheet(caption, heads, blocks, scale_warning(rows[0]["scale"]))]


def paper_comparison(rows: Sequence[Row]) -> list[Sheet]:
    """Averages and the small tables; single variants and instances are in the long form only."""
    large = {"in_distribution", "zero_shot", "set_x"}
    shown = [row for row in rows if row["table"] not in large or row["row"].startswith(AVERAGE)]
    blocks = [
        [
            [Cell(row["table"]), Cell(row["row"]), Cell(row["column"])]
            + [Cell(plain(row[key])) for key in ("paper", "ours", "difference")]
            for row in shown
            if row["table"] == table
        ]
        for table in dict.fromkeys(row["table"] for row in shown)
    ]
    filled = sum(row["ours"] is not None for row in rows)
    caption = (
        f"Numbers printed in the paper beside ours; difference is ours minus the paper's. {filled} of {len(rows)} "
        f"numbers have a counterpart. Single variants and instances are in the Parquet and CSV files only. "
        f"Scale {rows[0]['scale']}."
    )
    heads = [Column(label, numeric=False) for label in ("Table", "Row", "Column")]
    heads += [Column(label) for label in ("Paper", "Ours", "Difference")]
    return [Sheet(caption, heads, blocks, scale_warning(rows[0]["scale"]))]


def _grid(title: str, column: str, labels: Mapping[str, str], rows: Sequence[Row]) -> Sheet:
    keys = _grid_keys(rows, column, labels)
    gaps = {(row["backbone"], row[column], row["variant"]): row["gap_percent"] for row in rows}
    variants = _variants(rows)

    def bold(values: dict[tuple[str, str], float | None]) -> list[Cell]:
        """Best of each backbone in bold."""
        return [
            cell
            for backbone in dict.fromkeys(backbone for backbone, _ in keys)
            for cell in best_in_bold([values[key] for key in keys if key[0] == backbone], "{:.3f}%")
        ]

    block = [[Cell(variant), *bold({key: gaps.get((*key, variant)) for key in keys})] for variant in variants]
    means = {key: average_over({v: gaps.get((*key, v)) for v in variants}, variants) for key in keys}
    caption = (
        f"Gap on each training variant by {title}, n={rows[0]['num_customers']}. {_GAP}; averages are plain means over "
        f"variants. Best of each backbone in bold. Scale {rows[0]['scale']}."
    )
    heads = [Column(labels[value], BACKBONE_LABELS[backbone]) for backbone, value in keys]
    head = Column("Variant", numeric=False)
    return Sheet(caption, [head, *heads], [block, [[Cell("Average"), *bold(means)]]], scale_warning(rows[0]["scale"]))


def _grid_keys(rows: Sequence[Row], column: str, labels: Mapping[str, str]) -> list[tuple[str, str]]:
    present = {(row["backbone"], row[column]) for row in rows}
    return [(backbone, value) for backbone in grid_backbones() for value in labels if (backbone, value) in present]


def _variants(rows: Iterable[Row]) -> list[str]:
    return sorted({row["variant"] for row in rows}, key=variant_rank)


def _objectives(found: Mapping[str, Row], methods: Sequence[str], digits: int) -> list[Cell]:
    values = [found[m]["objective"] if m in found else None for m in methods]
    return best_in_bold(values, f"{{:.{digits}f}}", [not is_solver(m) for m in methods])


def _gaps(found: Mapping[str, Row], methods: Sequence[str], digits: int) -> list[Cell]:
    """Gaps of one test set, the reference itself as a star."""
    values = [found[m]["gap_percent"] if m in found else None for m in methods]
    cells = best_in_bold(values, f"{{:.{digits}f}}%", [not is_solver(m) for m in methods])
    return [
        Cell("*") if m in found and m == found[m]["reference"] else cell for m, cell in zip(methods, cells, strict=True)
    ]


def _average_gaps(rows: Sequence[Row], size: int, methods: Sequence[str], digits: int) -> list[Cell]:
    """Mean gap over the variants of the size, for methods that have them all."""
    here = [row for row in rows if row["num_customers"] == size]
    variants = _variants(here)
    references = {row["reference"] for row in here}
    means = [
        average_over({row["variant"]: row["gap_percent"] for row in here if row["method"] == method}, variants)
        for method in methods
    ]
    cells = best_in_bold(means, f"{{:.{digits}f}}%", [not is_solver(method) for method in methods])
    return [Cell("*") if m in references else cell for m, cell in zip(methods, cells, strict=True)]


def _block(name: str, labels: Sequence[str], columns: Sequence[Sequence[Cell]]) -> list[list[Cell]]:
    """Rows of one block; its name stands in the first."""
    names = [name, *[""] * (len(labels) - 1)]
    return [
        [Cell(first), Cell(label), *cells]
        for first, label, cells in zip(names, labels, zip(*columns, strict=True), strict=True)
    ]


def _gap_caption(rows: Sequence[Row]) -> str:
    references = sorted({row["reference"] for row in rows if row["reference"]})
    against = " or ".join(_REFERENCES[name] for name in references) or "no reference"
    return (
        f"{_GAP}, against {against} (*); averages are plain means over variants. "
        f"Best trained policy in bold. Scale {rows[0]['scale']}."
    )


def _counts(rows: Iterable[Row]) -> str:
    return f"{span(row['instances'] for row in rows)} instances each"


def _cost_cells(row: Row) -> list[Cell]:
    hours, memory = row["total_hours"], row["peak_memory_gb"]
    return [
        Cell(method_label(row["method"], TRAINING_COST_LABELS)),
        Cell(str(row["num_customers"])),
        Cell(count(row["parameters"])),
        Cell(duration(row["epoch_seconds"])),
        Cell(duration(None if hours is None else 3600 * hours)),
        Cell(MISSING if memory is None else f"{memory:.2f} GB"),
    ]
