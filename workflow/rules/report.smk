rule write_report:
    input:
        tables=[path.replace(".parquet", ".md") for path in tables()],
        figures=figures(),
    output:
        "results/report.html",
    log:
        "results/logs/write_report.log",
    conda:
        "../envs/main.yaml"
    threads: 1
    params:
        scale=study.scale,
    shell:
        "python -m polarvrp report --tables {input.tables} --figures {input.figures} --scale {params.scale}"
        " --output {output} > {log} 2>&1"
