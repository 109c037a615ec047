# What users name on the command line, beside single files and `all`.
rule datasets:
    input:
        test_sets(),
        validation_sets(),


rule references:
    input:
        references(),


rule train:
    input:
        models(experiments.study_runs(study)),


rule policies:
    input:
        rules.train.input,


rule evaluate:
    input:
        evaluations(experiments.study_runs(study)),


rule zero_shot:
    input:
        tables(["zero_shot"]),


rule set_x:
    input:
        tables(["set_x"]),


rule ablations:
    input:
        tables(ablations()),
        drawn(ablations()),


rule analyses:
    input:
        tables(analyses()),
        drawn(analyses()),


rule tables:
    input:
        tables(),


rule figures:
    input:
        figures(),


rule report:
    input:
        layout.report,


rule solve:
    input:
        own_solutions,
