"""What lies in the results folder and is listed in tables beside what they ask for; nothing is made anew for it."""

from __future__ import annotations

from collections.abc import Collection

from polarvrp.catalog.experiments import EXPERIMENTS
from polarvrp.catalog.methods import SOLVERS
from polarvrp.config.study import StudyConfig
from polarvrp.errors import PolarvrpError
from polarvrp.study.experiments import masked_runs
from polarvrp.study.layout import Layout, unseen_protocols
from polarvrp.study.metadata import recorded
from polarvrp.study.runs import RunSpec, parse_run
from polarvrp.study.specs import fingerprint, train_spec


def trained_runs(study: StudyConfig, layout: Layout) -> list[RunSpec]:
    """Runs of the study's sizes that were trained as the study would train them, by name.

    Others are no part of the study: to list them would mean to train them again.
    """
    sizes = {size.num_customers for size in study.sizes}
    found = []
    for weights in sorted(layout.root.glob(str(layout.weights("*").relative_to(layout.root)))):
        try:
            run = parse_run(weights.parent.name)
            if run.num_customers not in sizes:
                continue
            trained_by = recorded(layout.metadata(run.name)).get("fingerprint")
            if trained_by == fingerprint(train_spec(study, run)):
                found.append(run)
        except PolarvrpError:  # a foreign folder, or a run that this study cannot train
            continue
    return found


def beside(
    study: StudyConfig, layout: Layout, name: str, trained: Collection[RunSpec], made: Collection[RunSpec]
) -> list[RunSpec]:
    """Runs that a table may list beside those that it compares.

    Args:
        study: The study.
        layout: Of its results.
        name: A key of ``EXPERIMENTS``.
        trained: Runs that were trained.
        made: Runs that are made whatever the table asks for.

    Returns:
        All of them; for a table of one size those whose solutions are there too, since these take longer to make.
    """
    needs = EXPERIMENTS[name].needs
    if "unseen_variants" not in needs and "set_x" not in needs:
        return [*trained, *(run for run in made if run not in trained)]
    sized = [run for run in trained if run.num_customers == study.transfer_size]
    if "set_x" in needs:
        return [run for run in sized if layout.set_x(run.name).is_file()]
    return [run for run in sized if _is_tested(study, layout, run)]


def _is_tested(study: StudyConfig, layout: Layout, run: RunSpec) -> bool:
    """Whether a run's solutions of all unseen variants are there, by every protocol that the study asks of it."""
    protocols = unseen_protocols(masked=False)
    if masked_runs(study, [run]):
        protocols += unseen_protocols(masked=True)
    return all(
        layout.unseen_evaluation(run.name, variant, run.num_customers, protocol).is_file()
        for protocol in protocols
        for variant in study.zero_shot_variants
    )


def solved_beside(
    layout: Layout,
    variants: Collection[str],
    sizes: Collection[int],
    inputs: Collection[str],
    parts: Collection[float] = (),
) -> dict[str, int]:
    """Solutions by solvers that a table shows though they are none of its inputs, and when each was written.

    Args:
        layout: Of the results.
        variants: Of the table.
        sizes: Of its rows.
        inputs: Files that the workflow makes for it.
        parts: Those of a solver's time limit whose solutions it shows too.
    """
    sets = [(variant, size) for variant in variants for size in sizes]
    paths = [layout.reference("test", solver, *test_set) for solver in SOLVERS for test_set in sets]
    paths += [layout.limited(solver, part, *test_set) for solver in SOLVERS for part in parts for test_set in sets]
    return {str(path): path.stat().st_mtime_ns for path in paths if str(path) not in inputs and path.is_file()}
