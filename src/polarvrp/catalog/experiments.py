"""Experiments: which runs are compared in which table and figure; workflow, tables and report iterate over them."""

from polarvrp.catalog.analyses import ANALYSES
from polarvrp.catalog.experiment import INTEGER, REAL, TEXT, Experiment, Figure, Grid, Sweep, grid_of, sweep_of
from polarvrp.catalog.limits import LIMITED_INSTANCES
from polarvrp.catalog.methods import Method

__all__ = [
    "EXPERIMENTS",
    "INTEGER",
    "REAL",
    "TEXT",
    "Experiment",
    "Figure",
    "Grid",
    "Sweep",
    "ablations",
    "analyses",
    "grid_of",
    "main_tables",
    "sweep_of",
    "tables",
]

_GAP_KEYS = {"variant": TEXT, "num_customers": INTEGER, "method": TEXT}
_GAP_VALUES = {
    **dict.fromkeys(("objective", "gap_percent", "gap_of_means_percent", "seconds"), REAL),
    **dict.fromkeys(("instances", "left_out"), INTEGER),
    "reference": TEXT,
}
_GAP = "The gap is the mean over instances of 100 · (cost − reference) / reference"


def _sweep(name: str, title: str, caption: str, paper: str, sweep: Sweep) -> Experiment:
    keys = {sweep.column: REAL if sweep.setting == "temperature" else INTEGER}
    seconds = ("epoch_seconds", "epoch_seconds_without_ls", "epoch_seconds_with_ls", "total_hours")
    return Experiment(
        name=name,
        title=title,
        caption=f"{caption} Smaller size. Bold marks the best of a column.",
        runs="polarvrp.study.experiments:sweep_runs",
        rows="polarvrp.tables.sweeps:sweep_rows",
        render="polarvrp.tables.sweeps:render_sweep",
        keys=keys | ({"paradigm": TEXT} if len(sweep.paradigms) > 1 else {}) | {"seed": INTEGER},
        values={
            **dict.fromkeys(("mean_gap_percent", *seconds), REAL),
            **dict.fromkeys(("variants", "num_customers"), INTEGER),
            "reference": TEXT,
        },
        needs=("training_variants", "histories"),
        group="ablation",
        sweep=sweep,
        paper=paper,
    )


