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
    from polarvrp.study.layout import unseen_protocols

    parser.add_argument("instances", type=Path, nargs="+", metavar="INSTANCES.npz", help="sets to solve")
    parser.add_argument(
        "--output",
        type=Path,
        nargs="+",
        required=True,
        help="one Parquet file a set, in order, for each protocol in turn, then for local search",
    )
    parser.add_argument("--first", type=int, metavar="K", help="solve only the first K instances of each set")
    parser.add_argument(
        "--protocol",
        nargs="+",
        choices=unseen_protocols(masked=False),
        default=["strict"],
        help="rules while decoding; published repeats the published environments, which overload vehicles with mixed "
        "backhauls and let tours compete that start illegally; both are evaluated in one pass",
    )
    parser.add_argument(
        "--mask-unseen-flags",
        action="store_true",
        help="hide the flags of mixed backhauls and several depots, which no training instance of the paper sets",
    )
    parser.add_argument(
        "--mixed-backhauls-only",
        action="store_true",
        help="instances with mixed backhauls set flag MB alone, not B beside it as in the published tests",
    )
    parser.add_argument(
        "--local-search",
        action="store_true",
        help="further files, of the same tours after one local search each by PyVRP on the processor; strict only",
    )
    add_policy_arguments(parser)


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
    if len(set(options.protocol)) < len(options.protocol):
        raise ConfigError("--protocol must name each protocol once")
    if options.local_search and options.protocol != ["strict"]:
        raise ConfigError("--local-search keeps the rules of the problem; leave out --protocol")
    kinds = len(options.protocol) + options.local_search
    wanted = len(options.instances) * kinds
    if len(options.output) != wanted:
        each = "a set" if len(options.protocol) == 1 else "a set and protocol"
        each += ", and one more with local search" if options.local_search else ""
        raise ConfigError(f"--output needs one file {each}: got {len(options.output)} for {wanted}; list them in order")
    if len({path.resolve() for path in options.output}) < len(options.output):
        raise ConfigError("--output must name each file once")
    from polarvrp.problem.datasets import read_instances

    if options.local_search:
        from polarvrp.solvers.versions import installed_version

        installed_version("pyvrp")  # before anything is decoded

    sets = [read_instances(path, first=options.first) for path in options.instances]

    from polarvrp.evaluation.models import load_trained
    from polarvrp.training.locks import leased_device

    with leased_device() as device:
        _solve(sets, load_trained(options.model, options.run, options.fingerprint, str(device)), options)
    return 0


def _solve(sets: list[Instances[NodeArrays]], trained: Model, options: argparse.Namespace) -> None:
    """Solve the sets and write one file each."""
    from polarvrp.decoding.greedy import Decoding, GreedySolver
    from polarvrp.evaluation.evaluate import evaluate_protocols, search_locally, warm_up
    from polarvrp.problem.datasets import variant_of
    from polarvrp.problem.instances import instance_digests
    from polarvrp.progress import progress
    from polarvrp.solutions.origin import DIGESTS, Origin, require_solutions_output
    from polarvrp.solutions.solutions import write_solutions

    decoding = Decoding(options.augmentations, protocols=tuple(options.protocol), engine=options.engine)
    trained.policy.mask_unseen_flags = options.mask_unseen_flags
    trained.policy.mb_sets_b = not options.mixed_backhauls_only
    effort = {
        "augmentations": options.augmentations,
        "mask_unseen_flags": options.mask_unseen_flags,
        "mb_sets_b": not options.mixed_backhauls_only,
    }
    digests = [dict(enumerate(instance_digests(instances))) for instances in sets]
    # Outputs of each set by protocol, then after local search.
    outputs = [options.output[place :: len(sets)] for place in range(len(sets))]
    for instances, paths, known in zip(sets, outputs, digests, strict=True):
        origin = Origin(variant_of(instances).name, instances.num_customers, "run", trained.run)
        for path in paths:
            require_solutions_output(path, origin, known, [*options.instances, trained.path])
    solver = GreedySolver(trained.policy, decoding, trained.bfloat16)
    warm_up(solver, sets)
    jobs = list(zip(options.instances, sets, outputs, digests, strict=True))
    for path, instances, paths, known in progress(jobs, len(jobs), trained.run, "set"):
        solved = evaluate_protocols(solver, trained.run, instances)
        reasons = [f"instance {row.instance}, {row.reason}" for row in solved[0] if row.reason]
        _report_unsolved(path, reasons, len(instances))
        made = trained.origin | effort | {"engine": solver.engine(instances).level, DIGESTS: known}
        kinds = [{"protocol": protocol} for protocol in options.protocol]
        if options.local_search:
            solved.append(search_locally(instances, solved[0]))
            kinds.append(kinds[0] | {"local_search": "pyvrp"})
        for kind, output, rows in zip(kinds, paths, solved, strict=True):
            write_solutions(output, rows, key="run", metadata=made | kind)


def _report_unsolved(path: Path, reasons: list[str], count: int) -> None:
    """One warning for instances that nobody can solve; an error where there is no other."""
    if not reasons:
        return
    if len(reasons) == count:
        raise DataError(f"{path}: no instance has a solution: {reasons[0]}")
    logging.getLogger(__name__).warning("%s: %d of %d have no solution: %s", path, len(reasons), count, reasons[0])
