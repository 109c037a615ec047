rule write_report:
    input:
        tables=[layout.table(name, "md") for name in study.experiments],
        figures=figures(),
    output:
        layout.report,
    log:
        layout.log("write_report", "all"),
    conda:
        "../envs/main.yaml"
    threads: 1
    params:
        scale=study.scale,
    shell:
        "python -m polarvrp report --tables {input.tables} --figures {input.figures} --scale {params.scale}"
        " --output {output} > {log} 2>&1"