EXPERIMENTS: dict[str, Experiment] = {
    record.name: record
    for record in (
        Experiment(
            name="in_distribution",
            title="Performance on the training variants",
            caption="Mean cost, gap and seconds of every method on the 16 training variants, over all instances of "
            f"each test set. {_GAP}; column reference says to which. Bold marks the best trained policy.",
            runs="polarvrp.study.experiments:main_runs",
            rows="polarvrp.tables.gap_tables:in_distribution",
            render="polarvrp.tables.gap_tables:render_in_distribution",
            keys=_GAP_KEYS,
            values=_GAP_VALUES,
            needs=("training_variants", "solvers", "shipped"),
            paper="polarvrp.tables.comparison:compare_test_sets",
            figure=Figure(
                title="Gap to the reference on the training variants",
                caption="Gap of every compared method on each training variant, a panel a size.",
                draw="polarvrp.tables.figures:methods",
            ),
        ),
        Experiment(
            name="zero_shot",
            title="Zero-shot performance on variants unseen in training",
            caption="Mean cost and gap on the 32 variants with mixed backhauls or several depots, none of which is "
            "one of the paper's training variants, by the rules of the problem and by those of the published "
            "environments; models of one size, over all instances of each test set. "
            f"{_GAP}. Bold marks the best trained policy. The paper's mean gaps of MTPOMO, MVMoE, RouteFinder, CaDA "
            "and MoSES, 31 to 41%, need not repeat: with several depots their authors' code embeds the first alone as "
            "a depot and starts each tour at one depot, in turn; ours embeds all as depots and starts at each.",
            runs="polarvrp.study.experiments:transfer_runs",
            rows="polarvrp.tables.gap_tables:zero_shot",
            render="polarvrp.tables.gap_tables:render_zero_shot",
            keys={**_GAP_KEYS, "protocol": TEXT},
            values=_GAP_VALUES,
            needs=("unseen_variants", "masked_flags", "solvers", "shipped"),
            paper="polarvrp.tables.comparison:compare_test_sets",
            figure=Figure(
                title="Zero-shot gap to the reference on unseen variants",
                caption="Gap of every compared method on each unseen variant by the rules of the problem, a panel a "
                "size.",
                draw="polarvrp.tables.figures:methods",
            ),
        ),
        Experiment(
            name="set_x",
            title="Results on CVRPLIB Set-X",
            caption="Cost and gap to the best-known solution on CVRPLIB's Set-X, distances rounded as CVRPLIB does. "
            "Models of one size, greedy decoding with eight symmetries, no local search. Bold marks the best method.",
            runs="polarvrp.study.experiments:transfer_runs",
            rows="polarvrp.tables.set_x:set_x",
            render="polarvrp.tables.set_x:render_set_x",
            keys={"instance": TEXT, "method": TEXT},
            values={
                **dict.fromkeys(("best_known", "cost", "gap_percent", "published_cost"), REAL),
                **dict.fromkeys(("published_gap_percent", "seconds"), REAL),
                "trained_on": INTEGER,
            },
            needs=("set_x",),
            paper="polarvrp.tables.comparison:compare_set_x",
        ),
        Experiment(
            name="training_paradigms",
            title="Gap by training paradigm",
            caption="Gap on each training variant of the backbones of the grid under each training paradigm; smaller "
            "size. Bold marks the best paradigm of a backbone.",
            runs="polarvrp.study.experiments:grid_runs",
            rows="polarvrp.tables.grids:grid_rows",
            render="polarvrp.tables.grids:render_grid",
            keys={"backbone": TEXT, "paradigm": TEXT, "variant": TEXT, "seed": INTEGER},
            values={"gap_percent": REAL, "num_customers": INTEGER, "reference": TEXT},
            needs=("training_variants", "histories"),
            group="ablation",
            grid=Grid(axis="paradigm"),
            paper="polarvrp.tables.comparison:compare_paradigms",
            figure=Figure(
                title="Gap by training paradigm",
                caption="Gap of each paradigm on each training variant, a panel a backbone.",
                draw="polarvrp.tables.figures:grid",
            ),
        ),
        Experiment(
            name="encoder_settings",
            title="Gap by encoder, all trained by POLAR",
            caption="Gap on each training variant of the backbones of the grid with each encoder, all trained by "
            "POLAR; smaller size. Bold marks the best encoder of a backbone.",
            runs="polarvrp.study.experiments:grid_runs",
            rows="polarvrp.tables.grids:encoder_rows",
            render="polarvrp.tables.grids:render_encoders",
            keys={"backbone": TEXT, "encoder": TEXT, "variant": TEXT, "seed": INTEGER},
            values={"gap_percent": REAL, "parameters": INTEGER, "num_customers": INTEGER, "reference": TEXT},
            needs=("training_variants", "histories"),
            group="ablation",
            grid=Grid(axis="encoder", paradigm="polar"),
            figure=Figure(
                title="Gap by encoder",
                caption="Gap of each encoder on each training variant, a panel a backbone.",
                draw="polarvrp.tables.figures:grid",
            ),
        ),
        _sweep(
            "temperature",
            "Sensitivity of the mean gap to the preference temperature α",
            "Mean gap over the 16 training variants of polarnet with the shared encoder, by temperature α of the "
            "preference loss, under PO and POLAR.",
            "polarvrp.tables.comparison:compare_temperature",
            Sweep(
                setting="temperature",
                section="training",
                column="alpha",
                symbol="α",
                encoder="shared",
                paradigms=("po", "polar"),
            ),
        ),
        _sweep(
            "refined_tours",
            "Effect of refining the best k decoded tours of an instance",
            "Mean gap over the 16 training variants and seconds of an epoch of polarnet with the shared encoder, by "
            "the number k of tours that local search refines for each instance.",
            "polarvrp.tables.comparison:compare_refined_tours",
            Sweep(setting="refined_tours", section="training", column="refined_tours_k", symbol="k", encoder="shared"),
        ),
        _sweep(
            "task_experts",
            "Effect of the number of task experts κ of a PLE layer",
            "Mean gap over the 16 training variants and seconds of an epoch of polarnet with PLE under POLAR, by the "
            "number κ of task experts in each layer.",
            "polarvrp.tables.comparison:compare_task_experts",
            Sweep(setting="task_experts", section="model", column="task_experts_kappa", symbol="κ", encoder="ple"),
        ),
        _sweep(
            "refinement_start",
            "Effect of the epoch after which local search starts",
            "Mean gap over the 16 training variants and hours of training, validation apart, of polarnet with PLE "
            "under POLAR, by the last epoch without refinement; 0 refines from the first epoch on.",
            "polarvrp.tables.comparison:compare_refinement_start",
            Sweep(
                setting="refinement_start_epoch",
                section="training",
                column="refinement_start_epoch",
                symbol="Refined after epoch",
                encoder="ple",
            ),
        ),
        *ANALYSES,
        Experiment(
            name="training_cost",
            title="Training cost",
            caption="Parameters, mean seconds of an epoch, hours of all epochs, validation apart, and peak memory of "
            "polarnet with PLE and with the shared encoder, trained by POLAR and by REINFORCE; both sizes, on the "
            "device named.",
            runs="polarvrp.study.experiments:cost_runs",
            rows="polarvrp.tables.training_cost:training_cost",
            render="polarvrp.tables.training_cost:render_training_cost",
            keys={"method": TEXT, "num_customers": INTEGER},
            values={
                "parameters": INTEGER,
                **dict.fromkeys(("epoch_seconds", "total_hours", "peak_memory_gb"), REAL),
                "epochs": INTEGER,
                "device": TEXT,
            },
            needs=("histories",),
            group="summary",
            paper="polarvrp.tables.comparison:compare_training_cost",
            methods=(
                Method(label="POLAR+PLE", backbone="polarnet", encoder="ple", paradigm="polar"),
                Method(label="POLAR", backbone="polarnet", encoder="shared", paradigm="polar"),
                Method(label="PLE", backbone="polarnet", encoder="ple", paradigm="rl"),
                Method(label="Shared", backbone="polarnet", encoder="shared", paradigm="rl"),
            ),
        ),
        Experiment(
            name="gap_by_time",
            title="Gap against time",
            caption="Mean gap over the training variants and time of 1,000 instances, of models of one size. Networks "
            "decode each instance as it is (×1) and with its eight symmetries (×8); wall time on their device. Solvers "
            f"run in parts of their time limit, on the first {LIMITED_INSTANCES} instances of a set at most, and in "
            "all of it; wall time on 16 cores, a core an instance.",
            runs="polarvrp.study.experiments:transfer_runs",
            rows="polarvrp.tables.gap_by_time:gap_by_time",
            render="polarvrp.tables.gap_by_time:render_gap_by_time",
            keys={"method": TEXT, "num_customers": INTEGER, "effort": TEXT},
            values={
                **dict.fromkeys(("gap_percent", "seconds_per_1000"), REAL),
                **dict.fromkeys(("instances", "left_out", "variants"), INTEGER),
                "reference": TEXT,
            },
            needs=("training_variants", "efforts", "solvers"),
            group="summary",
            figure=Figure(
                title="Gap against time",
                caption="A panel a size, a line a method through its efforts: networks on each instance as it is and "
                "with its eight symmetries, solvers in parts of their time limit and in all of it. Mean over the "
                "training variants; wall time of 1,000 instances, of solvers on 16 cores.",
                draw="polarvrp.tables.gap_by_time:draw_gap_by_time",
            ),
        ),
        Experiment(
            name="paper_comparison",
            title="Numbers printed in the paper beside ours",
            caption="Every number that the paper prints, and those that it claims in words, beside ours, and the "
            "difference; empty where we have none at the paper's size.",
            runs="polarvrp.study.experiments:main_runs",
            rows="polarvrp.tables.comparison:paper_comparison",
            render="polarvrp.tables.comparison:render_comparison",
            keys={"table": TEXT, "row": TEXT, "column": TEXT},
            values={**dict.fromkeys(("paper", "ours", "difference"), REAL), "note": TEXT},
            needs=("tables",),
            group="summary",
        ),
        Experiment(
            name="training_curves",
            title="Training curves",
            caption="Mean sampled cost and gap on the validation sets while they train, for every compared method.",
            runs="polarvrp.study.experiments:main_runs",
            keys={},
            values={},
            needs=("histories",),
            group="summary",
            figure=Figure(
                title="Training curves",
                caption="Mean sampled cost and validation gap against training instances, and the gap against time; a "
                "row of panels a size, a line a seed. The gap is to one local search from a nearest-neighbour tour, so "
                "that good policies fall below 0. Of more than 30 epochs the first twentieth may lie above the axis. "
                "Dotted lines mark where a further stage of a training begins; costs of stages on "
                "other variants or of another size do not compare and are left out. Time is that of the steps, without "
                "validation.",
                draw="polarvrp.tables.curves:training_curves",
            ),
        ),
        Experiment(
            name="sample_routes",
            title="Routes of a sample instance of each variant",
            caption="Routes that a trained model drives through the first test instance of each variant.",
            runs="polarvrp.study.experiments:sample_run",
            keys={},
            values={},
            needs=("test_sets", "training_variants", "unseen_variants", "shipped_routes"),
            group="summary",
            figure=Figure(
                title="Routes of the first test instance of each variant",
                caption="A panel a variant with the cost of the tour, by the model and at the size named above; a "
                "colour a route. Open routes end at their last customer. Greedy decoding, the best of all starts and "
                "symmetries.",
                draw="polarvrp.tables.routes:sample_routes",
            ),
        ),
    )
}
"""In the order of the report; a table that reads others comes after them."""


def tables() -> tuple[str, ...]:
    """Experiments that are tables."""
    return tuple(record.name for record in EXPERIMENTS.values() if record.rows is not None)


def main_tables() -> tuple[str, ...]:
    """Tables of test results that have rows of single runs and of imported solutions."""
    return tuple(record.name for record in EXPERIMENTS.values() if record.group == "main")


def ablations() -> tuple[str, ...]:
    """The paper's grids and sweeps."""
    return tuple(record.name for record in EXPERIMENTS.values() if record.group == "ablation")


def analyses() -> tuple[str, ...]:
    """Tables of what trained models and their trainings say beside gaps."""
    return tuple(record.name for record in EXPERIMENTS.values() if record.group == "analysis")
