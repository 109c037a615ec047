# A folder of the user's own files, each solved by a job of its own: a bad one stops no other.
rule solve_file:
    input:
        known=own_known_solution,
        policy=own_model,
        file=own_file,
    output:
        layout.solved("{file}"),
    log:
        layout.log("solve_file", "{file}"),
    wildcard_constraints:
        file=r".+",
    conda:
        "../envs/main.yaml"
    threads: 1
    params:
        model=own_model_option(),
        seconds=study.solve.seconds,
        folder=subpath(output[0], parent=True),
    shell:
        "python -m polarvrp solve {input.file:q} {params.model} --seconds {params.seconds}"
        " --output {params.folder:q} > {log:q} 2>&1"
