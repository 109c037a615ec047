# A set that fits in one chunk is solved by one job; others by a job a chunk, and one that puts them together.
if len(jobs.chunk_starts(study, "test")) == 1:

    rule solve_references:
        input:
            instances=DATASET,
        output:
            REFERENCE,
        log:
            layout.log("solve_references", "{split}-{solver}-{variant}-n{n}"),
        conda:
            "../envs/main.yaml"
        threads: 1
        params:
            spec=reference_spec,
            seconds=limit_of,
            seed=study.references.seed,
        shell:
            "python -m polarvrp reference {input.instances} --solver {wildcards.solver} --seconds {params.seconds}"
            " --seed {params.seed} --workers {threads} --output {output} > {log} 2>&1"

else:

    rule solve_reference_chunk:
        input:
            instances=DATASET,
        output:
            CHUNK,
        log:
            layout.log("solve_reference_chunk", "{split}-{solver}-{variant}-n{n}-{start}"),
        conda:
            "../envs/main.yaml"
        threads: 1
        params:
            spec=reference_spec,
            seconds=limit_of,
            seed=study.references.seed,
            instances=study.references.chunk_instances,
        shell:
            "python -m polarvrp reference {input.instances} --solver {wildcards.solver} --seconds {params.seconds}"
            " --seed {params.seed} --start {wildcards.start} --count {params.instances} --workers {threads}"
            " --output {output} > {log} 2>&1"

    rule merge_references:
        input:
            chunks=chunks,
        output:
            REFERENCE,
        log:
            layout.log("merge_references", "{split}-{solver}-{variant}-n{n}"),
        localrule: True
        conda:
            "../envs/main.yaml"
        threads: 1
        params:
            spec=reference_spec,
        shell:
            "python -m polarvrp reference --merge {input.chunks} --output {output} > {log} 2>&1"


# For gaps against time: the first instances of a set in a part of the time limit.
rule solve_limited:
    input:
        instances=expand(DATASET, split="test", allow_missing=True),
    output:
        LIMITED,
    log:
        layout.log("solve_limited", "{solver}-{part}-{variant}-n{n}"),
    conda:
        "../envs/main.yaml"
    threads: 1
    params:
        spec=limited_spec,
        seconds=part_of_limit,
        seed=study.references.seed,
        instances=jobs.limited_instances(study),
    shell:
        "python -m polarvrp reference {input.instances} --solver {wildcards.solver} --seconds {params.seconds}"
        " --seed {params.seed} --first {params.instances} --workers {threads} --output {output} > {log} 2>&1"
