# Entry point: configuration, rules, and the targets that users name.
import gc

from snakemake.utils import min_version

from polarvrp.errors import exit_on_mistake
from polarvrp.config.loading import require_unique_keys, scale_file
from polarvrp.config.study import StudyConfig

min_version("9.27")

# A plan of thousands of jobs is half a million objects that live to the end; by default Python looks them through for
# garbage again and again, for a fifth of the time that a plan takes.
gc.freeze()
gc.set_threshold(1_000_000)


configfile: f"{workflow.basedir}/config/config.yaml"


with exit_on_mistake("configuration"):
    require_unique_keys(workflow.configfiles)
    scale = scale_file(config)


configfile: f"{workflow.basedir}/config/{scale}"


with exit_on_mistake("configuration"):
    study = StudyConfig.from_mapping(config)


include: "workflow/rules/common.smk"


rule all:
    input:
        references(study.reference_sizes),
        tables(),
        figures(),
        layout.report,


include: "workflow/rules/datasets.smk"
include: "workflow/rules/references.smk"
include: "workflow/rules/training.smk"
include: "workflow/rules/evaluation.smk"
include: "workflow/rules/analysis.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/solve.smk"
include: "workflow/rules/targets.smk"
