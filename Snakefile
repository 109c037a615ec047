# Entry point: configuration, rules, and the targets that users name.
from snakemake.utils import min_version, validate

from polarvrp.config import StudyConfig

min_version("9.27")


configfile: f"{workflow.basedir}/config/config.yaml"
configfile: f"{workflow.basedir}/config/scales/{config['scale']}.yaml"


study = StudyConfig.from_mapping(config)
validate(config, "workflow/schemas/config.schema.yaml")


include: "workflow/rules/common.smk"


rule all:
    input:
        test_sets(),
        validation_sets(),
        references(),
        tables(),
        figures(),
        "results/report.html",


include: "workflow/rules/datasets.smk"
include: "workflow/rules/references.smk"
include: "workflow/rules/training.smk"
include: "workflow/rules/evaluation.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/report.smk"


rule datasets:
    input:
        test_sets(),
        validation_sets(),


rule references:
    input:
        references(),


rule train:
    input:
        models(jobs.study_runs(study)),


rule policies:
    input:
        rules.train.input,


rule evaluate:
    input:
        evaluations(jobs.study_runs(study)),


rule zero_shot:
    input:
        tables(["zero_shot"]),


rule set_x:
    input:
        tables(["set_x"]),


rule ablations:
    input:
        tables([*GRIDS, *SWEEPS]),


rule tables:
    input:
        tables(),


rule figures:
    input:
        figures(),


rule report:
    input:
        "results/report.html",
