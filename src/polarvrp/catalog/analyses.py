"""Experiments that look into trained models and their trainings, where the others compare costs."""

from dataclasses import replace

from polarvrp.catalog.experiment import INTEGER, REAL, TEXT, Experiment, Figure, Grid
from polarvrp.catalog.methods import OWN

_USE_OF_EXPERTS = "in each layer's update of the task stream, over the first instances of each test set"

ANALYSES: tuple[Experiment, ...] = (
    Experiment(
        name="preference_margins",
        title="Preference margins during training",
        caption="How decisive the preferred pairs of tours are in training under PO and POLAR, at the smaller size, "
        "over the epochs in which POLAR refines tours: mean difference of their costs and, times the temperature, of "
        "their log-likelihoods, and the share of pairs whose costs or log-likelihoods differ by less than ε. Bold "
        "marks the more decisive supervision.",
        runs="polarvrp.study.experiments:small_method_runs",
        rows="polarvrp.tables.margins:preference_margins",
        render="polarvrp.tables.margins:render_margins",
        keys={"metric": TEXT, "seed": INTEGER},
        values={"epsilon_percent": REAL, "po": REAL, "polar": REAL, "num_customers": INTEGER},
        needs=("margins",),
        group="analysis",
        methods=(
            replace(OWN, label="PO", paradigm="po"),
            replace(OWN, label="POLAR"),
        ),
        paper="polarvrp.tables.margins:compare_margins",
        figure=Figure(
            title="Preference margins by epoch",
            caption="Mean difference of costs and of log-likelihoods over the preferred pairs of each epoch, and share "
            "of near-ties at each tolerance, under PO and POLAR. POLAR refines tours in the shaded epochs.",
            draw="polarvrp.tables.analysis_figures:margins",
        ),
    ),
    Experiment(
        name="expert_contributions",
        title="Contributions of the PLE experts",
        caption="Mean norm over nodes of each expert's gated term, as a percentage of the norms of all terms, "
        f"{_USE_OF_EXPERTS}; mean over the training variants, smaller size.",
        runs="polarvrp.study.experiments:small_method_runs",
        rows="polarvrp.tables.experts:expert_contributions",
        render="polarvrp.tables.experts:render_contributions",
        keys={"layer": INTEGER, "seed": INTEGER},
        values={
            **dict.fromkeys(("task_1_percent", "task_2_percent", "task_3_percent", "shared_percent"), REAL),
            **dict.fromkeys(("num_customers", "variants", "instances"), INTEGER),
        },
        needs=("experts",),
        group="analysis",
        methods=(OWN,),
        paper="polarvrp.tables.experts:compare_contributions",
        figure=Figure(
            title="Contributions of the PLE experts by variant",
            caption="Share of each expert in the norms of the gated terms, a panel a layer, a bar a training variant.",
            draw="polarvrp.tables.analysis_figures:contributions",
        ),
    ),
    Experiment(
        name="gate_weights",
        title="Gate weights by variant",
        caption="Output of the gate for each task expert and for the shared stream in each PLE layer, by training "
        "variant, with the weight and the norm of the gated term that follow from it, over the first instances of each "
        "test set; smaller size, backbones of the grid trained by POLAR.",
        runs="polarvrp.study.experiments:grid_runs",
        rows="polarvrp.tables.experts:gate_weights",
        render="polarvrp.tables.experts:render_gates",
        keys={"backbone": TEXT, "variant": TEXT, "layer": INTEGER, "expert": TEXT, "seed": INTEGER},
        values={
            **dict.fromkeys(("gate", "weight", "norm", "contribution_percent"), REAL),
            **dict.fromkeys(("num_customers", "instances"), INTEGER),
        },
        needs=("experts",),
        group="analysis",
        grid=Grid(axis="encoder", paradigm="polar", values=("ple",)),
        figure=Figure(
            title="Gate weights by variant",
            caption="Output of the gate by training variant and expert, a panel a layer, a row of panels a backbone.",
            draw="polarvrp.tables.analysis_figures:gates",
        ),
    ),
    Experiment(
        name="embeddings",
        title="Separation of variants in encoder embeddings",
        caption="Mean cosine between the final embeddings of customers of the same variant, of different variants, and "
        "their difference, on the training variants; smaller size, backbones of the grid trained by POLAR. Bold marks "
        "the encoder that separates variants most.",
        runs="polarvrp.study.experiments:grid_runs",
        rows="polarvrp.tables.embeddings:embeddings",
        render="polarvrp.tables.embeddings:render_embeddings",
        keys={"backbone": TEXT, "encoder": TEXT, "seed": INTEGER},
        values={
            **dict.fromkeys(("cosine_within", "cosine_between", "cosine_separation"), REAL),
            **dict.fromkeys(("points", "num_customers"), INTEGER),
        },
        needs=("embeddings",),
        group="analysis",
        grid=Grid(axis="encoder", paradigm="polar", values=("shared", "ple")),
        figure=Figure(
            title="t-SNE of encoder embeddings",
            caption="t-SNE maps of the final embeddings of customers, coloured by training variant: a column a "
            "backbone, a row an encoder, with the difference of mean cosines within and between variants.",
            draw="polarvrp.tables.analysis_figures:embeddings",
        ),
    ),
    Experiment(
        name="architectures",
        title="Parameters and multiply-adds",
        caption="Parameters of every network, and multiply-adds of one instance: the encoder once, the decoder for a "
        "greedy rollout from every customer, without symmetries. Matrix products are counted, mixtures with all their "
        "choices.",
        runs="polarvrp.study.experiments:no_runs",
        rows="polarvrp.tables.architectures:architectures",
        render="polarvrp.tables.architectures:render_architectures",
        keys={"backbone": TEXT, "encoder": TEXT, "num_customers": INTEGER},
        values=dict.fromkeys(
            ("parameters", "encoder_multiply_adds", "decoder_multiply_adds", "multiply_adds", "steps"), INTEGER
        ),
        needs=("architectures",),
        group="analysis",
        paper="polarvrp.tables.architectures:compare_architectures",
        figure=Figure(
            title="Parameters and multiply-adds of an instance",
            caption="Parameters of every network, and multiply-adds of one instance in encoder and decoder, a panel a "
            "size.",
            draw="polarvrp.tables.analysis_figures:architectures",
        ),
    ),
)
"""In the order of the report."""
