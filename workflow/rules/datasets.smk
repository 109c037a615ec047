rule generate_dataset:
    output:
        DATASET,
    log:
        layout.log("generate_dataset", "{split}-{variant}-n{n}"),
    localrule: True
    conda:
        "../envs/main.yaml"
    threads: 1
    params:
        spec=dataset_spec,
        seed=seed_of,
        instances=instances_of,
    shell:
        "python -m polarvrp generate --variant {wildcards.variant} --num-customers {wildcards.n}"
        " --instances {params.instances} --seed {params.seed} --output {output} > {log} 2>&1"
