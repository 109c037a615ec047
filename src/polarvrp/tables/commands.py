"""Commands that make what is missing, as messages name them: at the scale in question and in its folder of results."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from polarvrp.catalog.experiments import Experiment
from polarvrp.files import resolved
from polarvrp.study.layout import Layout

if TYPE_CHECKING:
    from polarvrp.tables.sources import Results


def command_for(results: Results, experiment: Experiment) -> str:
    """What a user types who lacks the results of a table, or a picture that is of no table."""
    layout, name = results.layout, experiment.name
    return workflow_command(results, layout.table(name) if experiment.rows else layout.figure(name))


def workflow_command(results: Results, target: Path | str) -> str:
    """The workflow that makes a target and all that it needs, at the scale of the results and in their folder.

    The workflow's own folder is another one where that is not named as the folder of the scale is; then it is said.

    Args:
        results: Where the target is missing.
        target: A file below their folder, or names of targets.
    """
    usual, folder = Layout.of_scale(results.scale).root, results.root.absolute()
    made = target if isinstance(target, str) else usual / target.relative_to(results.root)
    command = f"snakemake --cores all {made} --config scale={results.scale}"
    if _is_usual(results):
        return command
    if folder.parts[-len(usual.parts) :] == usual.parts:
        return f"{command} --directory {shlex.quote(str(folder.parents[len(usual.parts) - 1]))}"
    return f"{command}, which works in {usual}"


def own_command(results: Results, words: str) -> str:
    """A command of the package that makes something of the results, such as ``tables set_x``."""
    folder = "" if _is_usual(results) else f" --results {shlex.quote(str(results.root))}"
    return f"polarvrp {words} --scale {results.scale}{folder}"


def _is_usual(results: Results) -> bool:
    """Whether their folder is that of their scale."""
    return resolved(results.root) == resolved(Layout.of_scale(results.scale).root)
