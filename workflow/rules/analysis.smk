# What trained models and their trainings say beside gaps; small jobs on CPU cores, so that no GPU waits for them.
rule analyse_margins:
    input:
        history=HISTORY,
    output:
        MARGINS,
    log:
        layout.log("analyse_margins", "{run}"),
    localrule: True
    conda:
        "../envs/main.yaml"
    threads: 1
    params:
        spec=margins_spec,
    shell:
        "python -m polarvrp analyse margins {input.history} --output {output} > {log} 2>&1"


rule analyse_experts:
    input:
        policy=WEIGHTS.format(run=SIZED_RUN),
        instances=expand(DATASET, split="test", variant=study.training_variants, allow_missing=True),
    output:
        EXPERTS,
    log:
        layout.log("analyse_experts", SIZED_RUN),
    conda:
        "../envs/main.yaml"
    threads: ANALYSIS_THREADS
    params:
        spec=of_run(jobs.analysis_spec),
        fingerprint=fingerprint_of,
    shell:
        "python -m polarvrp analyse experts {input.instances} --model {input.policy}"
        " --fingerprint {params.fingerprint} --output {output} > {log} 2>&1"


# One thread, since sums in another order make another map.
rule analyse_embeddings:
    input:
        policy=WEIGHTS.format(run=SIZED_RUN),
        instances=expand(DATASET, split="test", variant=study.training_variants, allow_missing=True),
    output:
        EMBEDDINGS,
    log:
        layout.log("analyse_embeddings", SIZED_RUN),
    conda:
        "../envs/main.yaml"
    threads: 1
    params:
        spec=of_run(jobs.analysis_spec),
        fingerprint=fingerprint_of,
    shell:
        "python -m polarvrp analyse embeddings {input.instances} --model {input.policy}"
        " --fingerprint {params.fingerprint} --output {output} > {log} 2>&1"


rule analyse_architectures:
    output:
        layout.architectures,
    log:
        layout.log("analyse_architectures", "all"),
    conda:
        "../envs/main.yaml"
    threads: 1
    params:
        spec=architectures_spec,
        sizes=SIZES,
    shell:
        "python -m polarvrp analyse architectures --num-customers {params.sizes} --output {output} > {log} 2>&1"
