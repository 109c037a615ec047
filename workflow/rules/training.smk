rule train_policy:
    input:
        validation=run_validation_sets,
    output:
        policy=WEIGHTS,
        config=layout.model_config("{run}"),
        history=HISTORY,
        metadata=METADATA,
    log:
        layout.log("train_policy", "{run}"),
    priority: TRAINING_PRIORITY
    retries: 2
    conda:
        "../envs/main.yaml"
    threads: GPU_JOB_THREADS
    resources:
        gpu=GPUS,
    params:
        spec=train_spec,
        results=results_root,
    shell:
        "python -m polarvrp train {wildcards.run} --spec {params.spec:q} --workers {threads}"
        " --validation {input.validation} --results {params.results} > {log} 2>&1"
