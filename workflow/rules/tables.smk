# A rule a table and a rule a figure, from the records of experiments: each has its own inputs and its own caption.
for name, experiment in EXPERIMENTS.items():
    if experiment.rows:

        rule:
            name:
                f"build_{name}"
            input:
                lambda wildcards, name=name: needs(name),
            output:
                parquet=layout.table(name),
                csv=report(
                    layout.table(name, "csv"),
                    caption="../report/caption.rst",
                    category="Tables",
                    labels={"table": name, "scale": study.scale},
                ),
                markdown=layout.table(name, "md"),
                latex=layout.table(name, "tex"),
            log:
                layout.log(f"build_{name}", name),
            localrule: True
            conda:
                "../envs/main.yaml"
            threads: 1
            params:
                spec=lambda wildcards, name=name: table_spec(name),
                name=name,
                results=results_root,
                scale=study.scale,
                runs=lambda wildcards, name=name: only_runs(plan().runs(name)),
                variants=only_variants(),
                compared=only_tables(name),
                protocols=only_protocols(name),
                reference="" if study.datasets.test_seed == PUBLISHED_SEED else "--reference pyvrp",
                labels=own_labels(),
                external=external_methods(),
                caption=experiment.caption,
            shell:
                "python -m polarvrp tables {params.name} --results {params.results} --scale {params.scale}"
                " {params.reference} {params.runs} {params.variants} {params.compared} --labels {params.labels:q}"
                " {params.protocols} {params.external} > {log} 2>&1"

    if experiment.figure:

        rule:
            name:
                f"draw_{name}"
            input:
                lambda wildcards, name=name: tables([name]) if EXPERIMENTS[name].rows else needs(name),
            output:
                png=report(
                    layout.figure(name),
                    caption="../report/caption.rst",
                    category="Figures",
                    labels={"figure": name, "scale": study.scale},
                ),
                pdf=layout.figure(name, "pdf"),
            log:
                layout.log(f"draw_{name}", name),
            localrule: True
            conda:
                "../envs/main.yaml"
            threads: 1
            params:
                spec=lambda wildcards, name=name: figure_spec(name),
                name=name,
                results=results_root,
                scale=study.scale,
                runs=lambda wildcards, name=name: only_runs(plan().runs(name)),
                variants=only_variants(),
                labels=own_labels(),
                caption=experiment.figure.caption,
            shell:
                "python -m polarvrp figures {params.name} --results {params.results} --scale {params.scale}"
                " {params.runs} {params.variants} --labels {params.labels:q} > {log} 2>&1"
