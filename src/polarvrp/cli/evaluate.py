"""``polarvrp evaluate``: solve sets of instances with a trained policy."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from polarvrp.cli.arguments import add_policy_arguments
from polarvrp.errors import ConfigError, DataError

if TYPE_CHECKING:
    from polarvrp.evaluation.models import Model
    from polarvrp.problem.instances import Instances, NodeArrays


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("instances", type=Path, nargs="+", metavar="INSTANCES.npz", help="sets to solve")
    parser.add_argument("--output", type=Path, nargs="+", required=True, help="one Parquet file a set, in order")
    parser.add_argument("--first", type=int, metavar="K", help="solve only the first K instances of each set")
    parser.add_argument(
        "--protocol",
        choices=("strict", "published"),
        default="strict",
        help="rules while decoding; published repeats the published environments, which overload vehicles with mixed "
        "backhauls and let tours compete that start illegally",
    )
    add_policy_arguments(parser)


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
    if len(options.output) != len(options.instances):
        raise ConfigError(
            f"--output needs one file a set: got {len(options.output)} for {len(options.instances)}; list them in order"
        )
    if len({path.resolve() for path in options.output}) < len(options.output):
        raise ConfigError("--output must name each file once")
    from polarvrp.problem.datasets import read_instances

    sets = [read_instances(path, first=options.first) for path in options.instances]

    from polarvrp.evaluation.models import load_trained
    from polarvrp.training.locks import leased_device

    with leased_device() as device:
        _solve(sets, load_trained(options.model, options.run, options.fingerprint, str(device)), options)
    return 0


def _solve(sets: list[Instances[NodeArrays]], trained: Model, options: argparse.Namespace) -> None:
    """Solve the sets and write one file each."""
    from polarvrp.decoding.greedy import Decoding, GreedySolver
    from polarvrp.evaluation.evaluate import evaluate_set, warm_up
    from polarvrp.problem.datasets import variant_of
    from polarvrp.problem.instances import instance_digests
    from polarvrp.progress import progress
    from polarvrp.solutions.origin import DIGESTS, Origin, require_solutions_output
    from polarvrp.solutions.solutions import write_solutions

    decoding = Decoding(options.augmentations, protocol=options.protocol, engine=options.engine)
    effort = {"augmentations": options.augmentations, "protocol": options.protocol}
    digests = [dict(enumerate(instance_digests(instances))) for instances in sets]
    for instances, output, known in zip(sets, options.output, digests, strict=True):
        origin = Origin(variant_of(instances).name, instances.num_customers, "run", trained.run)
        require_solutions_output(output, origin, known, [*options.instances, trained.path])
    solver = GreedySolver(trained.policy, decoding, trained.bfloat16)
    warm_up(solver, sets[0])
    jobs = list(zip(options.instances, sets, options.output, digests, strict=True))
    for path, instances, output, known in progress(jobs, len(jobs), trained.run, "set"):
        rows = evaluate_set(solver, trained.run, instances)
        _report_unsolved(path, [f"instance {row.instance}, {row.reason}" for row in rows if row.reason], len(rows))
        engine = {"engine": solver.engine(instances.num_nodes).level}
        write_solutions(output, rows, key="run", metadata=trained.origin | effort | engine | {DIGESTS: known})


def _report_unsolved(path: Path, reasons: list[str], count: int) -> None:
    """One warning for instances that nobody can solve; an error where there is no other."""
    if not reasons:
        return
    if len(reasons) == count:
        raise DataError(f"{path}: no instance has a solution: {reasons[0]}")
    logging.getLogger(__name__).warning("%s: %d of %d have no solution: %s", path, len(reasons), count, reasons[0])
