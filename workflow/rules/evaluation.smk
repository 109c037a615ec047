# One job solves all sets of a run: importing torch costs more than solving one.
rule evaluate_policy:
    input:
        policy=WEIGHTS.format(run=SIZED_RUN),
        instances=expand(DATASET, split="test", variant=study.training_variants, allow_missing=True),
    output:
        expand(EVALUATION, run=SIZED_RUN, variant=study.training_variants, allow_missing=True),
    log:
        layout.log("evaluate_policy", SIZED_RUN),
    conda:
        "../envs/main.yaml"
    threads: GPU_JOB_THREADS
    resources:
        gpu=GPUS,
    params:
        spec=of_run(jobs.evaluation_spec),
        fingerprint=fingerprint_of,
        augmentations=study.evaluation.augmentations,
    shell:
        "python -m polarvrp evaluate {input.instances} --model {input.policy} --fingerprint {params.fingerprint}"
        " --augmentations {params.augmentations} --output {output} > {log} 2>&1"


# By the rules of the problem and by those of the published environments, in one pass.
rule evaluate_zero_shot:
    input:
        policy=WEIGHTS.format(run=SIZED_RUN),
        instances=expand(DATASET, split="test", variant=study.zero_shot_variants, allow_missing=True),
    output:
        expand(EVALUATION, run=SIZED_RUN, variant=study.zero_shot_variants, allow_missing=True),
        expand(UNSEEN["published"], run=SIZED_RUN, variant=study.zero_shot_variants, allow_missing=True),
    log:
        layout.log("evaluate_zero_shot", SIZED_RUN),
    conda:
        "../envs/main.yaml"
    threads: GPU_JOB_THREADS
    resources:
        gpu=GPUS,
    params:
        spec=of_run(jobs.zero_shot_spec),
        fingerprint=fingerprint_of,
        augmentations=study.evaluation.augmentations,
        protocols=jobs.PROTOCOLS,
        flags=flags_options(study.evaluation.mask_unseen_flags is True),
    shell:
        "python -m polarvrp evaluate {input.instances} --model {input.policy} --fingerprint {params.fingerprint}"
        " --augmentations {params.augmentations} --protocol {params.protocols} {params.flags}"
        " --output {output} > {log} 2>&1"


use rule evaluate_zero_shot as evaluate_zero_shot_masked with:
    output:
        expand(UNSEEN["strict-masked"], run=SIZED_RUN, variant=study.zero_shot_variants, allow_missing=True),
        expand(UNSEEN["published-masked"], run=SIZED_RUN, variant=study.zero_shot_variants, allow_missing=True),
    log:
        layout.log("evaluate_zero_shot_masked", SIZED_RUN),
    params:
        spec=of_run(jobs.masked_spec),
        fingerprint=fingerprint_of,
        augmentations=study.evaluation.augmentations,
        protocols=jobs.PROTOCOLS,
        flags=flags_options(masked=True),


# No table asks for these; they are for whoever chooses among settings without looking at test sets.
use rule evaluate_policy as evaluate_validation with:
    input:
        policy=WEIGHTS.format(run=SIZED_RUN),
        instances=expand(DATASET, split="validation", variant=study.training_variants, allow_missing=True),
    output:
        expand(VALIDATED, run=SIZED_RUN, variant=study.training_variants, allow_missing=True),
    log:
        layout.log("evaluate_validation", SIZED_RUN),
    params:
        spec=validation_spec,
        fingerprint=fingerprint_of,
        augmentations=study.evaluation.augmentations,


use rule evaluate_policy as evaluate_plain with:
    output:
        expand(PLAIN, run=SIZED_RUN, variant=study.training_variants, allow_missing=True),
    log:
        layout.log("evaluate_plain", SIZED_RUN),
    params:
        spec=plain_spec,
        fingerprint=fingerprint_of,
        augmentations=1,


rule evaluate_shipped:
    input:
        instances=expand(DATASET, split="test", variant=study.training_variants, allow_missing=True),
    output:
        expand(SHIPPED, variant=study.training_variants, allow_missing=True),
    log:
        layout.log("evaluate_shipped", "n{n}"),
    conda:
        "../envs/main.yaml"
    threads: GPU_JOB_THREADS
    resources:
        gpu=GPUS,
    params:
        spec=shipped_spec,
        model=shipped.PREFIX,
        augmentations=study.evaluation.augmentations,
    shell:
        "python -m polarvrp evaluate {input.instances} --model {params.model}{wildcards.n}"
        " --augmentations {params.augmentations} --output {output} > {log} 2>&1"


use rule evaluate_shipped as evaluate_shipped_zero_shot with:
    input:
        instances=expand(DATASET, split="test", variant=study.zero_shot_variants, allow_missing=True),
    output:
        expand(SHIPPED, variant=study.zero_shot_variants, allow_missing=True),
    log:
        layout.log("evaluate_shipped_zero_shot", "n{n}"),


rule evaluate_set_x:
    input:
        policy=WEIGHTS.format(run=SIZED_RUN),
    output:
        SET_X.format(run=SIZED_RUN),
    log:
        layout.log("evaluate_set_x", SIZED_RUN),
    conda:
        "../envs/main.yaml"
    threads: GPU_JOB_THREADS
    resources:
        gpu=GPUS,
    params:
        spec=of_run(jobs.set_x_spec),
        fingerprint=fingerprint_of,
        instances=study.set_x.instances,
        starts=study.set_x.starts,
        augmentations=study.evaluation.augmentations,
    shell:
        "python -m polarvrp evaluate-set-x --model {input.policy} --fingerprint {params.fingerprint}"
        " --instances {params.instances} --starts {params.starts} --augmentations {params.augmentations}"
        " --output {output} > {log} 2>&1"
