# A rule a table and a rule a figure: each has its own inputs and its own caption.
for name in EXPERIMENTS:

    rule:
        name:
            f"build_{name}"
        input:
            lambda wildcards, table=name: TABLE_INPUTS[table](table),
        output:
            parquet=f"results/tables/{name}.parquet",
            csv=report(
                f"results/tables/{name}.csv",
                caption=f"../report/{name}.rst",
                category="Tables",
                labels={"table": name, "scale": study.scale},
            ),
            markdown=f"results/tables/{name}.md",
            latex=f"results/tables/{name}.tex",
        log:
            f"results/logs/build_table/{name}.log",
        conda:
            "../envs/main.yaml"
        threads: 1
        params:
            spec=lambda wildcards, table=name: table_spec(table),
            name=name,
            scale=study.scale,
            runs=lambda wildcards, table=name: names_of(listed_runs(table)),
        shell:
            "python -m polarvrp tables {params.name} --results results --scale {params.scale}"
            " --runs {params.runs} > {log} 2>&1"


for name in FIGURE_INPUTS:

    rule:
        name:
            f"draw_{name}"
        input:
            FIGURE_INPUTS[name],
        output:
            png=report(
                f"results/figures/{name}.png",
                caption=f"../report/{name}.rst",
                category="Figures",
                labels={"figure": name, "scale": study.scale},
            ),
            pdf=f"results/figures/{name}.pdf",
        log:
            f"results/logs/draw_figure/{name}.log",
        conda:
            "../envs/main.yaml"
        threads: 1
        params:
            name=name,
            scale=study.scale,
            runs=names_of(experiments.main_runs(study)),
        shell:
            "python -m polarvrp figures {params.name} --results results --scale {params.scale}"
            " --runs {params.runs} > {log} 2>&1"
