rule write_report:
    input:
        tables=tables(),
        figures=figures(),
    output:
        layout.report,
    log:
        layout.log("write_report", "all"),
    localrule: True
    conda:
        "../envs/main.yaml"
    threads: 1
    params:
        spec=report_spec,
        names=experiments.reported(study),
        results=results_root,
        scale=study.scale,
    shell:
        "python -m polarvrp report {params.names} --results {params.results} --scale {params.scale}"
        " --output {output} > {log} 2>&1"
