rule train_policy:
    input:
        validation=run_validation_sets,
    output:
        policy=WEIGHTS,
        config="results/models/{run}/config.yaml",
        history=HISTORY,
        metadata=METADATA,
    log:
        "results/logs/train_policy/{run}.log",
    retries: 2
    conda:
        "../envs/main.yaml"
    threads: study.train_threads
    resources:
        gpu=study.gpus_per_job,
    params:
        spec=train_spec,
        state="results/checkpoints/{run}",
    shell:
        "python -m polarvrp train {wildcards.run} --spec {params.spec:q} --state {params.state} --workers {threads}"
        " --validation {input.validation} --output {output.policy} > {log} 2>&1"
